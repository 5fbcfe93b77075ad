package projections

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

// aside knows the events that projectors pass over, as the registry says. It is read whole before the first page of a turn or a
// rebuild, so that what the log sets aside later counts from the beginning.
type aside struct {
	store eventstore.Store
	codec *eventstore.Codec

	reading sync.Mutex
	next    eventstore.Revision // of the registry; under reading

	known atomic.Pointer[map[eventstore.Position]registry.EventSetAside]

	mu   sync.Mutex
	wake chan struct{}
}

func newAside(store eventstore.Store, codec *eventstore.Codec) *aside {
	a := &aside{store: store, codec: codec, wake: make(chan struct{})}
	a.known.Store(&map[eventstore.Position]registry.EventSetAside{})
	return a
}

// covers says that a projection passes over the event at a position.
func (a *aside) covers(at eventstore.Position, projection string) bool {
	known := *a.known.Load()
	if len(known) == 0 {
		return false
	}
	e, ok := known[at]
	return ok && e.Covers(projection)
}

// all is what is set aside.
func (a *aside) all() map[eventstore.Position]registry.EventSetAside { return *a.known.Load() }

// changed is closed when something more is set aside.
func (a *aside) changed() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.wake
}

// refresh reads what the registry says that was not read yet.
func (a *aside) refresh(ctx context.Context) error {
	const page = 500
	a.reading.Lock()
	defer a.reading.Unlock()
	for {
		events, err := a.store.Read(ctx, stream.Registry, a.next, eventstore.Forwards, page)
		if err != nil {
			return fmt.Errorf("read what is set aside: %w", err)
		}
		if err := a.learn(events); err != nil {
			return err
		}
		if len(events) < page {
			return nil
		}
	}
}

func (a *aside) learn(events []eventstore.Recorded) error {
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
	a.known.Store(&known)
	a.mu.Lock()
	defer a.mu.Unlock()
	close(a.wake)
	a.wake = make(chan struct{})
	return nil
}

// lookAside is how often a process with a stopped projector looks whether its event is set aside.
const lookAside = 500 * time.Millisecond

// followAside looks for what is set aside while a projector of this process stands still: no page comes to it any more.
func (rt *Runtime) followAside(ctx context.Context) {
	for ctx.Err() == nil {
		wait(ctx, lookAside)
		for _, r := range rt.runners {
			if now := r.progress.look(); now.stop == nil && now.repeat == nil {
				continue
			}
			if err := rt.aside.refresh(ctx); err != nil && ctx.Err() == nil {
				rt.log.WarnContext(ctx, "what is set aside cannot be read", "err", err)
			}
			break
		}
	}
}

// LookAside reads at once what was set aside.
func (rt *Runtime) LookAside(ctx context.Context) error { return rt.aside.refresh(ctx) }

// Aside is what is set aside, by position.
func (rt *Runtime) Aside() map[eventstore.Position]registry.EventSetAside { return rt.aside.all() }
