package recallindex

import (
	"context"
	"errors"

	"github.com/annals-project/annals/projections"
)

// Rebuildable is an Index that can be built anew beside the contents in use.
type Rebuildable interface {
	Index
	// Beside begins new contents beside those in use, and answers an Index of them. What an earlier call began is removed.
	Beside(ctx context.Context) (Index, error)
	// Adopt puts the contents that Beside began and that Generation names into use, for good once it returns, and removes those
	// before; ok is false where they are not here. The Index that Beside answered is closed; calls of this one that run finish on what was in use.
	Adopt(ctx context.Context, generation string) (ok bool, err error)
	// Discard removes what Beside began and nothing adopted.
	Discard(ctx context.Context) error
}

var (
	_ projections.Outside   = (*Projector)(nil)
	_ projections.Expunger  = (*Projector)(nil)
	_ projections.Stretched = (*Projector)(nil)
)

// errFixed is an index that holds one set of contents only.
var errFixed = errors.New("this index cannot be built beside the one in use")

// Beside implements projections.Outside.
func (p *Projector) Beside(ctx context.Context) (projections.Projector, error) {
	index, ok := p.index.(Rebuildable)
	if !ok {
		return nil, errFixed
	}
	next, err := index.Beside(ctx)
	if err != nil {
		return nil, err
	}
	beside := *p
	beside.index = next
	return &beside, nil
}

// Adopt implements projections.Outside.
func (p *Projector) Adopt(ctx context.Context, target string) (bool, error) {
	index, ok := p.index.(Rebuildable)
	if !ok {
		return false, nil
	}
	return index.Adopt(ctx, target)
}

// Discard implements projections.Outside.
func (p *Projector) Discard(ctx context.Context) error {
	index, ok := p.index.(Rebuildable)
	if !ok {
		return nil
	}
	return index.Discard(ctx)
}

// Expunge implements projections.Expunger.
func (p *Projector) Expunge(ctx context.Context) error {
	_, err := p.index.Expunge(ctx)
	return err
}
