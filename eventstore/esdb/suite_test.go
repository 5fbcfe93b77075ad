package esdb_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/eventstore"
)

// suiteLimit is the timeout of a test of the suite against a server that does not answer.
const suiteLimit = 5 * time.Minute

// conformance checks a store against the whole port, which every store has to pass. It calls open once for each test.
// Open may return the same log each time, even if others write to it: the suite writes only to new streams. Open must
// close the store when the test ends.
func conformance(t *testing.T, open func(t *testing.T) eventstore.Store) {
	for _, group := range []struct {
		name  string
		tests []test
	}{
		{"append", appendTests},
		{"read", readTests},
		{"log", logTests},
		{"subscribe", subscribeTests},
		{"end", endTests},
	} {
		t.Run(group.name, func(t *testing.T) {
			for _, test := range group.tests {
				t.Run(test.name, func(t *testing.T) {
					ctx, cancel := context.WithTimeout(t.Context(), suiteLimit)
					defer cancel()
					test.run(&fixture{T: t, ctx: ctx, store: open(t)})
				})
			}
		})
	}
}

type test struct {
	name string
	run  func(b *fixture)
}

// fixture is the store and the context of a test.
type fixture struct {
	*testing.T
	ctx   context.Context
	store eventstore.Store
}

// stream returns a stream name that no other test has.
func (b *fixture) stream() string { return "conformance-" + uuid.NewString() }

// noted returns a small event with a new id.
func noted(note string) eventstore.Proposed {
	data, err := json.Marshal(map[string]string{"note": note})
	if err != nil {
		panic(err)
	}
	return eventstore.Proposed{ID: uuid.New(), Type: "conformance.noted.v1", Data: data, Meta: []byte(`{"schema":1}`)}
}

func events(n int) []eventstore.Proposed {
	all := make([]eventstore.Proposed, n)
	for i := range all {
		all[i] = noted(fmt.Sprint(i))
	}
	return all
}

// chunk returns an event of raw bytes that are not JSON.
func chunk(size int) eventstore.Proposed {
	return eventstore.Proposed{
		ID:   uuid.New(),
		Type: blob.ChunkType,
		Data: bytes.Repeat([]byte{0xff, 0x00, '"'}, size/3+1)[:size],
		Meta: []byte(`{"schema":1}`),
	}
}

func (b *fixture) append(
	stream string, expected eventstore.Revision, events ...eventstore.Proposed,
) eventstore.Appended {
	b.Helper()
	done, err := b.store.Append(b.ctx, stream, expected, events)
	if err != nil {
		b.Fatalf("append of %d at %d: %v", len(events), expected, err)
	}
	if done.Position == 0 {
		b.Fatalf("append of %d at %d: answered position 0, which means before the first event", len(events), expected)
	}
	return done
}

func (b *fixture) appendFails(stream string, expected eventstore.Revision, want error, events ...eventstore.Proposed) {
	b.Helper()
	done, err := b.store.Append(b.ctx, stream, expected, events)
	if !errors.Is(err, want) {
		b.Fatalf("append of %d at %d: got %+v, %v; want %v", len(events), expected, done, err, want)
	}
	outcomes := []error{eventstore.ErrConflict, eventstore.ErrDeleted, eventstore.ErrTooLarge, eventstore.ErrUnknown}
	for _, other := range outcomes {
		if !errors.Is(want, other) && errors.Is(err, other) {
			b.Fatalf("append of %d at %d: %v is %v and %v at once", len(events), expected, err, want, other)
		}
	}
}

func (b *fixture) read(
	stream string, from eventstore.Revision, direction eventstore.Direction, limit int,
) []eventstore.Recorded {
	b.Helper()
	read, err := b.store.Read(b.ctx, stream, from, direction, limit)
	if err != nil {
		b.Fatalf("read %d from %d: %v", limit, from, err)
	}
	return read
}

func (b *fixture) all(stream string) []eventstore.Recorded {
	b.Helper()
	return b.read(stream, 0, eventstore.Forwards, 1<<20)
}

func (b *fixture) head() eventstore.Position {
	b.Helper()
	head, err := b.store.Head(b.ctx)
	if err != nil {
		b.Fatalf("head: %v", err)
	}
	return head
}

// same compares the events read with the events appended, from a revision on.
func (b *fixture) same(
	stream string, first eventstore.Revision, read []eventstore.Recorded, want []eventstore.Proposed,
) {
	b.Helper()
	if len(read) != len(want) {
		b.Fatalf("got %d events, want %d", len(read), len(want))
	}
	for i, r := range read {
		if r.Stream != stream || r.Revision != first+eventstore.Revision(i) {
			b.Errorf("event %d is number %d of %s, want number %d of %s", i, r.Revision, r.Stream, first+eventstore.Revision(i),
				stream)
		}
		if r.ID != want[i].ID || r.Type != want[i].Type || !bytes.Equal(r.Data, want[i].Data) ||
			!bytes.Equal(r.Meta, want[i].Meta) {
			b.Errorf("event %d came back as %s %s, %d bytes with %d of metadata; want %s %s, %d and %d",
				i, r.ID, r.Type, len(r.Data), len(r.Meta), want[i].ID, want[i].Type, len(want[i].Data), len(want[i].Meta))
		}
		if r.Position == 0 {
			b.Errorf("event %d has position 0", i)
		}
		if i > 0 && r.Position <= read[i-1].Position {
			b.Errorf("event %d has position %d, not after %d", i, r.Position, read[i-1].Position)
		}
	}
}

func recordedIDs(read []eventstore.Recorded) []uuid.UUID {
	all := make([]uuid.UUID, len(read))
	for i, r := range read {
		all[i] = r.ID
	}
	return all
}
