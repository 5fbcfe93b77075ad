package esdb_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
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
