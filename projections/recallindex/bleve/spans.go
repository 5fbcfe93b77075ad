package bleve

import (
	"cmp"
	"context"
	"math"
	"runtime"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/annals-project/annals/domain/recall"
)

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
