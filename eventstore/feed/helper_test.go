package feed_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/project"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/eventstore/feed"
	"github.com/annals-project/annals/internal/runtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hangLimit bounds a test that hangs; it is far beyond what a slow machine needs.
const hangLimit = 5 * time.Minute

// fixture is a feed over a store in memory, with checkpoints that follow the acknowledged pages.
type fixture struct {
	*testing.T
	ctx    context.Context
	memory *eventstoretest.Memory
	codec  *eventstore.Codec
	feed   *feed.Feed

	mu sync.Mutex
	at map[string]eventstore.Position
	// asked counts the questions for each checkpoint.
	asked map[string]int
}

// newFixture puts a feed over the store that wrap makes of the one in memory; nil takes that one as
// it is.
func newFixture(t *testing.T, wrap func(*eventstoretest.Memory) eventstore.Store) *fixture {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hangLimit)
	t.Cleanup(cancel)
	codec := eventstoretest.Codec(t)
	r := &fixture{
		T:      t,
		ctx:    ctx,
		memory: eventstoretest.NewMemory(),
		codec:  codec,
		at:     map[string]eventstore.Position{},
		asked:  map[string]int{},
	}
	var store eventstore.Store = r.memory
	if wrap != nil {
		store = wrap(r.memory)
	}
	r.feed = feed.New(store, codec, r.checkpoint, quiet())
	t.Cleanup(r.close)
	return r
}

func (r *fixture) close() {
	if err := r.feed.Close(); err != nil {
		r.Errorf("close the feed: %v", err)
	}
}

func (r *fixture) checkpoint(_ context.Context, topic string) (eventstore.Position, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked[topic]++
	return r.at[topic], nil
}

func (r *fixture) setCheckpoint(topic string, at eventstore.Position) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at[topic] = at
}

// proposed is an event that bears a number.
func (r *fixture) proposed(n int) eventstore.Proposed {
	r.Helper()
	p, err := r.codec.Encode(&project.KeyCreated{Name: fmt.Sprint(n)}, 0, event.NewMeta("test", time.Now()))
	runtest.Must(r, err)
	return p
}

// append stores n events in a stream of their own, in one go.
func (r *fixture) append(n int) {
	r.Helper()
	events := make([]eventstore.Proposed, n)
	for i := range events {
		events[i] = r.proposed(i)
	}
	if _, err := r.memory.Append(r.ctx, "project-"+uuid.NewString(), eventstore.NoStream, events); err != nil {
		r.Fatal(err)
	}
}

func (r *fixture) head() eventstore.Position {
	r.Helper()
	head, err := r.memory.Head(r.ctx)
	runtest.Must(r, err)
	return head
}

// written is the whole log.
func (r *fixture) written() []uuid.UUID {
	r.Helper()
	var all []uuid.UUID
	for after := eventstore.Position(0); ; {
		page, err := r.memory.ReadAll(r.ctx, after, 1000)
		runtest.Must(r, err)
		if len(page) == 0 {
			return all
		}
		for _, e := range page {
			all = append(all, e.ID)
		}
		after = page[len(page)-1].Position
	}
}

func (r *fixture) subscribe(ctx context.Context, topic string) <-chan *message.Message {
	r.Helper()
	messages, err := r.feed.Subscribe(ctx, topic)
	if err != nil {
		r.Fatalf("subscribe %s: %v", topic, err)
	}
	return messages
}

// take waits for the next message and its page.
func (r *fixture) take(messages <-chan *message.Message) (*message.Message, feed.Page) {
	r.Helper()
	return take(r.ctx, r.T, messages)
}

// take waits for the next message and its page until the context ends.
func take(ctx context.Context, t testing.TB, messages <-chan *message.Message) (*message.Message, feed.Page) {
	t.Helper()
	select {
	case msg, open := <-messages:
		if !open {
			t.Fatalf("the channel was closed where a page was to come; the test was given up: %v", ctx.Err())
		}
		page, ok := feed.PageOf(msg)
		if !ok {
			t.Fatal("the message holds no page")
		}
		return msg, page
	case <-ctx.Done():
		t.Fatalf("no page came: %v", ctx.Err())
	}
	return nil, feed.Page{}
}

// ack takes the next page and acknowledges it.
func (r *fixture) ack(messages <-chan *message.Message) feed.Page {
	r.Helper()
	msg, page := r.take(messages)
	msg.Ack()
	return page
}

// closed waits until the channel is closed; what still comes is refused.
func (r *fixture) closed(messages <-chan *message.Message) {
	r.Helper()
	for {
		select {
		case msg, open := <-messages:
			if !open {
				return
			}
			msg.Nack()
		case <-r.ctx.Done():
			r.Fatal("the channel stays open")
		}
	}
}

func numbers(page feed.Page) []string {
	names := make([]string, len(page.Events))
	for i, f := range page.Events {
		names[i] = f.Event.(*project.KeyCreated).Name
	}
	return names
}

// reader builds what a projector would: it applies pages in order, and proves of each that it
// follows the one before.
type reader struct {
	at  eventstore.Position
	ids []uuid.UUID
}

func (r *reader) apply(p feed.Page) error {
	switch {
	case p.After != r.at:
		return fmt.Errorf("page after %d was handed over at %d", p.After, r.at)
	case len(p.Events) == 0 || len(p.Events) > feed.PageEvents:
		return fmt.Errorf("page of %d events", len(p.Events))
	case p.Events[len(p.Events)-1].Position != p.Next:
		return fmt.Errorf("page ends at %d, but its last fact is at %d", p.Next, p.Events[len(p.Events)-1].Position)
	}
	last := p.After
	for _, f := range p.Events {
		if f.Position <= last {
			return fmt.Errorf("fact at %d after %d", f.Position, last)
		}
		last = f.Position
		r.ids = append(r.ids, f.ID)
	}
	r.at = p.Next
	return nil
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }
