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

// Expunge implements recallindex.Index: in each slot it rewrites the segments that hold deleted documents, each by itself, and waits
// until the files of before are removed. Bleve keeps a deleted document in its segment until a merge, and an old file until
// nobody reads it any more. Changes and searches go on meanwhile. A slot that nobody changed since the last time is left.
func (x *Index) Expunge(ctx context.Context) (int, error) {
	if err := x.enter(ctx); err != nil {
		return 0, err
	}
	defer x.leave()
	slots, _, err := x.slots()
	if err != nil {
		return 0, fmt.Errorf("list slots of the recall index: %w", err)
	}
	parts := 0
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for _, slot := range slots {
		x.mu.Lock()
		state := x.written[slot]
		x.mu.Unlock()
		if state.expunged && state.expungedAt == state.writes {
			continue
		}
		parts++
		group.Go(func() error {
			return panics.Call(ctx, x.options.Log, "expunging the recall index panicked", func() error {
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
			return nil // it was lost, and its files are gone
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
		return fmt.Errorf("expunge slot %s of the recall index: %w", slot, err)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	now := x.written[slot]
	now.expunged, now.expungedAt = true, writes
	x.written[slot] = now
	return nil
}

// writing is how often a slot was changed by this process, and how often it had been when it was last expunged.
type writing struct {
	writes, expungedAt uint64
	expunged           bool
}

// changed notes that a slot was changed, or may have been.
func (x *Index) changed(slot string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	w := x.written[slot]
	w.writes++
	x.written[slot] = w
}

const (
	// fillerID names a document without text. It is in no part, so nothing finds or counts it.
	fillerID = "-"
	// expungeTries is how often a rewrite is asked for; each takes up all that is there when it begins.
	expungeTries = 10
	// removalPause is how often the files are looked at.
	removalPause = 20 * time.Millisecond
)

func (x *Index) expunge(ctx context.Context, h *handle, folder string) (err error) {
	engine, err := h.engine()
	if err != nil {
		return err
	}
	held, err := engine.deleted()
	if err != nil {
		return err
	}
	doomed, err := engine.doomed(folder, held)
	if err != nil || len(doomed) == 0 {
		return err
	}
	defer func() { err = errors.Join(err, h.fill(false)) }()
	// A merge that was under way may bring a deleted document into a new segment. It is over when the first rewrite is.
	if err := h.rewrite(ctx, engine); err != nil {
		return err
	}
	if held, err = engine.deleted(); err != nil {
		return err
	}
	for try := 0; len(held) > 0; try++ {
		if try == expungeTries {
			return fmt.Errorf("%d segments keep their deleted documents", len(held))
		}
		if err := h.rewrite(ctx, engine); err != nil {
			return err
		}
		left, err := engine.deleted()
		if err != nil {
			return err
		}
		for id := range held {
			if !left[id] {
				delete(held, id)
			}
		}
	}
	return h.awaitRemoval(ctx, engine, folder, doomed)
}

// rewrite rewrites the segments that hold deleted documents when it begins.
func (h *handle) rewrite(ctx context.Context, e engine) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if e.alone() {
		// A plan for one segment is to leave it: it needs another one beside it.
		if err := h.fill(true); err != nil {
			return err
		}
	}
	return errors.Join(e.ForceMerge(ctx, rewriting()), ctx.Err())
}

// rewriting is a plan that merges each segment with deleted documents with nothing else, and leaves all others.
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

// awaitRemoval waits until files are removed. Bleve removes them when it writes its next snapshot, if no search reads them then: so
// it is made to write one now and then.
func (h *handle) awaitRemoval(ctx context.Context, e engine, folder string, doomed map[string]bool) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d files are still there: %w", len(doomed), ctx.Err())
		case <-timer.C:
		}
		used, err := e.files()
		if err != nil {
			return err
		}
		for name := range doomed {
			if used[name] { // it was being written when it was looked at, and holds what lives
				delete(doomed, name)
				continue
			}
			_, err := os.Stat(filepath.Join(folder, "store", name))
			if errors.Is(err, os.ErrNotExist) {
				delete(doomed, name)
			} else if err != nil {
				return err
			}
		}
		if len(doomed) == 0 {
			return nil
		}
		if err := h.fill(false); err != nil {
			return err
		}
		timer.Reset(removalPause)
	}
}

// fill adds or removes the document that fills a segment.
func (h *handle) fill(in bool) error {
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

// see shows the segments that are in use.
func (e engine) see(look func([]*scorch.SegmentSnapshot)) error {
	reader, err := e.Reader()
	if err != nil {
		return err
	}
	if snapshot, ok := reader.(*scorch.IndexSnapshot); ok {
		look(snapshot.Segments())
	}
	return reader.Close()
}

// deleted are the segments in use that hold deleted documents.
func (e engine) deleted() (map[uint64]bool, error) {
	held := make(map[uint64]bool)
	err := e.see(func(segments []*scorch.SegmentSnapshot) {
		for _, s := range segments {
			if s.LiveSize() < s.FullSize() {
				held[s.Id()] = true
			}
		}
	})
	return held, err
}

// alone reports whether there is but one segment on disk: those in memory are in no plan.
func (e engine) alone() bool {
	n := 0
	err := e.see(func(segments []*scorch.SegmentSnapshot) {
		for _, s := range segments {
			if _, ok := s.Segment().(segment.PersistedSegment); ok {
				n++
			}
		}
	})
	return err == nil && n <= 1
}

// doomed are the files that hold deleted documents: those of some segments, and whatever is in use no more.
func (e engine) doomed(folder string, held map[uint64]bool) (map[string]bool, error) {
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
	doomed := make(map[string]bool)
	for _, entry := range entries {
		if name := entry.Name(); filepath.Ext(name) == ".zap" && !used[name] {
			doomed[name] = true
		}
	}
	return doomed, nil
}

// files are those of the segments in use.
func (e engine) files() (map[string]bool, error) {
	used := make(map[string]bool)
	err := e.see(func(segments []*scorch.SegmentSnapshot) {
		for _, s := range segments {
			used[file(s.Id())] = true
		}
	})
	return used, err
}

// file is the name that Bleve gives the file of a segment.
func file(segment uint64) string { return fmt.Sprintf("%012x.zap", segment) }
