package bleve

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
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
