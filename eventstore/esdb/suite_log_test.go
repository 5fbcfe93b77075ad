package esdb_test

import (
	"errors"
	"slices"
	"sync"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
)

var logTests = []test{
	{"is read in order and exclusively", func(b *fixture) {
		before := b.head()
		name, other := b.stream(), b.stream()
		var want []uuid.UUID
		for i := range 20 {
			one, two := noted("one"), noted("two")
			b.append(name, eventstore.Revision(i)-1, one)
			b.append(other, eventstore.Revision(i)-1, two)
			want = append(want, one.ID, two.ID)
		}
		for _, limit := range []int{1, 2, 7, 40, 1000} {
			got := b.pages(before, limit, name, other)
			if !slices.Equal(recordedIDs(got), want) {
				b.Errorf("in pages of %d: %d events, want %d in the order of appending", limit, len(got), len(want))
			}
		}
	}},
	{"begins after position 0", func(b *fixture) {
		name, first := b.stream(), noted("somewhere")
		b.append(name, eventstore.NoStream, first)
		if got := b.pages(0, 500, name); len(got) != 1 || got[0].ID != first.ID {
			b.Errorf("got %+v", got)
		}
	}},
	{"ends at its head", func(b *fixture) {
		name := b.stream()
		done := b.append(name, eventstore.NoStream, events(3)...)
		head := b.head()
		if head < done.Position {
			b.Fatalf("head is %d after an append at %d", head, done.Position)
		}
		if head == done.Position {
			if read, err := b.store.ReadAll(b.ctx, head, 10); err != nil || len(read) != 0 {
				b.Errorf("after the head: %+v, %v", read, err)
			}
		}
	}},
	{"has a head that readers reach, whatever the system wrote", func(b *fixture) {
		before := b.head()
		deleted, gone := b.stream(), b.stream()
		b.append(deleted, eventstore.NoStream, noted("to be deleted"))
		b.append(gone, eventstore.NoStream, noted("to be gone"))
		ends := []eventstore.Position{b.delete(deleted, 0), b.tombstone(gone, 0)}
		for range 5 {
			ends = append(ends, b.tombstone(b.stream(), eventstore.NoStream))
		}
		for i, end := range ends {
			if head := b.head(); head < end {
				b.Errorf("head %d is below end %d at %d", head, i, end)
			}
		}
		for after, head := before, b.head(); after < head; {
			read, err := b.store.ReadAll(b.ctx, after, 100)
			if err != nil || len(read) == 0 {
				b.Fatalf("the log ends at %d, before its head at %d: %v", after, head, err)
			}
			for _, r := range read {
				ends = slices.DeleteFunc(ends, func(end eventstore.Position) bool { return end == r.Position })
			}
			after = read[len(read)-1].Position
		}
		if len(ends) > 0 {
			b.Errorf("a reader never came to the ends at %d", ends)
		}
	}},
	{"distinguishes the system's events", func(b *fixture) {
		before := b.head()
		name := b.stream()
		one := noted("one")
		b.append(name, eventstore.NoStream, one)
		end := b.delete(name, 0)
		two := noted("two")
		b.append(name, 0, two)
		own := map[uuid.UUID]bool{one.ID: true, two.ID: true}
		for _, r := range b.pagesAll(before, 3) {
			if r.Stream != name && r.Stream != "$$"+name {
				continue
			}
			if r.System() == own[r.ID] {
				b.Errorf("%s of %s: the system's is %t", r.Type, r.Stream, r.System())
			}
			if r.Position == end && !r.System() {
				b.Errorf("the end at %d is %s of %s", end, r.Type, r.Stream)
			}
		}
	}},
	{"is read at a position", func(b *fixture) {
		name, stored := b.stream(), events(3)
		b.append(name, eventstore.NoStream, stored...)
		for _, want := range b.all(name) {
			r, ok, err := b.store.ReadAt(b.ctx, want.Position)
			if err != nil || !ok || r.ID != want.ID || r.Position != want.Position {
				b.Errorf("at %d: %+v, %t, %v", want.Position, r, ok, err)
			}
		}
		for _, at := range []eventstore.Position{0, b.head() + 1<<40} {
			if r, ok, err := b.store.ReadAt(b.ctx, at); ok || err != nil && !errors.Is(err, eventstore.ErrNoEvent) {
				b.Errorf("at %d: %+v, %t, %v", at, r, ok, err)
			}
		}
	}},
	{"answers large pages in parts", func(b *fixture) {
		before := b.head()
		name := b.stream()
		var want []uuid.UUID
		for i := range 24 {
			big := chunk(512 << 10)
			b.append(name, eventstore.Revision(i)-1, big)
			want = append(want, big.ID)
		}
		first, err := b.store.ReadAll(b.ctx, before, 1000)
		if err != nil {
			b.Fatal(err)
		}
		size := 0
		for _, r := range first {
			size += r.Size()
		}
		if size > eventstore.MaxPage+eventstore.MaxAppend {
			b.Errorf("one page has %d bytes", size)
		}
		if got := b.pages(before, 1000, name); !slices.Equal(recordedIDs(got), want) {
			b.Errorf("%d events, want %d", len(got), len(want))
		}
	}},
	{"gives each reader the same order", func(b *fixture) {
		before := b.head()
		const writers, each = 8, 40
		names := make([]string, writers)
		var all sync.WaitGroup
		for w := range writers {
			names[w] = b.stream()
			all.Go(func() {
				for i := range each {
					done, err := b.store.Append(b.ctx, names[w], eventstore.Revision(i)-1, events(1))
					if err != nil {
						b.Errorf("append: %v", err)
						return
					}
					// An acknowledged event is not above the head, and is read.
					head, err := b.store.Head(b.ctx)
					if err != nil || head < done.Position {
						b.Errorf("head %d, %v after an append at %d", head, err, done.Position)
						return
					}
				}
			})
		}
		all.Wait()
		got := b.pages(before, 33, names...)
		if len(got) != writers*each {
			b.Fatalf("%d events, want %d", len(got), writers*each)
		}
		next := map[string]eventstore.Revision{}
		for i, r := range got {
			if r.Revision != next[r.Stream] {
				b.Errorf("event %d is number %d of %s, want %d", i, r.Revision, r.Stream, next[r.Stream])
			}
			next[r.Stream] = r.Revision + 1
		}
		if again := b.pages(before, 100, names...); !slices.Equal(recordedIDs(again), recordedIDs(got)) {
			b.Error("a second read has another order")
		}
	}},
}

// pages reads the log after a position to its end in pages, and returns the events of the named
// streams.
func (b *fixture) pages(after eventstore.Position, limit int, names ...string) []eventstore.Recorded {
	b.Helper()
	return slices.DeleteFunc(
		b.pagesAll(after, limit),
		func(r eventstore.Recorded) bool { return r.System() || !slices.Contains(names, r.Stream) },
	)
}

func (b *fixture) pagesAll(after eventstore.Position, limit int) []eventstore.Recorded {
	b.Helper()
	var got []eventstore.Recorded
	for {
		page, err := b.store.ReadAll(b.ctx, after, limit)
		if err != nil {
			b.Fatalf("read %d after %d: %v", limit, after, err)
		}
		if len(page) == 0 {
			return got
		}
		if len(page) > limit {
			b.Fatalf("%d events, want at most %d", len(page), limit)
		}
		for _, r := range page {
			if r.Position <= after {
				b.Fatalf("event at %d after %d", r.Position, after)
			}
			after = r.Position
		}
		got = append(got, page...)
	}
}
