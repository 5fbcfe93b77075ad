package esdb_test

import (
	"context"
	"errors"
	"math"
	"slices"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
)

var readTests = []test{
	{"a stream that never was", func(b *fixture) {
		for _, direction := range []eventstore.Direction{eventstore.Forwards, eventstore.Backwards} {
			if read := b.read(b.stream(), 0, direction, 10); len(read) != 0 {
				b.Errorf("direction %d: %d events", direction, len(read))
			}
		}
		if last, ok, err := b.store.ReadLast(b.ctx, b.stream()); ok || err != nil {
			b.Errorf("last: %+v, %t, %v", last, ok, err)
		}
	}},
	{"both ways from anywhere", func(b *fixture) {
		name, stored := b.stream(), events(10)
		b.append(name, eventstore.NoStream, stored...)
		forwards := ids(stored)
		backwards := slices.Clone(forwards)
		slices.Reverse(backwards)
		for _, c := range []struct {
			from      eventstore.Revision
			direction eventstore.Direction
			limit     int
			want      []uuid.UUID
		}{
			{0, eventstore.Forwards, 10, forwards},
			{0, eventstore.Forwards, 1000, forwards},
			{0, eventstore.Forwards, 3, forwards[:3]},
			{0, eventstore.Forwards, 0, forwards[:0]},
			{4, eventstore.Forwards, 3, forwards[4:7]},
			{9, eventstore.Forwards, 3, forwards[9:]},
			{10, eventstore.Forwards, 3, nil},
			{math.MaxInt64, eventstore.Backwards, 1000, backwards},
			{math.MaxInt64, eventstore.Backwards, 2, backwards[:2]},
			{9, eventstore.Backwards, 2, backwards[:2]},
			{4, eventstore.Backwards, 3, backwards[5:8]},
			{4, eventstore.Backwards, 1000, backwards[5:]},
			{0, eventstore.Backwards, 3, backwards[9:]},
			{eventstore.NoStream, eventstore.Backwards, 3, nil},
		} {
			got := recordedIDs(b.read(name, c.from, c.direction, c.limit))
			if !slices.Equal(got, c.want) {
				b.Errorf("from %d, direction %d, limit %d: %s", c.from, c.direction, c.limit, cmp.Diff(c.want, got))
			}
		}
	}},
	{"the last event", func(b *fixture) {
		name, stored := b.stream(), events(5)
		for i, e := range stored {
			b.append(name, eventstore.Revision(i)-1, e)
			last, ok, err := b.store.ReadLast(b.ctx, name)
			if err != nil || !ok || last.ID != e.ID || last.Revision != eventstore.Revision(i) {
				b.Fatalf("after event %d: %+v, %t, %v", i, last, ok, err)
			}
		}
	}},
	{"what was just written", func(b *fixture) {
		name := b.stream()
		for i := range 50 {
			e := noted("again")
			done := b.append(name, eventstore.Revision(i)-1, e)
			if read := b.read(name, done.Revision, eventstore.Forwards, 1); len(read) != 1 || read[0].ID != e.ID ||
				read[0].Position != done.Position {
				b.Fatalf("event %d: read %+v after %+v", i, read, done)
			}
		}
	}},
	{"raw bytes", func(b *fixture) {
		name, raw := b.stream(), chunk(512<<10)
		b.append(name, eventstore.NoStream, raw)
		b.same(name, 0, b.all(name), []eventstore.Proposed{raw})
	}},
	{"under a context that has ended", func(b *fixture) {
		name := b.stream()
		b.append(name, eventstore.NoStream, events(1)...)
		ctx, cancel := context.WithCancel(b.ctx)
		cancel()
		for what, call := range map[string]func() error{
			"read":      func() error { _, err := b.store.Read(ctx, name, 0, eventstore.Forwards, 1); return err },
			"last":      func() error { _, _, err := b.store.ReadLast(ctx, name); return err },
			"all":       func() error { _, err := b.store.ReadAll(ctx, 0, 1); return err },
			"at":        func() error { _, _, err := b.store.ReadAt(ctx, 1); return err },
			"head":      func() error { _, err := b.store.Head(ctx); return err },
			"subscribe": func() error { _, err := b.store.Subscribe(ctx, 0); return err },
			"delete":    func() error { _, err := b.store.Delete(ctx, name, 0); return err },
			"tombstone": func() error { _, err := b.store.Tombstone(ctx, name, 0); return err },
			"truncate":  func() error { return b.store.Truncate(ctx, name, 0) },
		} {
			if err := call(); !errors.Is(err, context.Canceled) {
				b.Errorf("%s: %v", what, err)
			}
		}
	}},
}
