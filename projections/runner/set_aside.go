package runner

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
)

// setAside holds the events that an operator has set aside, read from the registry stream. The
// runner reads all of them before the first page of a lease or a rebuild, so they also apply to
// earlier events of the log.
type setAside struct {
	store eventstore.Store
	codec *eventstore.Codec

	reading sync.Mutex
	next    eventstore.Revision // of the registry; under reading

	events atomic.Pointer[map[eventstore.Position]registry.EventSetAside]

	mu   sync.Mutex
	wake chan struct{}
}

func newSetAside(store eventstore.Store, codec *eventstore.Codec) *setAside {
	a := &setAside{store: store, codec: codec, wake: make(chan struct{})}
	a.events.Store(&map[eventstore.Position]registry.EventSetAside{})
	return a
}

// covers reports whether a projection ignores the event at a position.
func (a *setAside) covers(at eventstore.Position, projection string) bool {
	known := *a.events.Load()
	if len(known) == 0 {
		return false
	}
	e, ok := known[at]
	return ok && e.Covers(projection)
}

// all returns what is set aside, by position.
func (a *setAside) all() map[eventstore.Position]registry.EventSetAside { return *a.events.Load() }

// changed returns a channel that is closed when more is set aside.
func (a *setAside) changed() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.wake
}

// refresh reads the new events of the registry.
func (a *setAside) refresh(ctx context.Context) error {
	const page = 500
	a.reading.Lock()
	defer a.reading.Unlock()
	for {
		events, err := a.store.Read(ctx, stream.Registry, a.next, eventstore.Forwards, page)
		if err != nil {
			return fmt.Errorf("read events set aside: %w", err)
		}
		if err := a.add(events); err != nil {
			return err
		}
		if len(events) < page {
			return nil
		}
	}
}

func (a *setAside) add(events []eventstore.Recorded) error {
	more := map[eventstore.Position]registry.EventSetAside{}
	for _, r := range events {
		if r.Type == (registry.EventSetAside{}).EventType() {
			decoded, err := a.codec.Decode(r)
			if err != nil {
				return err
			}
			e := *decoded.(*registry.EventSetAside)
			at := eventstore.Position(e.Position)
			if before, ok := more[at]; ok {
				e = e.With(before)
			} else if before, ok := a.all()[at]; ok {
				e = e.With(before)
			}
			more[at] = e
		}
		a.next = r.Revision + 1
	}
	if len(more) == 0 {
		return nil
	}
	known := maps.Clone(a.all())
	maps.Copy(known, more)
	a.events.Store(&known)
	a.mu.Lock()
	defer a.mu.Unlock()
	close(a.wake)
	a.wake = make(chan struct{})
	return nil
}

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
			if err := rt.setAside.refresh(ctx); err != nil && ctx.Err() == nil {
				rt.log.WarnContext(ctx, "read of events set aside failed, will retry", "err", err)
			}
			break
		}
	}
}

// RefreshSetAside reads what was set aside until now.
func (rt *Runtime) RefreshSetAside(ctx context.Context) error { return rt.setAside.refresh(ctx) }

// IsSetAside returns what is set aside, by position.
func (rt *Runtime) IsSetAside() map[eventstore.Position]registry.EventSetAside {
	return rt.setAside.all()
}

// ListSetAside returns what was set aside until now, by position.
func (rt *Runtime) ListSetAside(ctx context.Context) ([]registry.EventSetAside, error) {
	if err := rt.RefreshSetAside(ctx); err != nil {
		return nil, err
	}
	list := slices.AppendSeq([]registry.EventSetAside{}, maps.Values(rt.setAside.all()))
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
