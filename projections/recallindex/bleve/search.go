package bleve

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"runtime"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/blevesearch/bleve/v2/index/scorch"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/projections/recallindex"
)

// Search implements recallindex.Index. It searches the parts at once. It scores with the function that ranks, so
// that what it cuts off would rank below what it keeps.
func (x *Index) Search(ctx context.Context, q recallindex.Query) (found recallindex.Found, err error) {
	if err := x.beginCall(ctx); err != nil {
		return found, err
	}
	defer x.endCall()
	if x.used().analysis != q.Analysis {
		return found, recallindex.ErrOtherAnalysis
	}
	if err := x.checkComplete(q.Project); err != nil {
		return found, err
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, part := range q.Parts() {
		group.Go(func() error {
			return panics.Call(ctx, x.options.Log, "search of recall index panicked", func() (err error) {
				*found.Of(part.Part), err = x.searchPart(ctx, part)
				return err
			}, "part", part.Part)
		})
	}
	if err := group.Wait(); err != nil {
		return recallindex.Found{}, fmt.Errorf("search recall index: %w", err)
	}
	return found, nil
}

func (x *Index) searchPart(ctx context.Context, q recallindex.PartQuery) (recallindex.Result, error) {
	s := &search{query: q}
	s.found.Statistics.Frequencies = make([]recall.Count, len(q.Terms))
	if len(q.Terms) == 0 {
		return s.found, nil
	}
	err := x.searchIn(ctx, s, x.partitions(q.Project), s.run)
	return s.found, err
}

// partitions returns where documents of a project are.
func (x *Index) partitions(project uuid.UUID) []partition {
	if x.hasOwn(project) {
		return []partition{shared(project), own(project)}
	}
	return []partition{shared(project)}
}

// searchIn opens the partitions one after the other, and calls run with all of them open.
func (x *Index) searchIn(ctx context.Context, s *search, places []partition, run func(context.Context) error) error {
	s.activity, s.recoverPanics = &x.activity, x.recoverPanics
	if len(places) == 0 {
		return run(ctx)
	}
	at := places[0]
	return x.with(at.slot, false, func(h *handle) error {
		if h.index == nil {
			return x.searchIn(ctx, s, places[1:], run)
		}
		return h.withSegments(func(segments []*scorch.SegmentSnapshot) error {
			s.add(at, h, segments)
			return x.searchIn(ctx, s, places[1:], run)
		})
	})
}

// search runs one query on one snapshot of each partition.
type search struct {
	query recallindex.PartQuery
	// activity counts what runs on the index, recoverPanics is for another goroutine.
	activity      *activity
	recoverPanics func(func() error) error
	segments      []*searchedSegment
	// documents are those of the segments.
	documents uint64
	languages languages
	found     recallindex.Result
}

// searchedSegment is one segment with the terms and lists of the query.
type searchedSegment struct {
	*scorch.SegmentSnapshot
	at partition
	// terms and languages are those of the query in the partition.
	terms, languages []string
	columns          *columns
	column           *column
	deleted          *deletions
	// base is the number of its first document in the snapshot.
	base  uint64
	lists []list
	// What scores the documents reads these.
	filter  segmentFilter
	orders  []uint64
	lengths *lengths
}

// list is the documents of a term in a field of a segment.
type list struct {
	*heldTerm
	docs  *docList
	term  int
	label bool
}

// add adds the segments of a partition.
func (s *search) add(at partition, h *handle, segments []*scorch.SegmentSnapshot) {
	if s.languages.of == nil {
		s.languages = languagesOf(s.query.Terms)
	}
	terms, prefixes := make([]string, len(s.query.Terms)), make([]string, len(s.languages.markers))
	for i, t := range s.query.Terms {
		terms[i] = at.prefix + t.Text
	}
	for i, marker := range s.languages.markers {
		prefixes[i] = at.prefix + marker
	}
	for i, column := range h.columns.of(segments) {
		s.segments = append(s.segments, &searchedSegment{
			SegmentSnapshot: segments[i], at: at, terms: terms, languages: prefixes, columns: &h.columns, column: column,
			deleted: column.deletionsOf(segments[i]), base: s.documents,
		})
		s.documents += segments[i].Segment().Count()
	}
}

func (s *search) run(ctx context.Context) error {
	s.found.Statistics.Frequencies = make([]recall.Count, len(s.query.Terms))
	if err := s.open(); err != nil || s.found.Statistics.Docs == 0 {
		return err
	}
	if err := s.prepare(); err != nil {
		return err
	}
	best, err := s.walk(ctx, s.found.Statistics.Weights(s.query.Terms).Shared(s.query.Terms))
	if err != nil {
		return err
	}
	defer best.release()
	return s.makeHits(best.candidates)
}

// prepare reads the columns of the segments. One without documents that pass the filter loses its lists.
func (s *search) prepare() (err error) {
	filter := newFilter(s.query.Audiences, s.query.From, s.query.To)
	for _, in := range s.segments {
		if len(in.lists) == 0 {
			continue
		}
		some := false
		if in.filter, some, err = filter.of(in); err != nil {
			return err
		}
		if !some {
			in.lists = nil
			continue
		}
		if in.orders, err = in.column.ordersOf(in.Segment()); err != nil {
			return err
		}
		if in.lengths, err = in.column.lengthsOf(in.Segment()); err != nil {
			return err
		}
	}
	return nil
}

// open opens the lists of all terms, and counts them.
func (s *search) open() error {
	frequencies := s.found.Statistics.Frequencies
	for _, in := range s.segments {
		reader := s.newReader(in, s.query.Part)
		docs, err := reader.ofPart()
		if err != nil {
			return err
		}
		n := docs.liveIn(in.deleted)
		if n == 0 {
			continue
		}
		s.found.Statistics.Docs += n
		terms, err := reader.terms(in.terms, in.languages, s.languages)
		if err != nil {
			return err
		}
		for i, t := range terms {
			if t == nil {
				continue
			}
			if n := t.texts.liveIn(in.deleted); n > 0 {
				frequencies[i].Text += n
				in.lists = append(in.lists, list{heldTerm: t, docs: t.texts, term: i})
			}
			if n := t.labels.liveIn(in.deleted); n > 0 {
				frequencies[i].Label += n
				in.lists = append(in.lists, list{heldTerm: t, docs: t.labels, term: i, label: true})
			}
		}
	}
	return nil
}

// span is some neighbouring documents of a segment. It begins at a multiple of the size of a window.
type span struct {
	in       *searchedSegment
	from, to uint64
}

const (
	// spanSize is the most documents of a span that several goroutines may take.
	spanSize = 8 * windowSize
	// sharedFrom is from how many places in lists on a second goroutine takes spans: smaller searches end within two
	// milliseconds, and each goroutine has to find a bound.
	sharedFrom = 250_000
)

// spans divides the segments of a query. work is how many places their lists have.
func (s *search) spans() (all []span, work int) {
	for _, in := range s.segments {
		if len(in.lists) == 0 {
			continue
		}
		for _, l := range in.lists {
			work += l.docs.count
		}
		documents := in.Segment().Count()
		size := cmp.Or(s.activity.spanSize, spanSize)
		for from := uint64(0); from < documents; from += size {
			all = append(all, span{in, from, min(from+size, documents)})
		}
	}
	return all, work
}

// walk scores the documents of all segments, and returns the best. If there are many, and a processor is free, a second
// goroutine takes its part of the spans. The result is the same. The caller
// releases it.
func (s *search) walk(ctx context.Context, weights recall.Weights) (*topK, error) {
	spans, work := s.spans()
	taken, best := new(atomic.Int64), newTopK(s.query.Size)
	s.activity.running.Add(1)
	defer s.activity.end()
	if work < cmp.Or(s.activity.sharedFrom, sharedFrom) || len(spans) < 2 || !s.activity.begin() {
		return best, s.take(ctx, spans, taken, s.newWalk(weights, best, nil))
	}
	defer s.activity.end()
	shared, other := new(sharedBound), newTopK(s.query.Size)
	defer other.release()
	shared.bits.Store(math.Float64bits(math.Inf(-1)))
	group, ctx := errgroup.WithContext(ctx)
	for _, top := range []*topK{best, other} {
		group.Go(func() error {
			return s.recoverPanics(func() error { return s.take(ctx, spans, taken, s.newWalk(weights, top, shared)) })
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for _, c := range other.candidates {
		if c.score >= best.bound() {
			best.add(c)
		}
	}
	return best, nil
}

func (s *search) newWalk(weights recall.Weights, top *topK, shared *sharedBound) *maxScore {
	return &maxScore{weights: weights, top: top, shared: shared, counts: make([]recall.Count, len(s.query.Terms))}
}

// take scores the spans that nobody took yet, one after the other.
func (s *search) take(ctx context.Context, spans []span, taken *atomic.Int64, walk *maxScore) error {
	walk.window, _ = windowPool.Get().(*window)
	defer windowPool.Put(walk.window)
	for {
		n := int(taken.Add(1)) - 1
		if n >= len(spans) {
			return nil
		}
		if err := walk.run(ctx, spans[n]); err != nil {
			return err
		}
	}
}

// sharedBound is the highest of the worst scores of some best. A document below it is not among the best of all.
type sharedBound struct{ bits atomic.Uint64 }

// bound returns it.
func (b *sharedBound) bound() float64 {
	if b == nil {
		return math.Inf(-1)
	}
	return math.Float64frombits(b.bits.Load())
}

// raise raises it to a score.
func (b *sharedBound) raise(score float64) {
	if b == nil {
		return
	}
	for {
		now := b.bits.Load()
		if score <= math.Float64frombits(now) || b.bits.CompareAndSwap(now, math.Float64bits(score)) {
			return
		}
	}
}

// activity counts the goroutines that search.
type activity struct {
	running atomic.Int64
	// sharedFrom and spanSize replace the constants unless they are zero.
	sharedFrom int
	spanSize   uint64
}

// begin counts one more if a processor is free; then the caller must call end.
func (a *activity) begin() bool {
	if a.running.Add(1) > int64(runtime.GOMAXPROCS(0)) {
		a.running.Add(-1)
		return false
	}
	return true
}

func (a *activity) end() { a.running.Add(-1) }

// candidate is a document that may be among the best. id is its number in the snapshot.
type candidate struct {
	id     uint64
	score  float64
	order  uint64
	counts []recall.Count
	length int
}

// topK keeps the candidates with the highest scores; of equal ones the first by order, then in the index.
// It is a heap with the worst on top.
type topK struct {
	size       int
	candidates []candidate
	// counts is the memory for the counts of the candidates.
	counts []recall.Count
}

// topKPool keeps the memory of the best for later searches.
var topKPool = sync.Pool{New: func() any { return new(topK) }}

// pooledCounts is the most counts that the memory of one may hold in the pool: a wide search gives its own up.
const pooledCounts = 1 << 16

// newTopK returns an empty one of a size. Its user releases it.
func newTopK(size int) *topK {
	b, _ := topKPool.Get().(*topK)
	b.size, b.candidates, b.counts = size, b.candidates[:0], b.counts[:0]
	return b
}

// release gives the memory back. No candidate may be used after it.
func (b *topK) release() {
	if cap(b.counts) <= pooledCounts {
		topKPool.Put(b)
	}
}

func (a *candidate) worse(b *candidate) bool {
	if a.score != b.score {
		return a.score < b.score
	}
	if a.order != b.order {
		return a.order > b.order
	}
	return a.id > b.id
}

// bound is the score that a later document must reach.
func (b *topK) bound() float64 {
	switch {
	case b.size <= 0:
		return math.Inf(1)
	case len(b.candidates) < b.size:
		return math.Inf(-1)
	default:
		return b.candidates[0].score
	}
}

// add adds a document whose score reaches the bound, if it is better than the worst. It copies the counts. full
// reports that the bound may be higher now.
func (b *topK) add(c candidate) (full bool) {
	if b.size <= 0 {
		return false
	}
	if len(b.candidates) < b.size {
		first := len(b.counts)
		b.counts = append(b.counts, c.counts...)
		c.counts = b.counts[first:]
		b.candidates = append(b.candidates, c)
		b.up(len(b.candidates) - 1)
		return len(b.candidates) == b.size
	}
	worst := &b.candidates[0]
	if !worst.worse(&c) {
		return false
	}
	copy(worst.counts, c.counts)
	c.counts = worst.counts
	*worst = c
	b.down()
	return true
}

func (b *topK) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !b.candidates[i].worse(&b.candidates[parent]) {
			return
		}
		b.candidates[i], b.candidates[parent] = b.candidates[parent], b.candidates[i]
		i = parent
	}
}

func (b *topK) down() {
	for i := 0; ; {
		least := i
		for _, child := range [2]int{2*i + 1, 2*i + 2} {
			if child < len(b.candidates) && b.candidates[child].worse(&b.candidates[least]) {
				least = child
			}
		}
		if least == i {
			return
		}
		b.candidates[i], b.candidates[least] = b.candidates[least], b.candidates[i]
		i = least
	}
}

// makeHits makes hits of the candidates, with copies of their counts.
func (s *search) makeHits(candidates []candidate) error {
	s.found.Hits = make([]recallindex.Hit, len(candidates))
	counts := make([]recall.Count, 0, len(candidates)*len(s.query.Terms))
	for n, c := range candidates {
		i := sort.Search(len(s.segments), func(i int) bool { return s.segments[i].base > c.id }) - 1
		in := s.segments[i]
		segment, doc, hit := in.Segment(), c.id-in.base, &s.found.Hits[n]
		first := len(counts)
		counts = append(counts, c.counts...)
		hit.Counts, hit.Length = counts[first:len(counts):len(counts)], c.length
		id, err := segment.DocID(doc)
		if err != nil {
			return err
		}
		if hit.Key, err = in.at.key(id); err != nil {
			return err
		}
		traits, err := in.column.traitsOf(segment)
		if err != nil {
			return err
		}
		hit.Traits = traits[doc]
	}
	return nil
}
