package tenancy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/projection"
)

// SetAside is an operator's decision that projections ignore an event.
type SetAside struct {
	Position eventstore.Position `json:"position"`
	// Projection is one projection, or AllProjections; "" means those that are stopped at the event.
	Projection string `json:"projection"`
	Reason     string `json:"reason"`
	// Force allows an event at which no projection is stopped.
	Force bool `json:"force"`
}

// AllProjections names every projection, also a later one.
const AllProjections = "all"

// EventAsides sets events aside for the projections of a process.
type EventAsides struct {
	Journal     *engine.Journal
	Projections interface {
		Names() []string
		// HeldUpAt returns the projections that are stopped by an event, and those that fail at it for a cause
		// outside the event.
		HeldUpAt(ctx context.Context, at eventstore.Position) (stopped []string, outside map[string]error)
		IsSetAside() map[eventstore.Position]registry.EventSetAside
		RefreshSetAside(ctx context.Context) error
	}
	// IsStuck reports whether the event is a deletion that this process cannot complete.
	IsStuck func(at eventstore.Position) bool
}

// SetAside records that projections ignore an event, and returns the decision that is in force. It appends nothing if
// an earlier decision covers that. Its faults are invalid-request, not-found and conflict.
func (a EventAsides) SetAside(ctx context.Context, call engine.Call, in SetAside) (registry.EventSetAside, error) {
	refuse := func(kind fault.Kind, code, format string, args ...any) (registry.EventSetAside, error) {
		return registry.EventSetAside{}, fault.New(kind, code, format, args...)
	}
	if in.Reason == "" {
		return refuse(fault.Invalid, fault.CodeInvalidRequest, "a reason is missing")
	}
	named := in.Projection != "" && in.Projection != AllProjections
	if named && !slices.Contains(a.Projections.Names(), in.Projection) {
		return refuse(fault.NotFound, fault.CodeNotFound, "there is no projection %s", in.Projection)
	}
	stopped, outside := a.Projections.HeldUpAt(ctx, in.Position)
	if a.IsStuck(in.Position) {
		stopped = append(stopped, projection.DataPoints)
	}
	if cause := outsideOf(in.Projection, stopped, outside); cause != nil {
		return refuse(fault.Conflict, fault.CodeConflict, "the event at position %d is not the cause, so it cannot be "+
			"set aside, also not with --force: %v; once that is repaired, the projection goes on by itself", in.Position, cause)
	}
	already, isSetAside := a.Projections.IsSetAside()[in.Position]
	if len(stopped) == 0 && !isSetAside && !in.Force {
		return refuse(fault.Conflict, fault.CodeConflict,
			"no projection is stopped at position %d; use --force with --projection to set it aside anyway", in.Position)
	}
	var names []string
	switch {
	case in.Projection == AllProjections:
	case named:
		names = []string{in.Projection}
	case len(stopped) > 0:
		names = stopped
	case isSetAside:
		names = already.Projections // the same decision again
	default:
		return refuse(fault.Conflict, fault.CodeConflict,
			"no projection is stopped at position %d: name one, or all", in.Position)
	}
	decided, err := setAside(ctx, a.Journal, call, in, names)
	if errors.Is(err, errNoSuchEvent) || errors.Is(err, errNotSetAside) {
		return refuse(fault.Conflict, fault.CodeConflict, "%v", err)
	}
	if err != nil {
		return registry.EventSetAside{}, err
	}
	return decided, a.Projections.RefreshSetAside(ctx)
}

// outsideOf returns why one of the projections that a decision is for fails, if the event is not the cause.
func outsideOf(named string, stopped []string, outside map[string]error) error {
	if named != "" && named != AllProjections {
		return outside[named]
	}
	if named == "" && len(stopped) > 0 {
		return nil // the decision is for these
	}
	for _, name := range slices.Sorted(maps.Keys(outside)) {
		return outside[name]
	}
	return nil
}

var (
	errNoSuchEvent = errors.New("there is no event at this position")
	errNotSetAside = errors.New("this event cannot be set aside")
)

// setAside records that projections ignore an event; none means all.
func setAside(
	ctx context.Context, l *engine.Journal, call engine.Call, in SetAside, projections []string,
) (registry.EventSetAside, error) {
	ctx, cancel := context.WithTimeout(ctx, engine.DecideTimeout)
	defer cancel()
	at, found, err := l.Store.ReadAt(ctx, in.Position)
	if err != nil && !errors.Is(err, eventstore.ErrNoEvent) {
		return registry.EventSetAside{}, engine.Unavailable(err)
	}
	if !found {
		return registry.EventSetAside{}, fmt.Errorf("%w: %d", errNoSuchEvent, in.Position)
	}
	if err := checkSetAside(at, l); err != nil {
		return registry.EventSetAside{}, err
	}
	projections = slices.Clone(projections)
	slices.Sort(projections)
	decided := registry.EventSetAside{
		Position: uint64(in.Position), EventID: at.ID, Stream: at.Stream, Type: at.Type,
		Projections: slices.Compact(projections), Reason: in.Reason, By: call.Principal.Name(), At: call.ReceivedAt,
	}
	result := decided
	_, err = engine.Decide(ctx, l, engine.Decision[*registry.EventSetAside]{
		Stream: stream.Registry,
		Read: func(ctx context.Context) (*registry.EventSetAside, engine.Head, error) {
			return setAsideOf(ctx, l, decided.Position)
		},
		Decide: func(_ context.Context, before *registry.EventSetAside) ([]event.Event, error) {
			switch {
			case before == nil:
				result = decided
			case covers(*before, decided):
				result = *before
				return nil, nil
			default:
				result = decided.With(*before)
			}
			return []event.Event{decided}, nil
		},
		Meta: call.NewMeta,
	})
	return result, err
}

// checkSetAside refuses an event that projections need, or that none of them applies.
func checkSetAside(r eventstore.Recorded, l *engine.Journal) error {
	_, decides := l.Codec.Decision(r)
	switch {
	case r.System():
		return fmt.Errorf("%w: it belongs to the event store", errNotSetAside)
	case r.Stream == stream.Registry && (r.Revision == 0 || decides):
		return fmt.Errorf("%w: the log needs %s", errNotSetAside, r.Type)
	default:
		return nil
	}
}

// setAsideOf reads what the registry records of an event, nil for nothing. It does not decode other
// events: one that this program does not know may be what is to be set aside.
func setAsideOf(
	ctx context.Context, l *engine.Journal, position uint64,
) (before *registry.EventSetAside, at engine.Head, err error) {
	const page = 256
	at = engine.HeadAfter(0)
	for {
		events, err := l.Store.Read(ctx, stream.Registry, at.Revision+1, eventstore.Forwards, page)
		if err != nil {
			return nil, at, engine.Unavailable(err)
		}
		for _, r := range events {
			at = engine.Head{Revision: r.Revision, Position: r.Position}
			e, decides := l.Codec.Decision(r)
			if !decides || e.Position != position {
				continue
			}
			if before != nil {
				e = e.With(*before)
			}
			before = &e
		}
		if len(events) < page {
			return before, at, nil
		}
	}
}

// covers reports whether an earlier decision holds for all projections of a later one.
func covers(before, later registry.EventSetAside) bool {
	if len(later.Projections) == 0 {
		return len(before.Projections) == 0
	}
	return !slices.ContainsFunc(later.Projections, func(name string) bool { return !before.Covers(name) })
}
