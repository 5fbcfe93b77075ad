package commands

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

// SetAside is an operator's decision that projections ignore an event.
type SetAside struct {
	Position eventstore.Position
	// Projections are those that ignore it; none means all.
	Projections []string
	Reason, By  string
	At          time.Time
}

// The refusals of SetEventAside, with errors.Is.
var (
	ErrNoSuchEvent = errors.New("there is no event at this position")
	ErrNotSetAside = errors.New("this event cannot be set aside")
)

// SetEventAside records that projections ignore an event. It appends nothing if an earlier decision
// covers that, and returns the decision that is in force.
func SetEventAside(ctx context.Context, l *Journal, s SetAside) (registry.EventSetAside, error) {
	ctx, cancel := context.WithTimeout(ctx, decideTimeout)
	defer cancel()
	at, found, err := l.Store.ReadAt(ctx, s.Position)
	if err != nil {
		return registry.EventSetAside{}, unavailable(err)
	}
	if !found {
		return registry.EventSetAside{}, fmt.Errorf("%w: %d", ErrNoSuchEvent, s.Position)
	}
	if err := checkSetAside(at); err != nil {
		return registry.EventSetAside{}, err
	}
	projections := slices.Clone(s.Projections)
	slices.Sort(projections)
	decided := registry.EventSetAside{
		Position: uint64(
			s.Position,
		), EventID: at.ID, Stream: at.Stream, Type: at.Type, Projections: slices.Compact(projections),
		Reason: s.Reason, By: s.By, At: s.At,
	}
	result := decided
	_, err = runDecision(ctx, l, decision[*registry.EventSetAside]{
		stream: stream.Registry,
		read: func(ctx context.Context) (*registry.EventSetAside, head, error) {
			return l.setAsideOf(ctx, decided.Position)
		},
		decide: func(_ context.Context, before *registry.EventSetAside) ([]event.Event, error) {
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
		meta: func() event.Meta { return event.NewMeta(s.By, decided.At) },
	})
	return result, err
}

// checkSetAside refuses an event that projections need, or that none of them applies.
func checkSetAside(r eventstore.Recorded) error {
	switch {
	case r.System():
		return fmt.Errorf("%w: it belongs to the event store", ErrNotSetAside)
	case r.Stream == stream.Registry && (r.Revision == 0 || r.Type == (registry.EventSetAside{}).EventType()):
		return fmt.Errorf("%w: the log needs %s", ErrNotSetAside, r.Type)
	default:
		return nil
	}
}

// setAsideOf reads what the registry records of an event, nil for nothing. It does not decode other
// events: one that this program does not know may be what is to be set aside.
func (l *Journal) setAsideOf(
	ctx context.Context, position uint64,
) (before *registry.EventSetAside, at head, err error) {
	const page = 256
	at = headAfter(0)
	for {
		events, err := l.Store.Read(ctx, stream.Registry, at.revision+1, eventstore.Forwards, page)
		if err != nil {
			return nil, at, unavailable(err)
		}
		for _, r := range events {
			at = head{revision: r.Revision, position: r.Position}
			if r.Type != (registry.EventSetAside{}).EventType() {
				continue
			}
			decoded, err := l.Codec.Decode(r)
			if err != nil {
				return nil, at, err
			}
			e := *decoded.(*registry.EventSetAside)
			if e.Position != position {
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
