package esdb_test

import (
	"errors"

	"github.com/annals-project/annals/eventstore"
)

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
		if _, err := b.store.Delete(b.ctx, b.stream(), eventstore.NoStream); !errors.Is(err, eventstore.ErrConflict) {
			b.Errorf("got %v", err)
		}
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
		if err := b.store.Truncate(b.ctx, name, 0); !errors.Is(err, eventstore.ErrConflict) {
			b.Errorf("nothing: %v", err)
		}
		b.append(name, eventstore.NoStream, stored...)
		for _, before := range []eventstore.Revision{eventstore.NoStream, 2, 9} {
			if err := b.store.Truncate(b.ctx, name, before); !errors.Is(err, eventstore.ErrConflict) {
				b.Errorf("before %d: %v", before, err)
			}
		}
		b.same(name, 0, b.all(name), stored)
		b.delete(name, 1)
		if err := b.store.Truncate(b.ctx, name, 1); !errors.Is(err, eventstore.ErrConflict) {
			b.Errorf("deleted: %v", err)
		}
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
		if err := call(); !errors.Is(err, eventstore.ErrDeleted) {
			b.Errorf("%s: %v", what, err)
		}
	}
}
