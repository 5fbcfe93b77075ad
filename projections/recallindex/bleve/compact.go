package bleve

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/blevesearch/bleve/v2/index/scorch"
	"github.com/blevesearch/bleve/v2/index/scorch/mergeplan"

	"github.com/annals-project/annals/internal/panics"
)

// A search looks up each term in each segment, and most of a search is that. The merges that writes cause leave many
// segments, since each merge delays the writes. So the segments of a slot are merged to few once nothing writes it.

// quietFor is how long a slot was not written before its segments are merged. Tests of other things set it.
var quietFor = 500 * time.Millisecond

// quietSegments is up to how many segments are left as they are: a write now and then must not merge each time.
const quietSegments = 4

// compaction runs the merges of quiet slots, one at a time.
type compaction struct {
	turn sync.Mutex

	mu sync.Mutex
	// timers are of the slots that were written.
	timers map[string]*time.Timer
	// cancel ends the merge that runs, nil for none. No merge begins while stops is more than 0.
	cancel context.CancelFunc
	stops  int
}

// compactLater merges the segments of a slot once it is quiet.
func (x *Index) compactLater(slot string) {
	c := &x.compaction
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.timers[slot]; t != nil {
		t.Reset(x.options.QuietFor)
		return
	}
	if c.timers == nil {
		c.timers = make(map[string]*time.Timer)
	}
	c.timers[slot] = time.AfterFunc(x.options.QuietFor, func() { x.compact(slot) })
}

// compact merges the segments of a slot. It logs a failure: the slot answers as before.
func (x *Index) compact(slot string) {
	c := &x.compaction
	c.turn.Lock()
	defer c.turn.Unlock()
	ctx, end, begun := c.begin(slot)
	if !begun {
		return
	}
	defer end()
	err := panics.Call(ctx, x.options.Log, "compaction of recall index panicked", func() error {
		if err := x.beginCall(ctx); err != nil {
			return err
		}
		defer x.endCall()
		return x.with(slot, false, func(h *handle) error { return h.compact(ctx) })
	}, "slot", slot)
	if err != nil && ctx.Err() == nil {
		x.options.Log.Warn("segments of recall index were not merged", "slot", slot, "err", err)
	}
}

// begin begins a merge, unless merges are stopped.
func (c *compaction) begin(slot string) (_ context.Context, end func(), begun bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.timers, slot)
	if c.stops > 0 {
		return nil, nil, false
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	return ctx, func() {
		cancel()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.cancel = nil
	}, true
}

// stop ends the merge that runs, if any, and lets none begin until resume.
func (c *compaction) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stops++
	if c.cancel != nil {
		c.cancel()
	}
}

func (c *compaction) resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stops--
}

// close stops merges for good.
func (c *compaction) close() {
	c.stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	for slot, t := range c.timers {
		t.Stop()
		delete(c.timers, slot)
	}
}

// lockCalls waits until no call runs, and lets none begin until unlock is called. It ends a compaction: that is a call.
func (x *Index) lockCalls() (unlock func()) {
	x.compaction.stop()
	x.calls.Lock()
	return func() {
		x.calls.Unlock()
		x.compaction.resume()
	}
}

// compact merges the segments of the slot if they are many.
func (h *handle) compact(ctx context.Context) error {
	if h.index == nil {
		return nil
	}
	h.expunging.Lock()
	defer h.expunging.Unlock()
	engine, err := h.engine()
	if err != nil {
		return err
	}
	segments := 0
	err = engine.withSegments(func(list []*scorch.SegmentSnapshot) { segments = len(list) })
	if err != nil || segments <= quietSegments {
		return err
	}
	return errors.Join(h.merge(ctx, engine, compacting()), ctx.Err())
}

// merge merges segments by a plan. It also returns if the goroutine that should merge them ends.
func (h *handle) merge(ctx context.Context, e engine, plan *mergeplan.MergePlanOptions) error {
	done := make(chan error, 1)
	go func() {
		defer func() {
			if v := recover(); v != nil {
				done <- errStopped
			}
		}()
		done <- e.ForceMerge(ctx, plan)
	}()
	select {
	case err := <-done:
		return err
	case <-h.watch.stop:
		return errStopped
	}
}

// compacting is a plan for few segments, each about ten times as large as the next, so that a document is merged a few
// times however often the slot is quiet.
func compacting() *mergeplan.MergePlanOptions {
	return &mergeplan.MergePlanOptions{
		MaxSegmentsPerTier: 2, MaxSegmentSize: maxSegmentSize, MaxSegmentFileSize: math.MaxInt64, TierGrowth: 10,
		SegmentsPerMergeTask: 10, FloorSegmentSize: 5000, ReclaimDeletesWeight: 2,
	}
}
