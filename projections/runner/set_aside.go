package runner

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/projections"
)

// setAsidePoll is how often a process with a stopped projector refreshes what is set aside.
const setAsidePoll = 500 * time.Millisecond

// followSetAside polls for events set aside while a projector is stopped or repeats a page: no page
// refreshes them then.
func (rt *Runtime) followSetAside(ctx context.Context) {
	for ctx.Err() == nil {
		_ = backoff.Pause(ctx, setAsidePoll, nil)
		for _, r := range rt.runners {
			if now := r.progress.snapshot(); now.stop == nil && now.repeat == nil {
				continue
			}
			if err := rt.setAside.Refresh(ctx); err != nil && ctx.Err() == nil {
				rt.log.WarnContext(ctx, "read of events set aside failed, will retry", "err", err)
			}
			break
		}
	}
}

// owns reports whether the projector gets an event.
func (r *runner) owns(f eventstore.DecodedEvent) bool {
	_, isWhole := r.projector.(projections.Whole)
	return slices.Contains(r.projector.Categories(), stream.Category(f.Stream)) &&
		(isWhole || !f.IsPassedOver() && !r.setAside.Covers(f.Position, r.projector.Name()))
}

// isUnreadable reports whether an event stops the projector, since it cannot be decoded and is not set aside.
func (r *runner) isUnreadable(f eventstore.DecodedEvent) bool {
	return f.Err != nil && !r.setAside.Covers(f.Position, r.projector.Name())
}

// RefreshSetAside reads what was set aside until now.
func (rt *Runtime) RefreshSetAside(ctx context.Context) error { return rt.setAside.Refresh(ctx) }

// IsSetAside returns what is set aside, by position.
func (rt *Runtime) IsSetAside() map[eventstore.Position]registry.EventSetAside {
	return rt.setAside.All()
}

// ListSetAside returns what was set aside until now, by position.
func (rt *Runtime) ListSetAside(ctx context.Context) ([]registry.EventSetAside, error) {
	if err := rt.RefreshSetAside(ctx); err != nil {
		return nil, err
	}
	list := slices.AppendSeq([]registry.EventSetAside{}, maps.Values(rt.setAside.All()))
	slices.SortFunc(list, func(a, b registry.EventSetAside) int { return cmp.Compare(a.Position, b.Position) })
	return list, nil
}

// HeldUpAt returns the projections that are stopped by the event at a position, and those that do not reach or apply
// it for a cause outside the event.
func (rt *Runtime) HeldUpAt(ctx context.Context, at eventstore.Position) (stopped []string, outside map[string]error) {
	outside = map[string]error{}
	for _, h := range rt.Health(ctx) {
		switch {
		case h.Stop != nil && h.Stop.Position == at, h.Repeat != nil && h.Repeat.OfEvent && h.Repeat.Next == at:
			stopped = append(stopped, h.Name)
		case h.Stop == nil && h.Repeat != nil && !h.Repeat.OfEvent && h.Repeat.holds(at, h.Position):
			outside[h.Name] = h.Repeat
		}
	}
	return stopped, outside
}
