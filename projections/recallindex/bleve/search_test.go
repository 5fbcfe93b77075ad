package bleve

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
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

// Words of the benchmark: a text has a common one with a chance of 8 to 30 of 100, a middling one of .8 to 2, and a
// rare one of some in 100,000.
const commonWords, middlingWords, rareWords = 20, 50, 500

func benchText(r *rand.Rand) (words []string) {
	for i := range commonWords {
		if r.IntN(1000) < 80+220*i/commonWords {
			words = append(words, fmt.Sprint("common", i))
			if r.IntN(8) == 0 {
				words = append(words, fmt.Sprint("common", i))
			}
		}
	}
	for i := range middlingWords {
		if r.IntN(1000) < 8+12*i/middlingWords {
			words = append(words, fmt.Sprint("middling", i))
		}
	}
	if r.IntN(10) == 0 {
		words = append(words, fmt.Sprint("rare", r.IntN(rareWords)))
	}
	for range 5 + r.IntN(60) {
		words = append(words, fmt.Sprint("other", r.IntN(20_000)))
	}
	return words
}

// BenchmarkTopK searches ANNALS_BENCH_PASSAGES passages for one to ten words of each kind. ANNALS_BENCH_INDEX is a
// folder in which the index is kept for the next time. Without them it is skipped.
func BenchmarkTopK(b *testing.B) {
	passages, err := strconv.Atoi(os.Getenv("ANNALS_BENCH_PASSAGES"))
	folder := os.Getenv("ANNALS_BENCH_INDEX")
	if err != nil || folder == "" {
		b.Skip("ANNALS_BENCH_PASSAGES or ANNALS_BENCH_INDEX is not set")
	}
	x, err := Open(filepath.Join(folder, strconv.Itoa(passages)), Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := x.Close(); err != nil {
			b.Error(err)
		}
	}()
	project := uuid.UUID{1}
	if n, err := x.Count(b.Context(), project); err != nil || n != 0 && n != passages {
		b.Fatalf("%d documents, %v", n, err)
	} else if n == 0 {
		r := rand.New(rand.NewPCG(1, 2))
		for from := 0; from < passages; from += 2000 {
			change := recallindex.Change{Analysis: indextest.Analysis, Project: project}
			for i := from; i < min(from+2000, passages); i++ {
				d := recallindex.Document{
					Key: recallindex.Key{Revision: 1}, Audience: uuid.UUID{15: byte(i*7%10 + 1)},
					OccurredAt: benchStart.Add(time.Duration(i) * time.Minute), Terms: recall.Terms{Text: benchText(r)},
				}
				binary.BigEndian.PutUint64(d.DataPoint[:], uint64(i)+1)
				change.Upserts = append(change.Upserts, d)
			}
			if err := x.Apply(b.Context(), []recallindex.Change{change}); err != nil {
				b.Fatal(err)
			}
		}
	}
	audiences := make([]uuid.UUID, 10)
	for i := range audiences {
		audiences[i] = uuid.UUID{15: byte(i + 1)}
	}
	for _, kind := range []string{"rare", "middling", "common", "mixed"} {
		for _, words := range []int{1, 2, 6, 10} {
			for _, size := range []int{10, 100, 300} {
				for _, reached := range []int{10, 1} {
					q := recallindex.Query{
						Analysis: indextest.Analysis, Project: project, Sources: size, Audiences: audiences[:reached],
					}
					b.Run(fmt.Sprintf("%s-%d/top-%d/audiences-%d", kind, words, size, reached), func(b *testing.B) {
						r := rand.New(rand.NewPCG(5, uint64(words)))
						defer reportCPU(b)()
						for b.Loop() {
							q.Terms = recall.Wholes(benchWords(r, kind, words)...)
							if _, err := x.Search(b.Context(), q); err != nil {
								b.Fatal(err)
							}
						}
					})
				}
			}
		}
	}
}

// benchWords returns different words of a kind.
func benchWords(r *rand.Rand, kind string, n int) (words []string) {
	first := map[string]int{"common": r.IntN(commonWords), "middling": r.IntN(middlingWords), "rare": r.IntN(rareWords)}
	for i := range n {
		of := kind
		if kind == "mixed" {
			of = []string{"common", "rare", "middling"}[i%3]
		}
		bound := map[string]int{"common": commonWords, "middling": middlingWords, "rare": rareWords}[of]
		words = append(words, fmt.Sprint(of, (first[of]+i)%bound))
	}
	return words
}

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

// A segment keeps what is asked for again, and no more than its bound, however many terms searches read.
func TestHeldTerms_Bound(t *testing.T) {
	const documents = 1000
	h, often, list := new(heldTerms), &heldTerm{}, &docList{numbers: make([]uint32, 100)}
	if h.isAskedAgain("often") || !h.isAskedAgain("often") {
		t.Error("the first question for a term counts, or the second does not")
	}
	h.put("often", often, documents)
	one := 0
	for n := range 5000 {
		term := fmt.Sprint("term", n)
		h.put(term, &heldTerm{texts: list}, documents)
		one = heldTermBytes + len(term) + list.size()
		if h.get("often", documents) != often {
			t.Fatalf("after %d terms, one that is asked for each time is gone", n)
		}
	}
	if h.get("term0", documents) != nil {
		t.Error("the first of thousands of terms is held")
	}
	if most := 2 * (heldBytes + heldDocumentBytes*documents + one) / list.size(); len(h.recent)+len(h.earlier) > most {
		t.Errorf("%d terms are held, want at most %d", len(h.recent)+len(h.earlier), most)
	}
}

// A segment keeps what a viewer reads for the next search, and for no more viewers than its bound.
func TestAudiences_ReadableBound(t *testing.T) {
	const documents, viewers = 70, 3 * maxReadable
	a := &audiences{of: make([]uint32, documents)}
	for doc := range a.of {
		a.of[doc] = uint32(doc % viewers)
	}
	for viewer := range viewers {
		reached := make([]byte, viewers)
		reached[viewer] = 1
		for range 2 {
			readable := a.readableFor(reached)
			for doc := range a.of {
				if got, want := readable[doc/64]>>(doc%64)&1 != 0, doc%viewers == viewer; got != want {
					t.Fatalf("viewer %d reads document %d: %t, want %t", viewer, doc, got, want)
				}
			}
		}
	}
	if n := len(a.readable); n == 0 || n > maxReadable {
		t.Errorf("what %d viewers read is kept, want 1 to %d", n, maxReadable)
	}
}
