package esdb_test

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
)

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
			if !errors.Is(err, context.Canceled) {
				b.Errorf("got %v, want %v", err, context.Canceled)
			}
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
