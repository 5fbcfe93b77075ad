package feed_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/eventstore/feed"
	"github.com/annals-project/annals/internal/runtest"
)

func TestTopics_LaggingShareReads(t *testing.T) {
	counting := &countingStore{}
	r := newFixture(t, func(m *eventstoretest.Memory) eventstore.Store { counting.Memory = m; return counting })
	const pages = 6
	for range pages {
		r.append(feed.PageEvents)
	}
	var topics []<-chan *message.Message
	for i := range 4 {
		topics = append(topics, r.subscribe(r.ctx, fmt.Sprint(i)))
	}
	built := make([]reader, len(topics))
	for range pages {
		for i, messages := range topics {
			runtest.Must(t, built[i].apply(r.ack(messages)))
		}
	}
	for i, b := range built {
		if !slices.Equal(b.ids, r.written()) {
			t.Errorf("topic %d built %d events of %d", i, len(b.ids), len(r.written()))
		}
	}
	if n := counting.reads.Load(); n > pages {
		t.Errorf("%d pages were read %d times", pages, n)
	}
}

func TestReads_OldPagesDropped(t *testing.T) {
	counting := &countingStore{}
	r := newFixture(t, func(m *eventstoretest.Memory) eventstore.Store { counting.Memory = m; return counting })
	const pages = 24
	for range pages {
		r.append(feed.PageEvents)
	}
	quick, slow := r.subscribe(r.ctx, "quick"), r.subscribe(r.ctx, "slow")
	var ahead, lagging reader
	for range pages {
		runtest.Must(t, ahead.apply(r.ack(quick)))
	}
	if n := counting.reads.Load(); n > pages {
		t.Errorf("%d pages were read %d times", pages, n)
	}
	for range pages {
		runtest.Must(t, lagging.apply(r.ack(slow)))
	}
	// The slow one reads most of them again: what it would need all along is too much to keep.
	if n := counting.reads.Load(); n < pages+pages/2 || n > 2*pages {
		t.Errorf("%d pages were read %d times by two", pages, n)
	}
	if !slices.Equal(ahead.ids, lagging.ids) {
		t.Error("the topics built different things")
	}
}

// erasingStore hides the oldest events, as a store does that took them from its log, but not from
// its head.
type erasingStore struct {
	*eventstoretest.Memory
	erased eventstore.Position
}

func (s *erasingStore) ReadAll(
	ctx context.Context, after eventstore.Position, limit int,
) ([]eventstore.Recorded, error) {
	return s.Memory.ReadAll(ctx, max(after, s.erased), limit)
}

func TestTopic_ErasedEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		erasing := &erasingStore{}
		r := newFixture(t, func(m *eventstoretest.Memory) eventstore.Store { erasing.Memory = m; return erasing })
		r.append(10)
		erasing.erased = r.head()
		messages := r.subscribe(r.ctx, "access")
		synctest.Wait()
		r.append(1)
		if page := r.ack(messages); page.After != 0 || len(page.Events) != 1 || page.Next != r.head() {
			t.Errorf("page after %d up to %d with %d events, want 1 after 0 up to %d", page.After, page.Next, len(page.Events),
				r.head())
		}
		r.close()
	})
}

// lateStore holds back the answer of its first read of the log, which is then of long ago.
type lateStore struct {
	erasingStore
	reads   atomic.Int64
	release chan struct{}
}

func (s *lateStore) ReadAll(ctx context.Context, after eventstore.Position, limit int) ([]eventstore.Recorded, error) {
	events, err := s.erasingStore.ReadAll(ctx, after, limit)
	if s.reads.Add(1) == 1 {
		<-s.release
	}
	return events, err
}

func TestReads_OldHeadIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := &lateStore{release: make(chan struct{})}
		r := newFixture(t, func(m *eventstoretest.Memory) eventstore.Store { late.Memory = m; return late })
		r.append(10)
		late.erased = r.head()
		first := r.subscribe(r.ctx, "first")
		synctest.Wait()
		// By now the feed has reported to the first topic that there is nothing, and the topic has not
		// received that yet. More events arrive than the feed keeps.
		const more = 6000
		for range more / 500 {
			r.append(500)
		}
		synctest.Wait()
		second := r.subscribe(r.ctx, "second")
		synctest.Wait()
		close(late.release)
		for name, messages := range map[string]<-chan *message.Message{"first": first, "second": second} {
			var built reader
			for len(built.ids) < more {
				if err := built.apply(r.ack(messages)); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
			}
			if !slices.Equal(built.ids, r.written()[10:]) {
				t.Errorf("%s built %d other facts", name, len(built.ids))
			}
		}
		r.close()
	})
}

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
			runtest.Must(t, built.apply(r.ack(messages)))
			r.memory.DropSubscriptions()
			synctest.Wait()
			// What is written while nobody listens comes too.
			r.append(1)
			runtest.Must(t, built.apply(r.ack(messages)))
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
		runtest.Must(t, err)
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

func accepted(b testing.TB, codec *eventstore.Codec) eventstore.Proposed {
	b.Helper()
	p, err := codec.Encode(&datapoint.RevisionAccepted{
		Send: datapoint.Send{
			ProjectID:   uuid.New(),
			IngestionID: uuid.New(),
			Items:       1,
			AcceptedAt:  later,
			RequestID:   uuid.New(),
			Bytes:       300,
			Month:       "2026-11",
		},
		States: datapoint.States{Effect: datapoint.State{
			SourceID: "bench", Revision: 1, LastNumber: 1, Content: strings.Repeat("0", 64), OccurredAt: later, IngestionID: uuid.New(),
		}},
		Body: datapoint.Body{Content: datapoint.Text{Inline: strings.Repeat("memory ", 43)}},
	}, 0, event.NewMeta("key:bench", time.Now()))
	runtest.Must(b, err)
	return p
}

func noCheckpoint(context.Context, string) (eventstore.Position, error) { return 0, nil }

// BenchmarkReplay measures how many events a second topics read from the beginning if they apply
// none.
func BenchmarkReplay(b *testing.B) {
	const total, each = 100_000, 500
	store, codec := newNode(b, nil)
	for range total / each {
		events := make([]eventstore.Proposed, each)
		for i := range events {
			events[i] = accepted(b, codec)
		}
		name := stream.Name(stream.DataPoint, uuid.New())
		if _, err := store.Append(b.Context(), name, eventstore.NoStream, events); err != nil {
			b.Fatal(err)
		}
	}
	for _, topics := range []int{1, 4} {
		b.Run(fmt.Sprint("topics=", topics), func(b *testing.B) {
			begun := time.Now()
			for b.Loop() {
				f := feed.New(store, codec, noCheckpoint, quiet())
				done := make(chan struct{}, topics)
				for i := range topics {
					messages, err := f.Subscribe(b.Context(), fmt.Sprint(i))
					runtest.Must(b, err)
					go func() {
						n := 0
						for msg := range messages {
							page, _ := feed.PageOf(msg)
							msg.Ack()
							if n += len(page.Events); n >= total {
								break
							}
						}
						done <- struct{}{}
					}()
				}
				for range topics {
					<-done
				}
				runtest.Must(b, f.Close())
			}
			b.ReportMetric(float64(b.N*total)/time.Since(begun).Seconds(), "events/s")
		})
	}
}

// BenchmarkLive measures the time from an append until a topic receives its page.
func BenchmarkLive(b *testing.B) {
	store, codec := newNode(b, nil)
	f := feed.New(store, codec, noCheckpoint, quiet())
	messages, err := f.Subscribe(b.Context(), "live")
	runtest.Must(b, err)
	for b.Loop() {
		name, events := stream.Name(stream.DataPoint, uuid.New()), []eventstore.Proposed{accepted(b, codec)}
		if _, err := store.Append(b.Context(), name, eventstore.NoStream, events); err != nil {
			b.Fatal(err)
		}
		msg, _ := take(b.Context(), b, messages)
		msg.Ack()
	}
	runtest.Must(b, f.Close())
}
