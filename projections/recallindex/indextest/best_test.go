package indextest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/projections/recallindex"
)

// best asks for a few of many documents, and compares the scores with those of all: whatever an
// index skips must not be among the best. Common and rare words, labels, deletions, audiences and
// days take part.
func best(t *testing.T, open Open) {
	x, project, all := opened(t, open), uuid.New(), NewMemory()
	r := rand.New(rand.NewPCG(3, 4))
	zipf := rand.NewZipf(r, 1.2, 3, 300)
	word := func() string { return fmt.Sprintf("w%d", zipf.Uint64()) }
	audiences := []uuid.UUID{uuid.Nil, uuid.New(), uuid.New()}
	start := time.Date(2025, 1, 1, 12, 0, 0, 0, time.UTC)
	var keys []recallindex.Key
	for round := range 4 {
		var change recallindex.Change
		for _, k := range keys {
			if r.IntN(10) == 0 {
				change.Deletes = append(change.Deletes, sources(k.DataPoint, k.Revision))
			}
		}
		for n := range 450 {
			d := passage(uuid.New(), 1, 0, "", "")
			d.Audience, d.OccurredAt = audiences[r.IntN(1+round%3)], start.AddDate(0, 0, 80*round+n/6)
			for range 1 + r.IntN(60) {
				d.Terms.Text = append(d.Terms.Text, word())
			}
			if n%5 == 0 {
				d.Terms.Label = []string{word()}
			}
			change.Upserts, keys = append(change.Upserts, d), append(keys, d.Key)
		}
		apply(t, x, project, change)
		apply(t, all, project, change)
	}
	documents := all.Documents()[project]
	for n := range 100 {
		q := recallindex.Query{
			Analysis: Analysis,
			Project:  project, Sources: 1 + r.IntN(40), Audiences: audiences[:1+n%3],
		}
		var words []string
		for range 1 + r.IntN(6) {
			if w := word(); !slices.Contains(words, w) {
				words = append(words, w)
			}
		}
		q.Terms = recall.Wholes(words...)
		if n%2 == 0 {
			// Use whole days, since an index may know no more than the day.
			from, to := start.AddDate(0, 0, r.IntN(200)).Add(-12*time.Hour),
				start.AddDate(0, 0, 100+r.IntN(300)).Add(11*time.Hour)
			q.From, q.To = &from, &to
		}
		want, got := search(t, all, q), search(t, x, q)
		equal(t, "statistics", got.Statistics, want.Statistics)
		equal(t, fmt.Sprintf("scores for %v", q.Terms), scores(q, got), scores(q, want))
		for _, h := range got.Hits {
			equal(t, "counts", h.Counts, recall.Counts(q.Terms, documents[h.Key].Terms))
		}
	}
}

// scores returns the scores of the hits, highest first.
func scores(q recallindex.Query, f recallindex.Result) []float64 {
	weights := f.Statistics.Weights(q.Terms)
	list := make([]float64, len(f.Hits))
	for i, h := range f.Hits {
		list[i] = weights.Score(h.Counts, h.Length)
	}
	slices.Sort(list)
	slices.Reverse(list)
	return list
}
