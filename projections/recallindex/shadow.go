package recallindex

import (
	"context"
	"errors"

	"github.com/annals-project/annals/projections"
)

// Rebuildable is an Index that can be rebuilt in a shadow while the current generation is in use.
//
// A rebuild that was interrupted begins again, unlike those of tables: rows of a shadow are as they were
// at its checkpoint, but what a shadow index holds is not known without a look at every document, and
// text that was deleted since would stay in it until the rebuild is continued. Before the switch-over the
// rows are counted, and not the documents: how many passages a data point has is known only from its
// text, which may be erased by then.
type Rebuildable interface {
	Index
	// NewShadow begins an empty generation and returns an Index of it. It removes what an earlier call
	// began.
	NewShadow(ctx context.Context) (Index, error)
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
	_ projections.Shared  = (*Projector)(nil)
	_ projections.Bounded = (*Projector)(nil)
)

// errNoShadow reports an index that has only one generation.
var errNoShadow = errors.New("the index cannot be rebuilt in a shadow")

// Shadow implements projections.External.
func (p *Projector) Shadow(ctx context.Context) (projections.Projector, error) {
	index, ok := p.index.(Rebuildable)
	if !ok {
		return nil, errNoShadow
	}
	next, err := index.NewShadow(ctx)
	if err != nil {
		return nil, err
	}
	shadow := *p
	shadow.index = next
	return &shadow, nil
}

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
