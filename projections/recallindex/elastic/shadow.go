package elastic

import (
	"context"
	"errors"
	"fmt"

	"github.com/annals-project/annals/projections/recallindex"
)

// NewShadow implements recallindex.Rebuildable.
func (x *Index) NewShadow(ctx context.Context) (recallindex.Index, error) {
	if err := x.Discard(ctx); err != nil {
		return nil, err
	}
	if err := x.beginCall(ctx); err != nil {
		return nil, err
	}
	defer x.endCall()
	g, ok, err := x.create(ctx, func(generation) []string { return []string{x.options.next()} })
	if err == nil && !ok {
		err = errors.New("another process creates a generation")
	}
	if err != nil {
		return nil, fmt.Errorf("begin shadow of recall index: %w", err)
	}
	return x.shadow(g), nil
}

// shadow returns the Index of a generation that is built.
func (x *Index) shadow(g generation) *Index {
	next := &Index{client: x.client, options: x.options, isShadow: true, generation: g, searching: g, unrefreshed: true}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.next = next
	return next
}

// ResumeShadow implements recallindex.Rebuildable.
func (x *Index) ResumeShadow(ctx context.Context, target string) (recallindex.Index, bool, error) {
	if err := x.beginCall(ctx); err != nil {
		return nil, false, err
	}
	defer x.endCall()
	x.closeNext()
	g, ok, err := x.named(ctx, x.options.next())
	if err != nil {
		return nil, false, fmt.Errorf("resume shadow of recall index: %w", err)
	}
	if !ok || g.String() != target {
		return nil, false, nil
	}
	return x.shadow(g), true, nil
}

// closeNext closes the shadow, if there is one.
func (x *Index) closeNext() {
	x.mu.Lock()
	next := x.next
	x.next = nil
	x.mu.Unlock()
	if next != nil {
		_ = next.Close() // it never fails
	}
}

// Promote implements recallindex.Rebuildable. If another process promoted the generation, this one
// uses it from now on.
func (x *Index) Promote(ctx context.Context, target string) (bool, error) {
	if err := x.beginCall(ctx); err != nil {
		return false, err
	}
	defer x.endCall()
	// The end of a rebuild and the next lease may promote one generation at the same time.
	x.replacing.Lock()
	defer x.replacing.Unlock()
	live, ok, err := x.inUse(ctx)
	if err != nil {
		return false, fmt.Errorf("promote recall index: %w", err)
	}
	if ok && live.String() == target {
		x.adopt(live)
		return true, nil
	}
	next, ok, err := x.named(ctx, x.options.next())
	if err != nil {
		return false, fmt.Errorf("promote recall index: %w", err)
	}
	if !ok || next.String() != target {
		return false, nil
	}
	actions, err := x.putIntoUse(ctx, next, x.options.inUse(next))
	if err == nil {
		err = x.changeAliases(ctx, append(actions, removeAlias(next.index, x.options.next())))
	}
	if err != nil {
		return false, fmt.Errorf("promote recall index: %w", err)
	}
	x.adopt(next)
	if err := x.dropOthers(ctx, x.options.live()); err != nil {
		x.options.Log.WarnContext(ctx, "removal of old recall index generation failed, the next rebuild retries", "err", err)
	}
	return true, nil
}

// adopt uses a generation, and closes the shadow that it was.
func (x *Index) adopt(g generation) {
	x.mu.Lock()
	next := x.next
	if next != nil && next.generation == g {
		x.next = nil
	} else {
		next = nil
	}
	x.searching = g
	if x.generation != g {
		x.generation, x.unrefreshed = g, true
	}
	x.mu.Unlock()
	if next != nil {
		_ = next.Close() // it never fails
	}
}

// Discard implements recallindex.Rebuildable.
func (x *Index) Discard(ctx context.Context) error {
	if err := x.beginCall(ctx); err != nil {
		return err
	}
	defer x.endCall()
	x.closeNext()
	if err := x.dropOthers(ctx, x.options.live()); err != nil {
		return fmt.Errorf("discard shadow of recall index: %w", err)
	}
	return nil
}
