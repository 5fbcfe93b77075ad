package eventstore

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/audit"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
)

// SetAside holds the events that an operator has set aside, read from the registry stream. It is safe for concurrent
// use.
type SetAside struct {
	store Store
	codec *Codec

	reading sync.Mutex
	next    Revision // of the registry; under reading

	events atomic.Pointer[map[Position]registry.EventSetAside]

	mu   sync.Mutex
	wake chan struct{}
}

// NewSetAside returns a list that has read nothing yet.
func NewSetAside(store Store, codec *Codec) *SetAside {
	a := &SetAside{store: store, codec: codec, wake: make(chan struct{})}
	a.events.Store(&map[Position]registry.EventSetAside{})
	return a
}

// Covers reports whether a projection ignores the event at a position.
func (a *SetAside) Covers(at Position, projection string) bool {
	known := *a.events.Load()
	if len(known) == 0 {
		return false
	}
	e, ok := known[at]
	return ok && e.Covers(projection)
}

// All returns what is set aside, by position.
func (a *SetAside) All() map[Position]registry.EventSetAside { return *a.events.Load() }

// Changed returns a channel that is closed when more is set aside.
func (a *SetAside) Changed() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.wake
}

// Refresh reads the new events of the registry.
func (a *SetAside) Refresh(ctx context.Context) error {
	const page = 500
	a.reading.Lock()
	defer a.reading.Unlock()
	for {
		events, err := a.store.Read(ctx, stream.Registry, a.next, Forwards, page)
		if err != nil {
			return fmt.Errorf("read events set aside: %w", err)
		}
		a.add(events)
		if len(events) < page {
			return nil
		}
	}
}

func (a *SetAside) add(events []Recorded) {
	more := map[Position]registry.EventSetAside{}
	for _, r := range events {
		if e, ok := a.codec.Decision(r); ok {
			at := Position(e.Position)
			if before, ok := more[at]; ok {
				e = e.With(before)
			} else if before, ok := a.All()[at]; ok {
				e = e.With(before)
			}
			more[at] = e
		}
		a.next = r.Revision + 1
	}
	if len(more) == 0 {
		return
	}
	known := maps.Clone(a.All())
	maps.Copy(known, more)
	a.events.Store(&known)
	a.mu.Lock()
	defer a.mu.Unlock()
	close(a.wake)
	a.wake = make(chan struct{})
}

// Decision returns the decision that an event of the registry records. ok is false for another event, and for one
// that cannot be decoded: it decides nothing, and may itself be set aside.
func (c *Codec) Decision(r Recorded) (e registry.EventSetAside, ok bool) {
	if r.Type != e.EventType() {
		return e, false
	}
	decoded := c.DecodeRecorded(r)
	decision, ok := decoded.Event.(*registry.EventSetAside)
	if !ok {
		return e, false
	}
	return *decision, true
}

// PassedOver is the decoded form of a stray event, and of one that an operator has set aside and that cannot be read as
// an event of its stream. It changes no state.
type PassedOver struct{}

func (PassedOver) EventType() string { return "$passed-over" }

// IsPassedOver reports whether the event is set aside and not readable.
func (f DecodedEvent) IsPassedOver() bool {
	_, is := f.Event.(PassedOver)
	return is
}

// passes reports whether an event that cannot be read, or is not one of its stream, is set aside. Only then does it
// read the registry: another event costs nothing.
func (a *SetAside) passes(ctx context.Context, f DecodedEvent) (bool, error) {
	if a == nil || f.Err == nil && isOfStream(f.Recorded) {
		return false, nil
	}
	if err := a.Refresh(ctx); err != nil {
		return false, err
	}
	_, is := a.All()[f.Position]
	return is, nil
}

// isOfStream reports whether the type of an event belongs to the category of its stream.
func isOfStream(r Recorded) bool {
	kind, _, _ := strings.Cut(r.Type, ".")
	switch category := stream.Category(r.Stream); kind {
	case "audience":
		return category == stream.Audiences
	case "audit":
		return category == stream.Records || category == stream.Audit
	default:
		return kind == category
	}
}

// Kept returns the record of the event as Recorded.Kept does. An event of another program that is passed over may have
// no salt or no time: its record is then of its place and type alone, since one of an unsalted text would let it be
// guessed.
func (f DecodedEvent) Kept(organization uuid.UUID) (audit.Kept, error) {
	kept, err := f.Recorded.Kept(organization)
	if err == nil || !f.IsPassedOver() {
		return kept, err
	}
	r := f.Recorded
	r.Data, r.Meta = nil, event.WithSalt([]byte(`{"at":"0001-01-01T00:00:00Z"}`), [event.SaltSize]byte{})
	return r.Kept(organization)
}
