package bleve

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/annals-project/annals/projections/recallindex"
)

// Apply implements recallindex.Index.
func (x *Index) Apply(ctx context.Context, project uuid.UUID, change recallindex.Change) error {
	if err := x.enter(ctx); err != nil {
		return err
	}
	defer x.leave()
	if len(change.Upserts) == 0 && len(change.Deletes) == 0 {
		return nil
	}
	x.mu.Lock()
	damaged := x.damaged
	x.mu.Unlock()
	if damaged != nil {
		return damaged
	}
	// Deletes alone make no project: where there is none, there is nothing to delete.
	return x.with(project, len(change.Upserts) > 0, func(h *handle) error {
		if h.index == nil {
			return nil
		}
		h.write.Lock()
		defer h.write.Unlock()
		return x.apply(ctx, h, change)
	})
}

// apply writes in batches. A key that is deleted and upserted is replaced; each batch is on disk when Batch returns.
func (x *Index) apply(ctx context.Context, h *handle, change recallindex.Change) error {
	batch, terms := h.index.NewBatch(), 0
	flush := func(least int) error {
		if batch.Size() < least && terms < batchTerms {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := h.index.Batch(batch); err != nil {
			return fmt.Errorf("write recall index: %w", err)
		}
		// Bleve may still look at the old one.
		batch, terms = h.index.NewBatch(), 0
		return nil
	}
	for _, k := range change.Deletes {
		batch.Delete(identifier(k))
		if err := flush(x.options.Batch); err != nil {
			return err
		}
	}
	for _, d := range change.Upserts {
		if err := batch.IndexAdvanced(newDocument(d)); err != nil {
			return fmt.Errorf("write recall index: %w", err)
		}
		terms += len(d.Terms.Text) + len(d.Terms.Label)
		if err := flush(x.options.Batch); err != nil {
			return err
		}
	}
	return flush(1)
}

// batchTerms is the most terms that are written at once, give or take one document: some 50 MiB of memory.
const batchTerms = 200_000

// Count implements recallindex.Index.
func (x *Index) Count(ctx context.Context, project uuid.UUID) (int, error) {
	if err := x.enter(ctx); err != nil {
		return 0, err
	}
	defer x.leave()
	var n uint64
	err := x.with(project, false, func(h *handle) error {
		if h.index == nil {
			return nil
		}
		var err error
		if n, err = h.index.DocCount(); err != nil || n == 0 {
			return err
		}
		filler, err := h.index.Document(fillerID)
		if filler != nil {
			n--
		}
		return err
	})
	return int(n), err
}
