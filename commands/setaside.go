package commands

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

// SetAside is an operator's decision that projections pass over an event.
type SetAside struct {
	Position eventstore.Position
	// Projections are those that pass over it; none are all.
	Projections []string
	Reason, By  string
	At          time.Time
}

// The refusals of SetEventAside, with errors.Is.
var (
	ErrNoSuchEvent = errors.New("there is no event at this position")
	ErrNotAside    = errors.New("this event cannot be set aside")
)

// SetEventAside writes down that projections pass over an event. What is set aside for them already is not written again. The
// position answered is that behind which it counts.
func SetEventAside(ctx context.Context, l *Log, s SetAside) (registry.EventSetAside, error) {
	ctx, cancel := context.WithTimeout(ctx, decideTimeout)
	defer cancel()
	at, found, err := l.Store.ReadAt(ctx, s.Position)
	if err != nil {
		return registry.EventSetAside{}, unavailable(err)
	}
	if !found {
		return registry.EventSetAside{}, fmt.Errorf("%w: %d", ErrNoSuchEvent, s.Position)
	}
	if err := mayBeAside(at); err != nil {
		return registry.EventSetAside{}, err
	}
	projections := slices.Clone(s.Projections)
	slices.Sort(projections)
	decided := registry.EventSetAside{
		Position: uint64(s.Position), EventID: at.ID, Stream: at.Stream, Type: at.Type, Projections: slices.Compact(projections),
		Reason: s.Reason, By: s.By, At: s.At,
	}
	release, err := l.Serialize(ctx, stream.Registry)
	if err != nil {
		return registry.EventSetAside{}, unavailable(err)
	}
	defer release()
	for {
		last, before, err := l.asideOf(ctx, decided.Position)
		if err != nil {
			return registry.EventSetAside{}, err
		}
		if before != nil && covers(*before, decided) {
			return *before, nil
		}
		meta := event.Meta{CommandID: uuid.New(), Principal: s.By}
		_, err = l.Append(ctx, stream.Registry, last, meta, decided)
		if errors.Is(err, eventstore.ErrConflict) {
			continue
		}
		if err == nil && before != nil {
			decided = decided.With(*before)
		}
		return decided, err
	}
}

// mayBeAside refuses what no projection can do without, and what none is asked to apply.
func mayBeAside(r eventstore.Recorded) error {
	switch {
	case r.System():
		return fmt.Errorf("%w: it is the event store's own", ErrNotAside)
	case r.Stream == stream.Registry && (r.Revision == 0 || r.Type == (registry.EventSetAside{}).EventType()):
		return fmt.Errorf("%w: %s is what the log rests on", ErrNotAside, r.Type)
	default:
		return nil
	}
}

// asideOf reads the end of the registry, and what it says of an event. Events that this program does not know are left out:
// one of them may be what is to be set aside.
func (l *Log) asideOf(ctx context.Context, position uint64) (last eventstore.Revision, before *registry.EventSetAside, err error) {
	const page = 256
	last = eventstore.NoStream
	for {
		events, err := l.Store.Read(ctx, stream.Registry, last+1, eventstore.Forwards, page)
		if err != nil {
			return 0, nil, unavailable(err)
		}
		for _, r := range events {
			last = r.Revision
			if r.Type != (registry.EventSetAside{}).EventType() {
				continue
			}
			decoded, err := l.Codec.Decode(r)
			if err != nil {
				return 0, nil, err
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
			return last, before, nil
		}
	}
}

// covers says that a decision was taken before, for all projections of the later one.
func covers(before, later registry.EventSetAside) bool {
	if len(later.Projections) == 0 {
		return len(before.Projections) == 0
	}
	return !slices.ContainsFunc(later.Projections, func(name string) bool { return !before.Covers(name) })
}
