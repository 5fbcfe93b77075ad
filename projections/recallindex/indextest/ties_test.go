package indextest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/projections/recallindex"
)

// ties: of documents with equal scores the newer are kept, then those of the first Tie, in every project,
// whatever their ids are and in which order they were written.
func ties(t *testing.T, open Open) {
	x, r := opened(t, open), rand.New(rand.NewPCG(5, 6))
	start := time.Date(2025, 5, 12, 9, 0, 0, 0, time.UTC)
	const documents, size = 1200, 40
	for _, when := range []struct {
		name string
		at   func(n int) time.Time
	}{
		{"seconds apart", func(n int) time.Time { return start.Add(-time.Duration(n) * time.Second) }},
		{"at once", func(int) time.Time { return start }},
		{"before 1970", func(n int) time.Time { return time.Date(-2, 1, 1, 0, 0, -n, 0, time.UTC).AddDate(1000, 0, 0) }},
	} {
		for project := range 3 {
			id := uuid.New()
			places := map[uuid.UUID]int{}
			var change recallindex.Change
			for _, n := range r.Perm(documents) {
				d := passage(uuid.New(), 1, 0, "ticket number", "")
				d.OccurredAt, d.Tie = when.at(n), uint16(n)
				places[d.DataPoint] = n
				if change.Upserts = append(change.Upserts, d); len(change.Upserts) == 500 {
					apply(t, x, id, change)
					change.Upserts = nil
				}
			}
			apply(t, x, id, change)
			q := query(id, "ticket number")
			q.Sources = size
			found := search(t, x, q)
			equal(t, "hits", len(found.Hits), size)
			for _, h := range found.Hits {
				if places[h.DataPoint] >= size {
					t.Fatalf("%s, project %d: document %d is kept", when.name, project, places[h.DataPoint])
				}
			}
		}
	}
}

// lengths: a length is exact, however long a text is and whatever it repeats.
func lengths(t *testing.T, open Open) {
	x, project := opened(t, open), uuid.New()
	for _, n := range []int{1, 2, 3, 255, 1000, 6001, 65_537} {
		d := passage(uuid.New(), 1, 0, "", "")
		d.Terms.Text = append(strings.Fields(strings.Repeat("w ", n-1)), fmt.Sprint("only", n))
		apply(t, x, project, recallindex.Change{Upserts: []recallindex.Document{d}})
		for _, h := range search(t, x, query(project, fmt.Sprint("w only", n))).Hits {
			if h.DataPoint == d.DataPoint {
				equal(t, "length", h.Length, n)
				equal(t, "counts", h.Counts, []recall.Count{{Text: n - 1}, {Text: 1}})
			}
		}
	}
}

// manyTerms: a question of the most words, each with the stems of eight languages, and with related words,
// is answered, although all occur.
func manyTerms(t *testing.T, open Open) {
	x, project := opened(t, open), uuid.New()
	var q recallindex.Query
	var text []string
	for n := range 64 {
		text = append(text, fmt.Sprint("word", n))
		for language := range 8 {
			text = append(text, fmt.Sprintf("~l%d:wor%d", language, n))
		}
	}
	for n := range 48 {
		text = append(text, fmt.Sprint("related", n))
	}
	d := passage(uuid.New(), 1, 0, strings.Join(text, " "), strings.Join(text, " "))
	apply(t, x, project, recallindex.Change{Upserts: []recallindex.Document{d}})
	q = query(project, strings.Join(text, " "))
	found := search(t, x, q)
	equal(t, "hits", keys(found), []recallindex.Key{d.Key})
	for i, f := range found.Statistics.Frequencies {
		equal(t, q.Terms[i].Text, f, recall.Count{Text: 1, Label: 1})
	}
}

// languages: stems are found by their language, in texts and in labels, with and without others.
func languages(t *testing.T, open Open) {
	x, project, german, labelled := opened(t, open), uuid.New(), uuid.New(), uuid.New()
	apply(t, x, project, recallindex.Change{Upserts: []recallindex.Document{
		passage(german, 1, 0, "kinder ~de ~de:kind", ""), passage(labelled, 1, 0, "words", "~fr:enfant"),
	}})
	want := map[string]int{
		"~de:kind": 1, "~de:other": 0, "~en:kind": 0, "~fr:enfant": 1, "~de": 1, "~en": 0, "~en:kind ~de:kind ~fr:enfant": 2,
	}
	for text, n := range want {
		equal(t, text, len(search(t, x, query(project, text)).Hits), n)
	}
}
