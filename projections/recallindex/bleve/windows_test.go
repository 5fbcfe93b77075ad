package bleve

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/recallindex/indextest"
)

// Windows find the same documents as a search that scores all, in segments of several windows: with common and rare
// words, some of them repeated, labels, audiences, days, deletions and ties. So does every setting in between, since
// questions of few words need no windows.
func TestSearch_Windows(t *testing.T) {
	x, err := Open(t.TempDir(), Options{})
	runtest.Must(t, err)
	t.Cleanup(func() { runtest.Must(t, x.Close()) })
	all, project, r := indextest.NewMemory(), uuid.UUID{1}, rand.New(rand.NewPCG(7, 8))
	for segment, documents := range []int{windowSize + 77, 2000, 40} {
		change := recallindex.Change{Analysis: indextest.Analysis, Project: project}
		for i := range documents {
			d := recallindex.Document{
				Key: recallindex.Key{DataPoint: uuid.New(), Revision: 1}, Audience: uuid.UUID{15: byte(r.IntN(3))},
				OccurredAt: benchStart.AddDate(0, 0, r.IntN(300)), Tie: uint16(segment<<14 + i),
			}
			for word := range 12 {
				if r.IntN(100) < 30-word*2 {
					d.Terms.Text = append(d.Terms.Text, slices.Repeat([]string{fmt.Sprint("w", word)}, 1+max(0, r.IntN(9)-6))...)
				}
			}
			if i%5000 == 7 { // of one to four documents
				d.Terms.Text = append(d.Terms.Text, fmt.Sprint("only", i%3), "once")
			}
			if i%50 == 0 {
				d.Terms.Label = []string{fmt.Sprint("w", r.IntN(12))}
			}
			d.Terms.Text = append(d.Terms.Text, slices.Repeat([]string{"filler"}, r.IntN(60))...)
			change.Upserts = append(change.Upserts, d)
		}
		changes := []recallindex.Change{change, {Analysis: indextest.Analysis, Project: project}}
		for i := 0; i < documents; i += 9 {
			changes[1].Deletes = append(changes[1].Deletes,
				recallindex.Scope{DataPoint: change.Upserts[i].DataPoint, Part: recallindex.Sources, Revision: 1})
		}
		for _, c := range changes {
			runtest.Must(t, x.Apply(t.Context(), []recallindex.Change{c}))
			runtest.Must(t, all.Apply(t.Context(), []recallindex.Change{c}))
		}
	}
	words := []string{"once", "only0", "only1", "filler", "absent"}
	for word := range 12 {
		words = append(words, fmt.Sprint("w", word))
	}
	for n := range 30 {
		r.Shuffle(len(words), func(i, j int) { words[i], words[j] = words[j], words[i] })
		q := recallindex.Query{
			Analysis: indextest.Analysis, Project: project, Terms: recall.Wholes(words[:1+n%10]...),
			Sources: []int{1, 10, 100, 300}[n%4],
		}
		for a := range 1 + n%3 {
			q.Audiences = append(q.Audiences, uuid.UUID{15: byte(a)})
		}
		if n%5 == 0 {
			from, to := benchStart.AddDate(0, 0, 50), benchStart.AddDate(0, 0, 200).Add(24*time.Hour-1)
			q.From, q.To = &from, &to
		}
		search := func(in recallindex.Index) recallindex.Result {
			found, err := in.Search(t.Context(), q)
			runtest.Must(t, err)
			return found.Sources
		}
		want, got := search(all), search(x)
		for _, result := range []recallindex.Result{got, want} {
			slices.SortFunc(result.Hits, func(a, b recallindex.Hit) int {
				return strings.Compare(a.DataPoint.String(), b.DataPoint.String())
			})
		}
		if len(got.Hits) != len(want.Hits) {
			t.Fatalf("%v: %d hits, want %d", q.Terms, len(got.Hits), len(want.Hits))
		}
		for i, h := range got.Hits {
			if !cmp.Equal(h, want.Hits[i]) {
				t.Fatalf("%v: hit %v, want %v", q.Terms, h, want.Hits[i])
			}
		}
	}
}
