package runner

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/panics"
)

// The errors of a rebuild that callers distinguish, with errors.Is.
var (
	ErrUnknownProjection = errors.New("unknown projection")
	ErrRebuilding        = errors.New("projection is being rebuilt already")
	errFedElsewhere      = errors.New("projection belongs to another process")
	ErrCounts            = errors.New("the rebuilt rows are not as many as the live ones")
)

// RebuildProgress is the progress of a rebuild.
type RebuildProgress struct {
	Projection string `json:"projection"`
	// Everything up to Position is applied. Head is the last known end of the log.
	Position eventstore.Position `json:"position"`
	Head     eventstore.Position `json:"head"`
	// Resumed is the position at which an interrupted rebuild was continued, 0 for a new one.
	Resumed eventstore.Position `json:"resumed,omitempty"`
	// Events is how many events were read since then, in Seconds.
	Events  int64   `json:"events"`
	Seconds float64 `json:"seconds"`
	// LeftSeconds is an estimate of the time until the shadow has caught up, 0 if it is not known.
	LeftSeconds float64 `json:"leftSeconds,omitempty"`
	// Compared is true once the counts of the rows were compared with the live ones.
	Compared bool `json:"compared,omitempty"`
	// Done means that the new rows are live.
	Done bool `json:"done"`
}

// Rate returns events a second.
func (p RebuildProgress) Rate() float64 { return float64(p.Events) / max(p.Seconds, 0.001) }

// Names returns the projections of this process, in the order of Config.
func (rt *Runtime) Names() []string {
	names := make([]string, len(rt.runners))
	for i, r := range rt.runners {
		names[i] = r.projector.Name()
	}
	return names
}

// RebuildOptions are the options of a rebuild.
type RebuildOptions struct {
	// Rate bounds the events a second, on average over some thousand events; 0 is no bound.
	Rate int `json:"rate,omitempty"`
	// Restart begins at position 0, although an interrupted rebuild could be continued.
	Restart bool `json:"restart,omitempty"`
	// Force switches over although the counts of the rows differ.
	Force bool `json:"force,omitempty"`
	// OlderCopy accepts a log that went back: rows that were built from what it no longer holds are dropped first. No
	// process may run the projection, so a running server is never asked for it.
	OlderCopy bool `json:"-"`
	// shared reads the log for all rebuilds of a RebuildAll.
	shared *sharedReads
}

// Rebuild is RebuildWith without options.
func (rt *Runtime) Rebuild(ctx context.Context, name string, report func(RebuildProgress)) error {
	return rt.RebuildWith(ctx, name, RebuildOptions{}, report)
}

// RebuildWith builds a projection in a shadow, and switches over once the shadow has caught up. It
// begins at position 0, or continues a rebuild that was interrupted within the last day. The live
// projection continues until then; readers notice nothing. It calls report, if not nil, after every
// page. It returns ErrCounts if the rows at the position of the live projection are not as many as the
// live ones, and projections.ErrTarget if an external target does not hold what was written to it. Run
// need not be running.
func (rt *Runtime) RebuildWith(
	ctx context.Context, name string, options RebuildOptions, report func(RebuildProgress),
) error {
	for _, r := range rt.runners {
		if r.projector.Name() == name {
			return r.rebuild(ctx, options, report)
		}
	}
	return fmt.Errorf("%w: %s", ErrUnknownProjection, name)
}

// RebuildAll rebuilds projections at the same time: they read and decode the log once. If one cannot be
// rebuilt, the others are. report is called by several goroutines.
func (rt *Runtime) RebuildAll(
	ctx context.Context, names []string, options RebuildOptions, report func(RebuildProgress),
) error {
	options.shared = newSharedReads(rt.store, rt.codec, names)
	errs := make([]error, len(names))
	var group sync.WaitGroup
	for i, name := range names {
		group.Go(func() {
			defer options.shared.leave(name)
			defer panics.Recover(ctx, rt.log, &errs[i], "rebuild panicked", "projection", name)
			errs[i] = rt.RebuildWith(ctx, name, options, report)
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

func (r *runner) rebuild(ctx context.Context, options RebuildOptions, report func(RebuildProgress)) error {
	if report == nil {
		report = func(RebuildProgress) {}
	}
	if !r.rebuilding.CompareAndSwap(false, true) {
		return ErrRebuilding
	}
	defer r.rebuilding.Store(false)
	// A check for leftovers holds the shadow for a moment.
	if err := r.shadow.lock(ctx); err != nil {
		return fmt.Errorf("rebuild %s: wait for the shadow: %w", r.projector.Name(), err)
	}
	defer r.shadow.unlock()
	p := RebuildProgress{Projection: r.projector.Name()}
	began := time.Now()
	b, err := r.startShadow(ctx, options)
	if err != nil {
		return fmt.Errorf("rebuild %s: %w", p.Projection, err)
	}
	p.Resumed = b.resumed
	err = b.run(ctx, func(passed int, at eventstore.Position) {
		p.Position, p.Events, p.Seconds = at, p.Events+int64(passed), time.Since(began).Seconds()
		if head, err := r.store.Head(ctx); err == nil {
			p.Head = head
		}
		p.LeftSeconds = p.left()
		report(p)
		if options.Rate > 0 {
			due := time.Duration(float64(p.Events) / float64(options.Rate) * float64(time.Second))
			_ = backoff.Pause(b.lease.ctx, due-time.Since(began), nil)
		}
	})
	if err = errors.Join(err, b.close(ctx, err == nil)); err != nil {
		return fmt.Errorf("rebuild %s: %w", p.Projection, err)
	}
	// A stop belongs to the rows that are gone.
	r.progress.change(func(p *progress) { p.stop, p.lastErr, p.repeat = nil, nil, nil })
	r.log.InfoContext(ctx, "projection rebuilt", "events", p.Events, "took", time.Since(began).String())
	if err := r.dropOld(ctx, b.logID); err != nil {
		r.log.WarnContext(ctx, "drop of the old schema failed, will retry", "err", err)
	}
	p.Seconds, p.LeftSeconds, p.Compared, p.Done = time.Since(began).Seconds(), 0, b.compared, true
	report(p)
	return nil
}

// left estimates the seconds until the shadow has caught up, from the positions that it passed so far.
func (p RebuildProgress) left() float64 {
	if p.Position <= p.Resumed || p.Head <= p.Position {
		return 0
	}
	return p.Seconds * float64(p.Head-p.Position) / float64(p.Position-p.Resumed)
}
