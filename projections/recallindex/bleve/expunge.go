package bleve

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/blevesearch/bleve/v2/document"
	"github.com/blevesearch/bleve/v2/index/scorch"
	"github.com/blevesearch/bleve/v2/index/scorch/mergeplan"
	segment "github.com/blevesearch/scorch_segment_api/v2"
	"github.com/google/uuid"
)

// Expunge implements recallindex.Index: it rewrites the segments that hold deleted documents, each by itself, and waits until
// the files of before are removed. Bleve keeps a deleted document in its segment until a merge, and an old file until nobody
// reads it any more. Changes and searches go on meanwhile.
func (x *Index) Expunge(ctx context.Context, project uuid.UUID) error {
	if err := x.enter(ctx); err != nil {
		return err
	}
	defer x.leave()
	err := x.with(project, false, func(h *handle) error {
		if h.index == nil {
			return nil
		}
		h.expunging.Lock()
		defer h.expunging.Unlock()
		return x.expunge(ctx, h, x.path(project))
	})
	if err != nil {
		return fmt.Errorf("expunge recall index of project %s: %w", project, err)
	}
	return nil
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
	return h.index.Batch(batch)
}

// engine is the storage of a project's index.
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

// Projects implements recallindex.Index.
func (x *Index) Projects(ctx context.Context) ([]uuid.UUID, error) {
	if err := x.enter(ctx); err != nil {
		return nil, err
	}
	defer x.leave()
	entries, err := os.ReadDir(filepath.Dir(x.path(uuid.Nil)))
	if err != nil {
		return nil, fmt.Errorf("list recall indexes: %w", err)
	}
	var projects []uuid.UUID
	for _, entry := range entries {
		name, known := strings.CutSuffix(entry.Name(), knownSuffix)
		if !known {
			continue
		}
		id, err := uuid.Parse(name)
		if err != nil {
			return nil, fmt.Errorf("list recall indexes: %s: %w", name, err)
		}
		projects = append(projects, id)
	}
	return projects, nil
}
