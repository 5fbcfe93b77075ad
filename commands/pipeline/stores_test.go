package pipeline

import (
	"context"
	"errors"
	"sync"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/eventstore"
)

// write is a change of a stream.
type write struct{ kind, stream string }

// The kinds of writes.
const (
	appends    = "append"
	tombstones = "tombstone"
	truncates  = "truncate"
)

// around is a store whose writes a function makes, by a call of store, or does not.
type around struct {
	eventstore.Store
	do func(ctx context.Context, w write, store func() error) error
}

func (a around) Append(ctx context.Context, name string, expected eventstore.Revision,
	events []eventstore.Proposed,
) (done eventstore.Appended, err error) {
	err = a.do(ctx, write{appends, name}, func() (err error) {
		done, err = a.Store.Append(ctx, name, expected, events)
		return err
	})
	return done, err
}

func (a around) Tombstone(ctx context.Context, name string, expected eventstore.Revision) (at eventstore.Position,
	err error,
) {
	err = a.do(ctx, write{tombstones, name}, func() (err error) {
		at, err = a.Store.Tombstone(ctx, name, expected)
		return err
	})
	return at, err
}

func (a around) Truncate(ctx context.Context, name string, before eventstore.Revision) error {
	return a.do(ctx, write{truncates, name}, func() error { return a.Store.Truncate(ctx, name, before) })
}

// victim is a process that dies at one of its writes: before it is stored, or after, without an answer. It makes one
// write at a time, so that the steps of an operation have an order.
type victim struct {
	mu     sync.Mutex
	left   int
	stored bool
	died   bool
}

var errDied = errors.New("killed")

// over is the store of the process.
func (v *victim) over(store eventstore.Store) eventstore.Store { return around{store, v.write} }

func (v *victim) write(_ context.Context, _ write, store func() error) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.died:
		return errDied
	case v.left > 0:
		v.left--
		return store()
	default:
		v.died = true
		if v.stored {
			return errors.Join(errDied, store())
		}
		return errDied
	}
}

// panicsAt is a store that panics at each append to a stream.
func panicsAt(store eventstore.Store, name string) eventstore.Store {
	return around{store, func(_ context.Context, w write, store func() error) error {
		if w == (write{appends, name}) {
			panic("append")
		}
		return store()
	}}
}

// repeats is a store that checks what it takes again under the id of an event: the same bytes but
// for the salt. So a fan-out that runs again in another process is answered by what the first one
// stored, and nothing of it is lost. What is refused may be decided and encoded again.
type repeats struct {
	eventstore.Store
	w *harness
}

// sentKey is an event of a stream; a blob may have the ids of the event that refers to it.
type sentKey struct {
	stream string
	id     uuid.UUID
}

// sent are the events that were appended, without their salts.
type sent struct {
	mu     sync.Mutex
	events map[sentKey]eventstore.Proposed
	// again counts those that were encoded and appended again.
	again int
}

func (r repeats) Append(ctx context.Context, name string, expected eventstore.Revision,
	events []eventstore.Proposed,
) (eventstore.Appended, error) {
	added := r.compare(name, events)
	appended, err := r.Store.Append(ctx, name, expected, events)
	if errors.Is(err, eventstore.ErrConflict) || ctx.Err() != nil {
		r.w.sent.mu.Lock()
		defer r.w.sent.mu.Unlock()
		for _, key := range added {
			delete(r.w.sent.events, key)
		}
	}
	return appended, err
}

// compare compares events with those that were appended before under their ids, and returns which are new.
func (r repeats) compare(name string, events []eventstore.Proposed) (added []sentKey) {
	r.w.sent.mu.Lock()
	defer r.w.sent.mu.Unlock()
	for _, e := range events {
		rest, salt, err := event.SplitSalt(e.Meta)
		if err != nil {
			r.w.t.Errorf("%s is appended to %s without a salt: %s", e.Type, name, e.Meta)
		}
		key := sentKey{name, e.ID}
		before, repeated := r.w.sent.events[key]
		if e.Meta = rest; !repeated {
			r.w.sent.events[key], added = e, append(added, key)
		} else if r.w.sent.again++; !cmp.Equal(before, e) {
			r.w.t.Errorf("%s is appended to %s again with other bytes (%x): %s", e.Type, name, salt, cmp.Diff(before, e))
		}
	}
	return added
}
