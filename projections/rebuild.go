package projections

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/annals-project/annals/eventstore"
)

// The errors of a rebuild that callers tell apart, with errors.Is.
var (
	ErrUnknownProjection = errors.New("there is no such projection")
	ErrRebuilding        = errors.New("the projection is being rebuilt already")
	ErrElsewhere         = errors.New("the projection is another process's")
)

// RebuildProgress is how far a rebuild has come.
type RebuildProgress struct {
	Projection string
	// Position is up to where everything is applied, Head where the log ended when it was looked at last.
	Position, Head eventstore.Position
	// Events is how many events were passed, in Took.
	Events int64
	Took   time.Duration
	// Done says that the new rows are in the place of the old ones.
	Done bool
}

// Names are the projections of this process, in the order that they were given.
func (rt *Runtime) Names() []string {
	names := make([]string, len(rt.runners))
	for i, r := range rt.runners {
		names[i] = r.projector.Name()
	}
	return names
}

// Rebuild builds a projection anew from the log, beside the live one, and puts it in its place once it has come as far. The live
// one goes on until then; readers notice nothing. report, where it is not nil, is called after every page. When the context
// ends, or the rebuild fails, what it built is removed. It works also while Run does not.
func (rt *Runtime) Rebuild(ctx context.Context, name string, report func(RebuildProgress)) error {
	for _, r := range rt.runners {
		if r.projector.Name() == name {
			return r.rebuild(ctx, report)
		}
	}
	return fmt.Errorf("%w: %s", ErrUnknownProjection, name)
}

func (r *runner) rebuild(ctx context.Context, report func(RebuildProgress)) error {
	if !r.rebuilding.TryLock() {
		return ErrRebuilding
	}
	defer r.rebuilding.Unlock()
	p := RebuildProgress{Projection: r.projector.Name()}
	began := time.Now()
	b, err := r.buildBeside(ctx)
	if err != nil {
		return fmt.Errorf("rebuild %s: %w", p.Projection, err)
	}
	err = b.run(ctx, func(passed int, at eventstore.Position) {
		if p.Position, p.Events, p.Took = at, p.Events+int64(passed), time.Since(began); report == nil {
			return
		}
		if head, err := r.store.Head(ctx); err == nil {
			p.Head = head
		}
		report(p)
	})
	if err = errors.Join(err, b.close(ctx, err == nil)); err != nil {
		return fmt.Errorf("rebuild %s: %w", p.Projection, err)
	}
	// A stop was about the rows that are gone.
	r.progress.change(func(p *progress) { p.stop, p.trouble, p.repeat = nil, nil, nil })
	r.log.InfoContext(ctx, "projection rebuilt", "events", p.Events, "took", time.Since(began))
	if err := r.dropOld(ctx); err != nil {
		r.log.WarnContext(ctx, "the rows of before are not removed yet", "err", err)
	}
	if p.Took, p.Done = time.Since(began), true; report != nil {
		report(p)
	}
	return nil
}
