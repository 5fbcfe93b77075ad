package feed_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/eventstore/feed"
)

var (
	meta  = event.NewMeta("test", time.Now())
	later = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
)

// countingStore counts the calls that the feed is to be thrifty with.
type countingStore struct {
	*eventstoretest.Memory
	subscriptions, reads atomic.Int64
}

func (s *countingStore) Subscribe(ctx context.Context, after eventstore.Position) (eventstore.Subscription, error) {
	s.subscriptions.Add(1)
	return s.Memory.Subscribe(ctx, after)
}

func (s *countingStore) ReadAll(
	ctx context.Context, after eventstore.Position, limit int,
) ([]eventstore.Recorded, error) {
	s.reads.Add(1)
	return s.Memory.ReadAll(ctx, after, limit)
}

// flakyStore fails every so many calls, and drops every subscription after a while.
type flakyStore struct {
	*eventstoretest.Memory
	calls atomic.Int64
}

var errFlaky = errors.New("flaky")

func (s *flakyStore) fails() error {
	if s.calls.Add(1)%4 == 1 {
		return fmt.Errorf("%w: %w", eventstore.ErrUnavailable, errFlaky)
	}
	return nil
}

func (s *flakyStore) Head(ctx context.Context) (eventstore.Position, error) {
	if err := s.fails(); err != nil {
		return 0, err
	}
	return s.Memory.Head(ctx)
}

func (s *flakyStore) ReadAll(ctx context.Context, after eventstore.Position, limit int) ([]eventstore.Recorded, error) {
	if err := s.fails(); err != nil {
		return nil, err
	}
	return s.Memory.ReadAll(ctx, after, limit)
}

func (s *flakyStore) Subscribe(ctx context.Context, after eventstore.Position) (eventstore.Subscription, error) {
	if err := s.fails(); err != nil {
		return nil, err
	}
	sub, err := s.Memory.Subscribe(ctx, after)
	if err != nil {
		return nil, err
	}
	return &flakySubscription{Subscription: sub, left: 1 + rand.IntN(200)}, nil
}

type flakySubscription struct {
	eventstore.Subscription
	left int
}

func (s *flakySubscription) Next(ctx context.Context) (eventstore.Recorded, error) {
	if s.left--; s.left < 0 {
		return eventstore.Recorded{}, fmt.Errorf("%w: %w", eventstore.ErrUnavailable, errFlaky)
	}
	return s.Subscription.Next(ctx)
}

func TestTopics_UnderLoad(t *testing.T) {
	underLoad(t, nil)
}

func TestTopics_StoreFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		underLoad(t, func(m *eventstoretest.Memory) eventstore.Store { return &flakyStore{Memory: m} })
	})
}

// underLoad has topics of all tempers read while others write: quick ones, slow ones, ones that
// come late, that refuse pages, and whose database falls back.
func underLoad(t *testing.T, wrap func(*eventstoretest.Memory) eventstore.Store) {
	const writers, appends, topics = 4, 400, 6
	r := newFixture(t, wrap)
	r.append(700)
	var writing sync.WaitGroup
	var total atomic.Int64
	total.Store(700)
	for range writers {
		writing.Go(func() {
			for range appends {
				n := 1 + rand.IntN(8)
				events := make([]eventstore.Proposed, n)
				for i := range events {
					events[i] = r.proposed(i)
				}
				if _, err := r.memory.Append(r.ctx, "project-"+uuid.NewString(), eventstore.NoStream, events); err != nil {
					t.Errorf("append: %v", err)
					return
				}
				total.Add(int64(n))
			}
		})
	}
	finished := make(chan struct{})
	var reading sync.WaitGroup
	built := make([]reader, topics)
	for i := range topics {
		reading.Go(func() { r.readUnderLoad(fmt.Sprint("topic ", i), i, &built[i], finished, &total) })
	}
	writing.Wait()
	close(finished)
	reading.Wait()
	written := r.written()
	for i, b := range built {
		if !slices.Equal(b.ids, written) {
			t.Errorf("topic %d built %d events, want the %d of the log in their order", i, len(b.ids), len(written))
		}
	}
	r.close()
}

func (r *fixture) readUnderLoad(
	topic string, temper int, built *reader, finished <-chan struct{}, total *atomic.Int64,
) {
	messages, err := r.feed.Subscribe(r.ctx, topic)
	if err != nil {
		r.Errorf("subscribe: %v", err)
		return
	}
	for {
		if finished == nil && int64(len(built.ids)) == total.Load() {
			return
		}
		select {
		case <-finished: // also while no page comes, since all were read before
			finished = nil
		case msg, open := <-messages:
			if !open {
				r.Errorf("%s: the channel was closed after %d events: %v", topic, len(built.ids), r.ctx.Err())
				return
			}
			page, _ := feed.PageOf(msg)
			switch {
			case temper == 1 && rand.IntN(3) == 0:
				msg.Nack()
				continue
			case temper == 2 && len(built.ids) > 0 && rand.IntN(5) == 0:
				// The database falls back by up to some hundred events, and reports it when the page does not fit.
				keep := max(0, len(built.ids)-rand.IntN(900))
				built.ids, built.at = built.ids[:keep], 0
				if keep > 0 {
					built.at = r.positionOf(built.ids[keep-1])
				}
				r.setCheckpoint(topic, built.at)
				feed.Rewind(msg)
				msg.Nack()
				continue
			case temper == 3:
				// Slow: it lets others run in between.
				for range 200 {
					r.head()
				}
			}
			if err := built.apply(page); err != nil {
				r.Errorf("%s: %v", topic, err)
				msg.Nack()
				return
			}
			r.setCheckpoint(topic, built.at)
			msg.Ack()
		case <-time.After(hangLimit):
			r.Errorf("%s: no page came after %d of %d events", topic, len(built.ids), total.Load())
			return
		}
	}
}

func TestTopic_DroppedSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counting := &countingStore{}
		r := newFixture(t, func(m *eventstoretest.Memory) eventstore.Store { counting.Memory = m; return counting })
		messages := r.subscribe(r.ctx, "access")
		var built reader
		for i := range 10 {
			r.append(1)
			if err := built.apply(r.ack(messages)); err != nil {
				t.Fatal(err)
			}
			r.memory.DropSubscriptions()
			synctest.Wait()
			// What is written while nobody listens comes too.
			r.append(1)
			if err := built.apply(r.ack(messages)); err != nil {
				t.Fatal(err)
			}
			if n := counting.subscriptions.Load(); n != int64(i+2) {
				t.Fatalf("%d subscriptions after %d drops", n, i+1)
			}
		}
		if !slices.Equal(built.ids, r.written()) {
			t.Errorf("built %d events of %d", len(built.ids), len(r.written()))
		}
		r.close()
	})
}

func TestTopic_UnreadableCheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, nil)
		r.append(1)
		tries := 0
		f := feed.New(r.memory, r.codec, func(ctx context.Context, topic string) (eventstore.Position, error) {
			if tries++; tries < 20 {
				return 0, errFlaky
			}
			return r.checkpoint(ctx, topic)
		}, quiet())
		messages, err := f.Subscribe(t.Context(), "access")
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if all := f.Status(); len(all) != 1 || !errors.Is(all[0].Err, errFlaky) {
			t.Errorf("status is %+v, want %v", all, errFlaky)
		}
		msg, _ := take(t.Context(), t, messages)
		msg.Ack()
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
}
