package recallindex

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/projections"
)

// Rebuildable is an Index that can be rebuilt in a shadow while the current generation is in use. A
// shadow outlives its process: the rebuild that is continued applies its last page again, which changes
// nothing.
type Rebuildable interface {
	Index
	// NewShadow begins an empty generation and returns an Index of it. It removes what an earlier call
	// began.
	NewShadow(ctx context.Context) (Index, error)
	// ResumeShadow closes the Index that NewShadow returned, and opens its generation again. ok is false
	// if this process has no such generation, or that lost documents.
	ResumeShadow(ctx context.Context, generation string) (next Index, ok bool, err error)
	// Promote puts the generation that NewShadow began into use, durably once it returns, and removes
	// the one before; running calls finish on that. ok is false if this process has no such
	// generation. It closes the Index that NewShadow returned.
	Promote(ctx context.Context, generation string) (ok bool, err error)
	// Discard removes a generation that NewShadow began and that was not promoted.
	Discard(ctx context.Context) error
}

// Shared is an Index that several processes use.
type Shared interface {
	Rebuildable
	// Publish makes a new generation answer searches: until then they return ErrIncomplete.
	Publish(ctx context.Context) error
	// Check looks whether the generation exists, and begins a new one if not.
	Check(ctx context.Context) error
}

var (
	_ projections.Shared     = (*Projector)(nil)
	_ projections.Bounded    = (*Projector)(nil)
	_ projections.Continuing = (*Projector)(nil)
)

// errNoShadow reports an index that has only one generation.
var errNoShadow = errors.New("the index cannot be rebuilt in a shadow")

// Shadow implements projections.External.
func (p *Projector) Shadow(ctx context.Context, resume string) (_ projections.Projector, resumed bool, err error) {
	index, ok := p.index.(Rebuildable)
	if !ok {
		return nil, false, errNoShadow
	}
	var next Index
	if resume != "" {
		if next, resumed, err = index.ResumeShadow(ctx, resume); err != nil {
			return nil, false, err
		}
	}
	if !resumed {
		if next, err = index.NewShadow(ctx); err != nil {
			return nil, false, err
		}
	}
	shadow := *p
	shadow.index = next
	return &shadow, resumed, nil
}

// Verify implements projections.External: the index holds as many documents as the rows say.
func (p *Projector) Verify(ctx context.Context, tx pgx.Tx) error {
	var written int
	err := tx.QueryRow(ctx, `select coalesce(sum(passages + memories), 0) from data_points`).Scan(&written)
	if err != nil {
		return fmt.Errorf("count the documents that were written: %w", err)
	}
	return VerifyTotal(ctx, p.index, written)
}

// VerifyTotal returns projections.ErrTarget if an index does not hold as many documents as were
// written.
func VerifyTotal(ctx context.Context, x Index, written int) error {
	total, err := x.Total(ctx)
	if err != nil {
		return fmt.Errorf("count the documents of the index: %w", err)
	}
	if total != written {
		return fmt.Errorf("%w: %s has %d documents, and %d were written",
			projections.ErrTarget, x.Generation(), total, written)
	}
	return nil
}

// Close implements projections.External.
func (p *Projector) Close() error { return p.index.Close() }

// Promote implements projections.External.
func (p *Projector) Promote(ctx context.Context, target string) (bool, error) {
	index, ok := p.index.(Rebuildable)
	if !ok {
		return false, nil
	}
	return index.Promote(ctx, target)
}

// Discard implements projections.External.
func (p *Projector) Discard(ctx context.Context) error {
	index, ok := p.index.(Rebuildable)
	if !ok {
		return nil
	}
	return index.Discard(ctx)
}

// SharesTarget implements projections.Shared.
func (p *Projector) SharesTarget() bool {
	_, is := p.index.(Shared)
	return is
}

// Purge implements projections.External.
func (p *Projector) Purge(ctx context.Context) error {
	_, err := p.index.Purge(ctx)
	return err
}
