package bleve

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/blevesearch/bleve/v2/document"
	"github.com/blevesearch/bleve/v2/index/scorch"
	"github.com/blevesearch/bleve/v2/index/scorch/mergeplan"
	segment "github.com/blevesearch/scorch_segment_api/v2"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/projections/recallindex"
)

// Purge implements recallindex.Index. In each slot it rewrites the segments with deleted documents,
// each by itself, and waits until the old files are removed. Bleve keeps a deleted document in its
// segment until a merge, and an old file until no search reads it. Changes and searches go on
// meanwhile. A slot without changes since the last purge is skipped.
func (x *Index) Purge(ctx context.Context) (int, error) {
	if err := x.beginCall(ctx); err != nil {
		return 0, err
	}
	defer x.endCall()
	slots, _, err := x.slots()
	if err != nil {
		return 0, fmt.Errorf("list slots of recall index: %w", err)
	}
	parts := 0
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelSlots)
	for _, slot := range slots {
		x.mu.Lock()
		state := x.writes[slot]
		x.mu.Unlock()
		if state.expunged && state.expungedAt == state.writes {
			continue
		}
		parts++
		group.Go(func() error {
			return panics.Call(ctx, x.options.Log, "recall index expunge panicked", func() error {
				return x.expungeSlot(ctx, slot, state.writes)
			}, "slot", slot)
		})
	}
	return parts, group.Wait()
}

// expungeSlot expunges a slot as it was after so many writes.
func (x *Index) expungeSlot(ctx context.Context, slot string, writes uint64) error {
	err := x.with(slot, false, func(h *handle) error {
		if h.index == nil {
			return nil // it was lost, and its files are removed
		}
		h.expunging.Lock()
		defer h.expunging.Unlock()
		if err := x.expunge(ctx, h, x.path(slot)); err != nil {
			return err
		}
		h.write.Lock()
		defer h.write.Unlock()
		return h.columns.moves.compact()
	})
	if err != nil && !errors.Is(err, recallindex.ErrIncomplete) {
		return fmt.Errorf("expunge slot %s of recall index: %w", slot, err)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	now := x.writes[slot]
	now.expunged, now.expungedAt = true, writes
	x.writes[slot] = now
	return nil
}

// writeCount is how often this process changed a slot, and how often it had when it last expunged
// it.
type writeCount struct {
	writes, expungedAt uint64
	expunged           bool
}

// countWrite counts a change of a slot, or an attempt.
func (x *Index) countWrite(slot string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	w := x.writes[slot]
	w.writes++
	x.writes[slot] = w
	x.compactLater(slot)
}

const (
	// fillerID names a document without text. It is in no part, so no search finds or counts it.
	fillerID = "-"
	// expungeTries is the most rewrites; each takes the segments that exist when it begins.
	expungeTries = 10
	// removalPoll is how often the files are polled.
	removalPoll = 20 * time.Millisecond
)

func (x *Index) expunge(ctx context.Context, h *handle, folder string) (err error) {
	engine, err := h.engine()
	if err != nil {
		return err
	}
	held, err := engine.withDeleted()
	if err != nil {
		return err
	}
	obsolete, err := engine.obsoleteFiles(folder, held)
	if err != nil || len(obsolete) == 0 {
		return err
	}
	defer func() { err = errors.Join(err, h.putFiller(false)) }()
	// A running merge may copy a deleted document into a new segment. It has ended when the first
	// rewrite has.
	if err := h.rewrite(ctx, engine); err != nil {
		return err
	}
	if held, err = engine.withDeleted(); err != nil {
		return err
	}
	for try := 0; len(held) > 0; try++ {
		if try == expungeTries {
			return fmt.Errorf("%d segments keep their deleted documents", len(held))
		}
		if err := h.rewrite(ctx, engine); err != nil {
			return err
		}
		left, err := engine.withDeleted()
		if err != nil {
			return err
		}
		for id := range held {
			if !left[id] {
				delete(held, id)
			}
		}
	}
	return h.awaitRemoval(ctx, engine, folder, obsolete)
}

// rewrite rewrites the segments that hold deleted documents when it begins.
func (h *handle) rewrite(ctx context.Context, e engine) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if e.hasOneSegment() {
		// A plan for one segment is to keep it, so add a second one.
		if err := h.putFiller(true); err != nil {
			return err
		}
	}
	return errors.Join(h.merge(ctx, e, rewriting()), ctx.Err())
}

// rewriting is a plan that rewrites each segment with deleted documents by itself, and keeps all
// others.
func rewriting() *mergeplan.MergePlanOptions {
	return &mergeplan.MergePlanOptions{
		MaxSegmentsPerTier: 1, MaxSegmentSize: mergeplan.MaxSegmentSizeLimit, MaxSegmentFileSize: math.MaxInt64,
		TierGrowth: 1, SegmentsPerMergeTask: 1, FloorSegmentSize: 1,
		CalcBudget: func(int64, int64, *mergeplan.MergePlanOptions) int { return 0 },
		ScoreSegments: func(segments []mergeplan.Segment, _ *mergeplan.MergePlanOptions) float64 {
			return float64(segments[0].LiveSize()) / float64(max(segments[0].FullSize(), 1))
		},
	}
}

// awaitRemoval waits until files are removed. Bleve removes a file when it writes its next
// snapshot, unless a search reads it: small writes make it write snapshots.
func (h *handle) awaitRemoval(ctx context.Context, e engine, folder string, obsolete map[string]bool) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d files are still there: %w", len(obsolete), ctx.Err())
		case <-timer.C:
		}
		used, err := e.files()
		if err != nil {
			return err
		}
		for name := range obsolete {
			if used[name] { // it was being written, and holds live documents
				delete(obsolete, name)
				continue
			}
			_, err := os.Stat(filepath.Join(folder, "store", name))
			if errors.Is(err, os.ErrNotExist) {
				delete(obsolete, name)
			} else if err != nil {
				return err
			}
		}
		if len(obsolete) == 0 {
			return nil
		}
		if err := h.putFiller(false); err != nil {
			return err
		}
		timer.Reset(removalPoll)
	}
}

// putFiller adds or removes the filler document.
func (h *handle) putFiller(in bool) error {
	batch := h.index.NewBatch()
	if in {
		doc := document.NewDocument(fillerID)
		doc.AddField(&terms{name: audienceField, terms: []string{uuid.Nil.String()}, options: distinctTerms})
		if err := batch.IndexAdvanced(doc); err != nil {
			return err
		}
	} else {
		batch.Delete(fillerID)
	}
	return h.batch(batch)
}

// engine is the storage of a slot.
type engine struct{ *scorch.Scorch }

func (h *handle) engine() (engine, error) {
	advanced, err := h.index.Advanced()
	if err != nil {
		return engine{}, err
	}
	s, ok := advanced.(*scorch.Scorch)
	if !ok {
		return engine{}, fmt.Errorf("the index is of another kind: %T", advanced)
	}
	return engine{s}, nil
}

// withSegments calls look with the current segments.
func (e engine) withSegments(look func([]*scorch.SegmentSnapshot)) error {
	reader, err := e.Reader()
	if err != nil {
		return err
	}
	if snapshot, ok := reader.(*scorch.IndexSnapshot); ok {
		look(snapshot.Segments())
	}
	return reader.Close()
}

// withDeleted returns the current segments that hold deleted documents.
func (e engine) withDeleted() (map[uint64]bool, error) {
	held := make(map[uint64]bool)
	err := e.withSegments(func(segments []*scorch.SegmentSnapshot) {
		for _, s := range segments {
			if s.LiveSize() < s.FullSize() {
				held[s.Id()] = true
			}
		}
	})
	return held, err
}

// hasOneSegment reports whether at most one segment is on disk: those in memory are in no plan.
func (e engine) hasOneSegment() bool {
	n := 0
	err := e.withSegments(func(segments []*scorch.SegmentSnapshot) {
		for _, s := range segments {
			if _, ok := s.Segment().(segment.PersistedSegment); ok {
				n++
			}
		}
	})
	return err == nil && n <= 1
}

// obsoleteFiles returns the files that hold deleted documents: those of the segments in held, and
// those that are not in use.
func (e engine) obsoleteFiles(folder string, held map[uint64]bool) (map[string]bool, error) {
	entries, err := os.ReadDir(filepath.Join(folder, "store"))
	if err != nil {
		return nil, err
	}
	used, err := e.files()
	if err != nil {
		return nil, err
	}
	for id := range held {
		delete(used, file(id))
	}
	obsolete := make(map[string]bool)
	for _, entry := range entries {
		if name := entry.Name(); filepath.Ext(name) == ".zap" && !used[name] {
			obsolete[name] = true
		}
	}
	return obsolete, nil
}

// files returns the files of the current segments.
func (e engine) files() (map[string]bool, error) {
	used := make(map[string]bool)
	err := e.withSegments(func(segments []*scorch.SegmentSnapshot) {
		for _, s := range segments {
			used[file(s.Id())] = true
		}
	})
	return used, err
}

// file returns the name that Bleve gives the file of a segment.
func file(segment uint64) string { return fmt.Sprintf("%012x.zap", segment) }

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
