package feed_test

import (
	"context"
	"encoding/json"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/eventstore/feed"
)

// The feed passes Watermill's own suite. The suite publishes single messages and reads single
// messages, so adapters stand between: a message is published as an event of a stream named after
// its topic, and a page is split into the events of that stream. A checkpoint moves with each
// acknowledged message.
//
// The suite skips what these features exclude. Several subscribers of one topic do not share its
// messages (RequireSingleInstance): a lease gives each projection one reader.
func TestFeed_WatermillSuite(t *testing.T) {
	codec := eventstoretest.Codec(t)
	shared := &suiteLog{
		memory: eventstoretest.NewMemory(), codec: codec,
		revisions: map[string]eventstore.Revision{}, checkpoints: map[string]eventstore.Position{},
	}
	group := func(_ *testing.T, name string) (message.Publisher, message.Subscriber) {
		return suitePublisher{shared}, &suiteSubscriber{
			log: shared, group: name, feed: feed.New(shared.memory, codec, shared.checkpoint, quiet()),
			closing: make(chan struct{}),
		}
	}
	tests.TestPubSub(t, tests.Features{
		ConsumerGroups: true, GuaranteedOrder: true, Persistent: true, RequireSingleInstance: true, ForceShort: true,
	}, func(t *testing.T) (message.Publisher, message.Subscriber) { return group(t, "default") }, group)
}

// suiteLog is the log that all publishers and subscribers of the suite share.
type suiteLog struct {
	memory *eventstoretest.Memory
	codec  *eventstore.Codec

	mu          sync.Mutex
	revisions   map[string]eventstore.Revision // the last one of each stream
	checkpoints map[string]eventstore.Position // by the name of the feed's topic
}

func (l *suiteLog) checkpoint(_ context.Context, topic string) (eventstore.Position, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.checkpoints[topic], nil
}

func (l *suiteLog) advance(topic string, to eventstore.Position) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.checkpoints[topic] = max(l.checkpoints[topic], to)
}

// suitePublisher appends messages to the stream of their topic.
type suitePublisher struct{ log *suiteLog }

func (p suitePublisher) Publish(topic string, messages ...*message.Message) error {
	p.log.mu.Lock()
	defer p.log.mu.Unlock()
	for _, m := range messages {
		id, err := uuid.Parse(m.UUID)
		if err != nil {
			return err
		}
		meta, err := json.Marshal(m.Metadata)
		if err != nil {
			return err
		}
		last, ok := p.log.revisions[topic]
		if !ok {
			last = eventstore.NoStream
		}
		done, err := p.log.memory.Append(context.Background(), topic, last,
			[]eventstore.Proposed{{ID: id, Type: "suite.message.v1", Data: m.Payload, Meta: meta}})
		if err != nil {
			return err
		}
		p.log.revisions[topic] = done.Revision
	}
	return nil
}

func (suitePublisher) Close() error { return nil }

// suiteSubscriber splits the pages of a feed into messages.
type suiteSubscriber struct {
	log   *suiteLog
	group string
	feed  *feed.Feed

	closeOnce sync.Once
	closing   chan struct{}
	running   sync.WaitGroup
}

// Close answers the pages that are out first: the suite leaves messages without an answer, and the
// feed waits for each. It returns when every channel of messages is closed, as the suite demands.
func (s *suiteSubscriber) Close() error {
	s.closeOnce.Do(func() { close(s.closing) })
	err := s.feed.Close()
	s.running.Wait()
	return err
}

func (s *suiteSubscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	name := s.group + "/" + topic
	pages, err := s.feed.Subscribe(ctx, name)
	if err != nil {
		return nil, err
	}
	out := make(chan *message.Message)
	s.running.Go(func() {
		defer close(out)
		for page := range pages {
			if s.deliver(page, name, topic, out) {
				page.Ack()
			} else {
				feed.Rewind(page)
				page.Nack()
			}
		}
	})
	return out, nil
}

// deliver hands over the messages of a page one by one until each is acknowledged. It reports false
// if the page ended before.
func (s *suiteSubscriber) deliver(page *message.Message, name, topic string, out chan<- *message.Message) bool {
	content, _ := feed.PageOf(page)
	for _, f := range content.Events {
		for acked := f.Stream != topic; !acked; {
			ok := false
			if acked, ok = s.deliverOne(page.Context(), f, out); !ok {
				return false
			}
		}
		s.log.advance(name, f.Position)
	}
	return true
}

func (s *suiteSubscriber) deliverOne(
	ctx context.Context, f eventstore.DecodedEvent, out chan<- *message.Message,
) (acked, ok bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m := message.NewMessageWithContext(ctx, f.ID.String(), f.Data)
	if err := json.Unmarshal(f.Meta, &m.Metadata); err != nil {
		return false, false
	}
	select {
	case out <- m:
	case <-ctx.Done():
		return false, false
	case <-s.closing:
		return false, false
	}
	select {
	case <-m.Acked():
		return true, true
	case <-m.Nacked():
		return false, true
	case <-ctx.Done():
		return false, false
	case <-s.closing:
		return false, false
	}
}
