package bleve

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/recallindex/indextest"
)

// searchLaw draws documents of both parts and questions about them.
type searchLaw struct {
	*rand.Rand
	drawn int
	held  []recallindex.Document
}

// document draws a document: with common and rare words, some of them repeated, labels, audiences and days. Many have
// equal scores, none have equal orders.
func (r *searchLaw) document() recallindex.Document {
	n := r.drawn
	r.drawn++
	d := recallindex.Document{
		Key: recallindex.Key{DataPoint: uuid.New(), Revision: 1}, Audience: uuid.UUID{15: byte(r.IntN(3))},
		OccurredAt: benchStart.AddDate(0, 0, n%300), Tie: uint16(n),
	}
	for word := range 12 {
		if r.IntN(100) < 30-word*2 {
			d.Terms.Text = append(d.Terms.Text, slices.Repeat([]string{fmt.Sprint("w", word)}, 1+max(0, r.IntN(9)-6))...)
		}
	}
	if n%5000 == 7 { // of some documents
		d.Terms.Text = append(d.Terms.Text, fmt.Sprint("only", n/5000%3), "once")
	}
	d.Terms.Text = append(d.Terms.Text, slices.Repeat([]string{"filler"}, r.IntN(60))...)
	if n%7 == 0 {
		d.Memory = uuid.New()
	} else if n%50 == 1 {
		d.Terms.Label = []string{fmt.Sprint("w", r.IntN(12))}
	}
	r.held = append(r.held, d)
	return d
}

// page draws a page of new documents, then one that deletes, moves and replaces some of all.
func (r *searchLaw) pages(project uuid.UUID, documents int) []recallindex.Change {
	added := recallindex.Change{Analysis: indextest.Analysis, Project: project}
	for range documents {
		added.Upserts = append(added.Upserts, r.document())
	}
	changed := recallindex.Change{Analysis: indextest.Analysis, Project: project}
	r.Shuffle(len(r.held), func(i, j int) { r.held[i], r.held[j] = r.held[j], r.held[i] })
	deleted := len(r.held) / 9
	for _, d := range r.held[:deleted] {
		changed.Deletes = append(changed.Deletes,
			recallindex.Scope{DataPoint: d.DataPoint, Part: d.Part(), Revision: d.Revision})
	}
	r.held = r.held[deleted:]
	for i := range min(100, len(r.held)) {
		d := &r.held[i]
		if d.Audience = (uuid.UUID{15: byte(r.IntN(3))}); i%2 == 0 {
			changed.Moves = append(changed.Moves, recallindex.Move{DataPoint: d.DataPoint, Audience: d.Audience})
			continue
		}
		d.Terms.Text = d.Terms.Text[:len(d.Terms.Text)/2]
		changed.Upserts = append(changed.Upserts, *d)
	}
	return []recallindex.Change{added, changed}
}

// query draws a question of one to ten words.
func (r *searchLaw) query(project uuid.UUID, n int) recallindex.Query {
	words := []string{"once", "only0", "only1", "filler", "absent"}
	for word := range 12 {
		words = append(words, fmt.Sprint("w", word))
	}
	r.Shuffle(len(words), func(i, j int) { words[i], words[j] = words[j], words[i] })
	q := recallindex.Query{
		Analysis: indextest.Analysis, Project: project, Terms: recall.Wholes(words[:1+n%10]...),
	}
	if size := []int{1, 10, 100, 300}[n%4]; n%3 == 2 {
		q.Memories = size
	} else {
		q.Sources, q.Memories = size, n%2*size
	}
	for a := range 1 + r.IntN(3) {
		q.Audiences = append(q.Audiences, uuid.UUID{15: byte(a)})
	}
	if r.IntN(4) == 0 {
		from, to := benchStart.AddDate(0, 0, 50), benchStart.AddDate(0, 0, 200).Add(24*time.Hour-1)
		q.From, q.To = &from, &to
	}
	return q
}

// A search finds the same documents as one that scores all, with windows and without, shared by two goroutines and not,
// and when several run at a time: in segments of several windows and in small ones, with filters, deletions, moves and
// ties, also after changes between searches.
func TestSearch_Law(t *testing.T) {
	x, err := Open(t.TempDir(), Options{OwnFrom: windowSize})
	runtest.Must(t, err)
	t.Cleanup(func() { runtest.Must(t, x.Close()) })
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0))))
	all, project, r := indextest.NewMemory(), uuid.UUID{1}, &searchLaw{Rand: rand.New(rand.NewPCG(7, 8))}
	n := 0
	for _, segments := range [][]int{{windowSize + 77, 2000, 40}, {700, 30}, {1}} {
		for _, documents := range segments {
			for _, page := range r.pages(project, documents) {
				runtest.Must(t, x.Apply(t.Context(), []recallindex.Change{page}))
				runtest.Must(t, all.Apply(t.Context(), []recallindex.Change{page}))
			}
		}
		var queries []recallindex.Query
		var want []recallindex.Found
		for range 20 {
			q := r.query(project, n)
			found, err := all.Search(t.Context(), q)
			runtest.Must(t, err)
			queries, want = append(queries, q), append(want, sorted(found))
			n++
		}
		x.activity.spanSize = windowSize
		for _, setting := range []struct{ sharedFrom, clients int }{{1, 1}, {math.MaxInt, 4}} {
			x.activity.sharedFrom = setting.sharedFrom
			var clients errgroup.Group
			clients.SetLimit(setting.clients)
			for i, q := range queries {
				clients.Go(func() error {
					found, err := x.Search(t.Context(), q)
					if diff := cmp.Diff(want[i], sorted(found), cmpopts.EquateEmpty()); err == nil && diff != "" {
						err = fmt.Errorf("%v, %d and %d of them, shared from %d: %s", q.Terms, q.Sources, q.Memories, setting.sharedFrom, diff)
					}
					return err
				})
			}
			if err := clients.Wait(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func sorted(found recallindex.Found) recallindex.Found {
	for _, part := range []recallindex.Part{recallindex.Sources, recallindex.Memories} {
		slices.SortFunc(found.Of(part).Hits, func(a, b recallindex.Hit) int {
			return strings.Compare(a.DataPoint.String(), b.DataPoint.String())
		})
	}
	return found
}
