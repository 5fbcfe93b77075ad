package esdb_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/runtest"
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
			wantError(b, what, call(), context.Canceled)
		}
	}},
}

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
		runtest.Must(b, err)
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

var subscribeTests = []test{
	{"catches up and continues", func(b *fixture) {
		before := b.head()
		name, early, late := b.stream(), events(50), events(50)
		b.append(name, eventstore.NoStream, early...)
		sub := b.subscribe(before)
		b.follow(sub, len(early), name)
		b.append(name, 49, late...)
		b.same(name, 50, b.follow(sub, len(late), name), late)
	}},
	{"begins after its position", func(b *fixture) {
		name, both := b.stream(), events(2)
		b.append(name, eventstore.NoStream, both...)
		read := b.all(name)
		b.same(name, 1, b.follow(b.subscribe(read[0].Position), 1, name), both[1:])
	}},
	{"from the very beginning", func(b *fixture) {
		name, one := b.stream(), events(1)
		b.append(name, eventstore.NoStream, one...)
		b.same(name, 0, b.follow(b.subscribe(0), 1, name), one)
	}},
	{"has neither gap nor double under concurrent appends", subscribeUnderLoad},
	{"delivers the system's events too", func(b *fixture) {
		name := b.stream()
		done := b.append(name, eventstore.NoStream, events(1)...)
		sub := b.subscribe(done.Position)
		for i, end := range []eventstore.Position{b.delete(name, 0), b.tombstone(b.stream(), eventstore.NoStream)} {
			for {
				r, err := sub.Next(b.ctx)
				if err != nil {
					b.Fatalf("end %d: %v", i, err)
				}
				if r.Position == end {
					if !r.System() {
						b.Errorf("end %d is %s of %s", i, r.Type, r.Stream)
					}
					break
				}
			}
		}
	}},
	{"waits no longer than its context", func(b *fixture) {
		sub := b.subscribe(b.head())
		ctx, cancel := context.WithCancel(b.ctx)
		waiting := make(chan error, 1)
		go func() {
			for {
				if _, err := sub.Next(ctx); err != nil {
					waiting <- err
					return
				}
			}
		}()
		cancel()
		select {
		case err := <-waiting:
			wantError(b, "the error", err, context.Canceled)
		case <-b.ctx.Done():
			b.Error("still waiting")
		}
	}},
	{"ends when closed, or with its context", func(b *fixture) {
		ctx, cancel := context.WithCancel(b.ctx)
		for what, end := range map[string]func(eventstore.Subscription){
			"closed":    func(s eventstore.Subscription) { b.close(s) },
			"cancelled": func(eventstore.Subscription) { cancel() },
		} {
			sub, err := b.store.Subscribe(ctx, b.head())
			if err != nil {
				b.Fatalf("%s: subscribe: %v", what, err)
			}
			end(sub)
			for {
				if _, err := sub.Next(b.ctx); err != nil {
					break
				}
			}
			if b.ctx.Err() != nil {
				b.Errorf("%s: still open", what)
			}
			b.close(sub)
			ctx, cancel = context.WithCancel(b.ctx)
		}
		cancel()
	}},
}

// subscribeUnderLoad opens subscriptions at different positions while eight writers append. It
// checks that each subscription delivers every event after its position once.
func subscribeUnderLoad(b *fixture) {
	const writers, each, readers = 8, 60, 4
	before := b.head()
	names := make([]string, writers)
	for w := range names {
		names[w] = b.stream()
	}
	var writing, reading sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			for i := range each {
				if _, err := b.store.Append(b.ctx, names[w], eventstore.Revision(i)-1, events(1)); err != nil {
					b.Errorf("append: %v", err)
					return
				}
			}
		})
	}
	got := make([][]uuid.UUID, readers)
	for i := range readers {
		reading.Go(func() {
			sub, err := b.store.Subscribe(b.ctx, before)
			if err != nil {
				b.Errorf("subscribe: %v", err)
				return
			}
			defer b.close(sub)
			for last := before; len(got[i]) < writers*each; {
				r, err := sub.Next(b.ctx)
				if err != nil {
					b.Errorf("reader %d after %d events: %v", i, len(got[i]), err)
					return
				}
				if r.Position <= last {
					b.Errorf("reader %d: event at %d after %d", i, r.Position, last)
				}
				last = r.Position
				if slices.Contains(names, r.Stream) {
					got[i] = append(got[i], r.ID)
				}
			}
		})
	}
	writing.Wait()
	reading.Wait()
	want := recordedIDs(b.pages(before, 500, names...))
	for i := range got {
		if !slices.Equal(got[i], want) {
			b.Errorf("reader %d has %d events, want %d in the order of the log", i, len(got[i]), len(want))
		}
	}
}

func (b *fixture) subscribe(after eventstore.Position) eventstore.Subscription {
	b.Helper()
	sub, err := b.store.Subscribe(b.ctx, after)
	if err != nil {
		b.Fatalf("subscribe after %d: %v", after, err)
	}
	b.Cleanup(func() { b.close(sub) })
	return sub
}

func (b *fixture) close(sub eventstore.Subscription) {
	b.Helper()
	if err := sub.Close(); err != nil {
		b.Errorf("close the subscription: %v", err)
	}
}

// follow waits for n events of a stream.
func (b *fixture) follow(sub eventstore.Subscription, n int, name string) []eventstore.Recorded {
	b.Helper()
	var got []eventstore.Recorded
	for _, r := range b.followAll(sub, n, name) {
		if r.Stream == name {
			got = append(got, r)
		}
	}
	return got
}

// followAll waits for n events of a stream, and returns them with all events in between.
func (b *fixture) followAll(sub eventstore.Subscription, n int, name string) []eventstore.Recorded {
	b.Helper()
	var got []eventstore.Recorded
	for n > 0 {
		r, err := sub.Next(b.ctx)
		if err != nil {
			b.Fatalf("after %d events: %v", len(got), err)
		}
		if len(got) > 0 && r.Position <= got[len(got)-1].Position {
			b.Fatalf("event at %d after %d", r.Position, got[len(got)-1].Position)
		}
		got = append(got, r)
		if r.Stream == name {
			n--
		}
	}
	return got
}
