package esdb_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/internal/runtest"
)

var appendTests = []test{
	{"to a stream without events", func(b *fixture) {
		name, first := b.stream(), events(3)
		done := b.append(name, eventstore.NoStream, first...)
		read := b.all(name)
		b.same(name, 0, read, first)
		if done.Revision != 2 || done.Position != read[2].Position {
			b.Errorf("answered %+v, want revision 2 at %d", done, read[2].Position)
		}
		if since := time.Since(read[0].Created); since < -time.Hour || since > time.Hour {
			b.Errorf("created %s ago", since)
		}
	}},
	{"after the last revision", func(b *fixture) {
		name, first, second := b.stream(), events(2), events(2)
		before := b.append(name, eventstore.NoStream, first...)
		after := b.append(name, 1, second...)
		if after.Revision != 3 || after.Position <= before.Position {
			b.Errorf("answered %+v after %+v", after, before)
		}
		b.same(name, 0, b.all(name), append(first, second...))
	}},
	{"at another revision is a conflict", func(b *fixture) {
		name, stored := b.stream(), events(3)
		b.appendFails(name, 0, eventstore.ErrConflict, noted("beyond an empty stream"))
		b.append(name, eventstore.NoStream, stored...)
		for _, at := range []eventstore.Revision{eventstore.NoStream, 0, 1, 3, 1 << 40} {
			b.appendFails(name, at, eventstore.ErrConflict, noted("late"))
		}
		b.same(name, 0, b.all(name), stored)
	}},
	{"repeated is answered again", func(b *fixture) {
		name, first, second := b.stream(), events(3), events(2)
		one := b.append(name, eventstore.NoStream, first...)
		if again := b.append(name, eventstore.NoStream, first...); again != one {
			b.Errorf("at the end of the stream: answered %+v, then %+v", one, again)
		}
		two := b.append(name, 2, second...)
		if again := b.append(name, eventstore.NoStream, first...); again != one {
			b.Errorf("with others after it: answered %+v, then %+v", one, again)
		}
		if again := b.append(name, 2, second...); again != two {
			b.Errorf("after others: answered %+v, then %+v", two, again)
		}
		b.same(name, 0, b.all(name), append(first, second...))
	}},
	{"repeated with other bytes keeps the first ones", func(b *fixture) {
		name, stored := b.stream(), events(2)
		one, again := b.append(name, eventstore.NoStream, stored...), slices.Clone(stored)
		for i := range again {
			again[i].Data, again[i].Meta = []byte(`{"again":true}`), []byte(`{"schema":1,"again":true}`)
		}
		if done := b.append(name, eventstore.NoStream, again...); done != one {
			b.Errorf("answered %+v, then %+v", one, done)
		}
		b.same(name, 0, b.all(name), stored)
	}},
	{"repeated in part", func(b *fixture) {
		name, stored := b.stream(), events(4)
		b.append(name, eventstore.NoStream, stored...)
		// A prefix of the stored events is stored already.
		done := b.append(name, eventstore.NoStream, stored[:2]...)
		if done.Revision != 1 || done.Position != b.all(name)[1].Position {
			b.Errorf("first half: answered %+v", done)
		}
		done = b.append(name, 1, stored[2:3]...)
		if done.Revision != 2 {
			b.Errorf("third of four: answered %+v", done)
		}
		// More events than are stored, another order or another event is a conflict.
		b.appendFails(name, 1, eventstore.ErrConflict, stored[2], stored[3], noted("one more"))
		b.appendFails(name, 1, eventstore.ErrConflict, stored[3], stored[2])
		b.appendFails(name, 1, eventstore.ErrConflict, stored[2], noted("another"))
		b.appendFails(name, 1, eventstore.ErrConflict, noted("another"), stored[3])
		b.appendFails(name, 0, eventstore.ErrConflict, stored[2:]...)
		b.same(name, 0, b.all(name), stored)
	}},
	{"of ids that are in another stream is new", func(b *fixture) {
		one, other, same := b.stream(), b.stream(), events(2)
		b.append(one, eventstore.NoStream, same...)
		b.append(other, eventstore.NoStream, same...)
		b.same(other, 0, b.all(other), same)
	}},
	{"that fails stores nothing", func(b *fixture) {
		name := b.stream()
		b.appendFails(name, 5, eventstore.ErrConflict, events(10)...)
		b.appendFails(name, eventstore.NoStream, eventstore.ErrTooLarge, noted("small"), chunk(eventstore.MaxAppend))
		if read := b.all(name); len(read) != 0 {
			b.Errorf("%d events are stored", len(read))
		}
	}},
	{"of the largest size", func(b *fixture) {
		name, half := b.stream(), chunk(eventstore.MaxAppend/2)
		rest := chunk(0)
		rest.Data = make([]byte, eventstore.MaxAppend-half.Size()-rest.Size())
		b.append(name, eventstore.NoStream, half, rest)
		b.same(name, 0, b.all(name), []eventstore.Proposed{half, rest})
		rest.ID, rest.Data = uuid.New(), append(rest.Data, 0)
		b.appendFails(name, 1, eventstore.ErrTooLarge, half, rest)
	}},
	{"of many events", func(b *fixture) {
		name, many := b.stream(), events(3000)
		done := b.append(name, eventstore.NoStream, many...)
		if done.Revision != 2999 {
			b.Errorf("answered %+v", done)
		}
		b.same(name, 0, b.all(name), many)
	}},
	{"of an event without data and metadata", func(b *fixture) {
		name, bare := b.stream(), eventstore.Proposed{ID: uuid.New(), Type: "conformance.bare.v1"}
		b.append(name, eventstore.NoStream, bare)
		b.same(name, 0, b.all(name), []eventstore.Proposed{bare})
	}},
	{"of invalid events is refused permanently", func(b *fixture) {
		name := b.stream()
		nameless, anonymous := noted("no type"), noted("no id")
		nameless.Type, anonymous.ID = "", uuid.Nil
		for what, call := range map[string]func() error{
			"no events": func() error { _, err := b.store.Append(b.ctx, name, eventstore.NoStream, nil); return err },
			"no type": func() error {
				_, err := b.store.Append(b.ctx, name, eventstore.NoStream, []eventstore.Proposed{nameless})
				return err
			},
			"no id": func() error {
				_, err := b.store.Append(b.ctx, name, eventstore.NoStream, []eventstore.Proposed{anonymous})
				return err
			},
			"no revision": func() error { _, err := b.store.Append(b.ctx, name, -2, events(1)); return err },
		} {
			err := call()
			if err == nil || errors.Is(err, eventstore.ErrUnknown) || errors.Is(err, eventstore.ErrConflict) {
				b.Errorf("%s: %v", what, err)
			}
		}
		if read := b.all(name); len(read) != 0 {
			b.Errorf("%d events are stored", len(read))
		}
	}},
	{"under a context that has ended", func(b *fixture) {
		name := b.stream()
		ctx, cancel := context.WithCancel(b.ctx)
		cancel()
		if _, err := b.store.Append(ctx, name, eventstore.NoStream, events(1)); !errors.Is(err, context.Canceled) ||
			errors.Is(err, eventstore.ErrUnknown) {
			b.Errorf("got %v, want %v and nothing unknown about it", err, context.Canceled)
		}
		if read := b.all(name); len(read) != 0 {
			b.Errorf("%d events are stored", len(read))
		}
	}},
	{"race for each revision has one winner", raceForRevisions},
	{"race of the same append has one outcome", raceOfOneAppend},
}

// raceForRevisions runs 32 writers. Each reads the last revision and appends one event after it,
// until the stream is full.
func raceForRevisions(b *fixture) {
	const writers, length = 32, 96
	name := b.stream()
	var mu sync.Mutex
	won := map[eventstore.Revision]uuid.UUID{}
	lost := 0
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for {
				last, ok, err := b.store.ReadLast(b.ctx, name)
				if err != nil {
					b.Errorf("read last: %v", err)
					return
				}
				at := eventstore.NoStream
				if ok {
					at = last.Revision
				}
				if at >= length-1 {
					return
				}
				mine := noted("race")
				done, err := b.store.Append(b.ctx, name, at, []eventstore.Proposed{mine})
				mu.Lock()
				switch {
				case errors.Is(err, eventstore.ErrConflict):
					lost++
				case err != nil:
					b.Errorf("append at %d: %v", at, err)
				case done.Revision != at+1:
					b.Errorf("append at %d: answered %d", at, done.Revision)
				case won[done.Revision] != uuid.Nil:
					b.Errorf("revision %d was won twice", done.Revision)
				default:
					won[done.Revision] = mine.ID
				}
				mu.Unlock()
				if err != nil && !errors.Is(err, eventstore.ErrConflict) {
					return
				}
			}
		})
	}
	all.Wait()
	read := b.all(name)
	if len(read) != length || len(won) != length {
		b.Fatalf("%d events are stored and %d were won, want %d (%d races were lost)", len(read), len(won), length, lost)
	}
	for i, r := range read {
		if r.ID != won[eventstore.Revision(i)] {
			b.Errorf("revision %d is %s, but the store acknowledged %s", i, r.ID, won[eventstore.Revision(i)])
		}
	}
}

// raceOfOneAppend runs 32 callers that repeat one append concurrently, as after a lost answer.
func raceOfOneAppend(b *fixture) {
	name, same := b.stream(), events(3)
	answers := make([]eventstore.Appended, 32)
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() {
			done, err := b.store.Append(b.ctx, name, eventstore.NoStream, same)
			if err != nil {
				b.Errorf("append: %v", err)
			}
			answers[i] = done
		})
	}
	all.Wait()
	if distinct := slices.Compact(answers); len(distinct) != 1 || distinct[0].Revision != 2 {
		b.Errorf("answers differ: %+v", distinct)
	}
	b.same(name, 0, b.all(name), same)
}

var endTests = []test{
	{"deleted stream reads as none and continues after its last revision", func(b *fixture) {
		name, stored, later := b.stream(), events(3), events(2)
		b.append(name, eventstore.NoStream, stored...)
		b.delete(name, 2)
		b.empty(name)
		b.appendFails(name, 0, eventstore.ErrConflict, noted("not behind the last"))
		done := b.append(name, 2, later...)
		if done.Revision != 4 {
			b.Errorf("answered %+v", done)
		}
		b.same(name, 3, b.all(name), later)
		if again := b.append(name, 2, later...); again != done {
			b.Errorf("repeated: answered %+v, then %+v", done, again)
		}
		b.same(name, 3, b.all(name), later)
	}},
	{"deleted stream accepts an append as to a new stream", func(b *fixture) {
		name, later := b.stream(), events(2)
		b.append(name, eventstore.NoStream, events(3)...)
		b.delete(name, 2)
		if done := b.append(name, eventstore.NoStream, later...); done.Revision != 4 {
			b.Errorf("answered %+v", done)
		}
		b.same(name, 3, b.all(name), later)
	}},
	{"deleted stream stays in the log", func(b *fixture) {
		before := b.head()
		name, stored := b.stream(), events(3)
		b.append(name, eventstore.NoStream, stored...)
		b.delete(name, 2)
		b.same(name, 0, b.pages(before, 10, name), stored)
	}},
	{"deletion at another revision is a conflict", func(b *fixture) {
		name, stored := b.stream(), events(3)
		b.append(name, eventstore.NoStream, stored...)
		for _, at := range []eventstore.Revision{eventstore.NoStream, 0, 1, 3} {
			if _, err := b.store.Delete(b.ctx, name, at); !errors.Is(err, eventstore.ErrConflict) {
				b.Errorf("delete at %d: %v", at, err)
			}
			if _, err := b.store.Tombstone(b.ctx, name, at); !errors.Is(err, eventstore.ErrConflict) {
				b.Errorf("tombstone at %d: %v", at, err)
			}
		}
		b.same(name, 0, b.all(name), stored)
	}},
	{"deletion of an unknown stream is a conflict", func(b *fixture) {
		wantError(b, "delete", errorOf(b.store.Delete(b.ctx, b.stream(), eventstore.NoStream)), eventstore.ErrConflict)
	}},
	{"tombstoned stream is gone permanently", func(b *fixture) {
		name, stored := b.stream(), events(3)
		b.append(name, eventstore.NoStream, stored...)
		b.tombstone(name, 2)
		b.gone(name, 2)
		b.appendFails(name, eventstore.NoStream, eventstore.ErrDeleted, stored...)
	}},
	{"tombstone of a stream that never had an event", func(b *fixture) {
		name := b.stream()
		b.tombstone(name, eventstore.NoStream)
		b.gone(name, eventstore.NoStream)
	}},
	{"tombstone of a deleted stream", func(b *fixture) {
		name := b.stream()
		b.append(name, eventstore.NoStream, events(2)...)
		b.delete(name, 1)
		b.tombstone(name, 1)
		b.gone(name, 1)
	}},
	{"truncated stream retains its last events and continues", func(b *fixture) {
		name, stored := b.stream(), events(4)
		b.append(name, eventstore.NoStream, stored...)
		b.truncate(name, 0)
		b.same(name, 0, b.all(name), stored)
		b.truncate(name, 2)
		b.same(name, 2, b.all(name), stored[2:])
		b.truncate(name, 2)
		b.truncate(name, 1) // restores nothing
		b.same(name, 2, b.all(name), stored[2:])
		b.appendFails(name, eventstore.NoStream, eventstore.ErrConflict, noted("not new"))
		later := events(2)
		if done := b.append(name, 3, later...); done.Revision != 5 {
			b.Errorf("answered %+v", done)
		}
		b.truncate(name, 5)
		b.same(name, 5, b.all(name), later[1:])
		if last, ok, err := b.store.ReadLast(b.ctx, name); !ok || err != nil || last.Revision != 5 {
			b.Errorf("last: %+v, %t, %v", last, ok, err)
		}
	}},
	{"truncated stream is ended as any other", func(b *fixture) {
		name := b.stream()
		b.append(name, eventstore.NoStream, events(2)...)
		b.truncate(name, 1)
		b.tombstone(name, 1)
		b.gone(name, 1)
	}},
	{"truncation refuses the last event and an unknown stream", func(b *fixture) {
		name, stored := b.stream(), events(2)
		wantError(b, "nothing", b.store.Truncate(b.ctx, name, 0), eventstore.ErrConflict)
		b.append(name, eventstore.NoStream, stored...)
		for _, before := range []eventstore.Revision{eventstore.NoStream, 2, 9} {
			if err := b.store.Truncate(b.ctx, name, before); !errors.Is(err, eventstore.ErrConflict) {
				b.Errorf("before %d: %v", before, err)
			}
		}
		b.same(name, 0, b.all(name), stored)
		b.delete(name, 1)
		wantError(b, "deleted", b.store.Truncate(b.ctx, name, 1), eventstore.ErrConflict)
	}},
}

func (b *fixture) truncate(name string, before eventstore.Revision) {
	b.Helper()
	if err := b.store.Truncate(b.ctx, name, before); err != nil {
		b.Fatalf("truncate before %d: %v", before, err)
	}
}

func (b *fixture) delete(name string, at eventstore.Revision) eventstore.Position {
	b.Helper()
	position, err := b.store.Delete(b.ctx, name, at)
	if err != nil || position == 0 {
		b.Fatalf("delete at %d: %d, %v", at, position, err)
	}
	return position
}

func (b *fixture) tombstone(name string, at eventstore.Revision) eventstore.Position {
	b.Helper()
	position, err := b.store.Tombstone(b.ctx, name, at)
	if err != nil || position == 0 {
		b.Fatalf("tombstone at %d: %d, %v", at, position, err)
	}
	return position
}

func (b *fixture) empty(name string) {
	b.Helper()
	if read := b.all(name); len(read) != 0 {
		b.Errorf("%d events are still read", len(read))
	}
	if last, ok, err := b.store.ReadLast(b.ctx, name); ok || err != nil {
		b.Errorf("last: %+v, %t, %v", last, ok, err)
	}
}

// gone checks that every call on a tombstoned stream returns ErrDeleted.
func (b *fixture) gone(name string, at eventstore.Revision) {
	b.Helper()
	b.appendFails(name, at, eventstore.ErrDeleted, noted("too late"))
	for what, call := range map[string]func() error{
		"read":            func() error { _, err := b.store.Read(b.ctx, name, 0, eventstore.Forwards, 1); return err },
		"read backwards":  func() error { _, err := b.store.Read(b.ctx, name, 1, eventstore.Backwards, 1); return err },
		"last":            func() error { _, _, err := b.store.ReadLast(b.ctx, name); return err },
		"delete":          func() error { _, err := b.store.Delete(b.ctx, name, at); return err },
		"truncate":        func() error { return b.store.Truncate(b.ctx, name, 1) },
		"tombstone again": func() error { _, err := b.store.Tombstone(b.ctx, name, at); return err },
	} {
		wantError(b, what, call(), eventstore.ErrDeleted)
	}
}

// conformsInScavenge checks that a scavenge of a store removes from the log what was deleted, and nothing else. The
// last event of a deleted stream stays, since the stream may continue.
func conformsInScavenge(t *testing.T, store eventstore.Store, scavenge func(context.Context) error) {
	ctx, cancel := context.WithTimeout(t.Context(), suiteLimit)
	defer cancel()
	b := &fixture{T: t, ctx: ctx, store: store}
	before := b.head()
	var want []uuid.UUID
	write := func(events []eventstore.Proposed, left int) string {
		name := b.stream()
		b.append(name, eventstore.NoStream, events...)
		want = append(want, ids(events[len(events)-left:])...)
		return name
	}
	whole, truncated, deleted, ended := write(events(3), 3), write(events(3), 1), write(events(3), 1), write(events(3), 0)
	continued, later := write(events(3), 0), events(2)
	runtest.Must(t, store.Truncate(ctx, truncated, 2))
	b.delete(deleted, 2)
	runtest.Must(t, errorOf(store.Tombstone(ctx, ended, 2)))
	b.delete(continued, 2)
	b.append(continued, 2, later...)
	want = append(want, ids(later)...)
	runtest.Must(t, scavenge(ctx))
	var left []uuid.UUID
	for _, r := range eventstoretest.All(t, store, before) {
		if !r.System() {
			left = append(left, r.ID)
		}
	}
	if !slices.Equal(left, want) {
		t.Errorf("the log has %d events, want %d: %v, %v", len(left), len(want), left, want)
	}
	b.empty(deleted)
	if len(b.all(whole)) != 3 || len(b.all(truncated)) != 1 || len(b.all(continued)) != 2 {
		t.Errorf("streams have %d, %d and %d events", len(b.all(whole)), len(b.all(truncated)), len(b.all(continued)))
	}
	if after := b.head(); after <= before {
		t.Errorf("the head went from %d to %d", before, after)
	}
	b.append(whole, 2, noted("after"))
}
