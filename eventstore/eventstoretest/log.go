package eventstoretest

import (
	"slices"
	"strings"
	"sync"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
)

var logTests = []test{
	{"is read in order and exclusively", func(b *bench) {
		before := b.head()
		name, other := b.stream(), b.stream()
		var want []uuid.UUID
		for i := range 20 {
			one, two := event("one"), event("two")
			b.append(name, eventstore.Revision(i)-1, one)
			b.append(other, eventstore.Revision(i)-1, two)
			want = append(want, one.ID, two.ID)
		}
		for _, limit := range []int{1, 2, 7, 40, 1000} {
			got := b.pages(before, limit, name, other)
			if !slices.Equal(ids(got), want) {
				b.Errorf("in pages of %d: %d events, want %d in the order of appending", limit, len(got), len(want))
			}
		}
	}},
	{"begins behind position 0", func(b *bench) {
		name, first := b.stream(), event("somewhere")
		b.append(name, eventstore.NoStream, first)
		if got := b.pages(0, 500, name); len(got) != 1 || got[0].ID != first.ID {
			b.Errorf("got %+v", got)
		}
	}},
	{"ends at its head", func(b *bench) {
		name := b.stream()
		done := b.append(name, eventstore.NoStream, events(3)...)
		head := b.head()
		if head < done.Position {
			b.Fatalf("head is %d after an append at %d", head, done.Position)
		}
		if head == done.Position {
			if read, err := b.store.ReadAll(b.ctx, head, 10); err != nil || len(read) != 0 {
				b.Errorf("behind the head: %+v, %v", read, err)
			}
		}
	}},
	{"has a head that readers come to, whatever the system wrote", func(b *bench) {
		name, deleted, gone := b.stream(), b.stream(), b.stream()
		done := b.append(name, eventstore.NoStream, event("last"))
		b.append(deleted, eventstore.NoStream, event("to be deleted"))
		newest := b.append(gone, eventstore.NoStream, event("to be gone"))
		if _, err := b.store.Delete(b.ctx, deleted, 0); err != nil {
			b.Fatal(err)
		}
		if _, err := b.store.Tombstone(b.ctx, gone, 0); err != nil {
			b.Fatal(err)
		}
		for range 2 {
			head := b.head()
			if head < newest.Position {
				b.Errorf("head %d is below the event at %d", head, newest.Position)
			}
			for after := done.Position; after < head; {
				read, err := b.store.ReadAll(b.ctx, after, 100)
				if err != nil || len(read) == 0 {
					b.Fatalf("the log ends at %d, before its head at %d: %v", after, head, err)
				}
				after = read[len(read)-1].Position
			}
		}
		// Tombstones and soft deletes in a row at the end, one after each look at the head.
		for range 5 {
			end := b.stream()
			if _, err := b.store.Tombstone(b.ctx, end, eventstore.NoStream); err != nil {
				b.Fatal(err)
			}
			if head := b.head(); head < newest.Position {
				b.Errorf("head %d fell below %d", head, newest.Position)
			}
		}
		more := b.append(name, 0, event("behind the system's"))
		if head := b.head(); head < more.Position {
			b.Errorf("head %d is below the event at %d", head, more.Position)
		}
	}},
	{"leaves the system's events out", func(b *bench) {
		before := b.head()
		name := b.stream()
		b.append(name, eventstore.NoStream, events(2)...)
		if _, err := b.store.Delete(b.ctx, name, 1); err != nil {
			b.Fatal(err)
		}
		b.append(name, 1, events(1)...)
		for after := before; ; {
			read, err := b.store.ReadAll(b.ctx, after, 3)
			if err != nil {
				b.Fatal(err)
			}
			if len(read) == 0 {
				break
			}
			for _, r := range read {
				if strings.HasPrefix(r.Type, "$") || strings.HasPrefix(r.Stream, "$") {
					b.Errorf("%s of %s was answered", r.Type, r.Stream)
				}
			}
			after = read[len(read)-1].Position
		}
	}},
	{"goes on behind a stretch of the system's events", func(b *bench) {
		before := b.head()
		for range 12 {
			if _, err := b.store.Tombstone(b.ctx, b.stream(), eventstore.NoStream); err != nil {
				b.Fatal(err)
			}
		}
		name, last := b.stream(), event("behind them")
		b.append(name, eventstore.NoStream, last)
		if got := b.pages(before, 2, name); len(got) != 1 || got[0].ID != last.ID {
			b.Errorf("got %+v", got)
		}
	}},
	{"answers large pages in parts", func(b *bench) {
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
		if got := b.pages(before, 1000, name); !slices.Equal(ids(got), want) {
			b.Errorf("%d events, want %d", len(got), len(want))
		}
	}},
	{"gives each reader the same order", func(b *bench) {
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
					// What was acknowledged is not above the head, and is read.
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
		if again := b.pages(before, 100, names...); !slices.Equal(ids(again), ids(got)) {
			b.Error("a second read has another order")
		}
	}},
}

// pages reads the log behind a position to its end in pages, and answers what belongs to the named streams.
func (b *bench) pages(after eventstore.Position, limit int, names ...string) []eventstore.Recorded {
	b.Helper()
	var got []eventstore.Recorded
	for {
		page, err := b.store.ReadAll(b.ctx, after, limit)
		if err != nil {
			b.Fatalf("read %d behind %d: %v", limit, after, err)
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
			if slices.Contains(names, r.Stream) {
				got = append(got, r)
			}
		}
	}
}
