package feed_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/eventstore/feed"
	"github.com/annals-project/annals/eventstore/node"
	"github.com/annals-project/annals/eventstore/node/nodetest"
)

// newNode starts a node in memory and opens a store of it, over another address if via names one.
func newNode(t testing.TB, via func(addr string) string) (eventstore.Store, *eventstore.Codec) {
	t.Helper()
	conn := nodetest.Start(t, node.Config{}).Connection()
	if via != nil {
		conn.Addr = via(conn.Addr)
	}
	cfg := nodetest.ConfigOf(conn)
	cfg.Connections = 2
	return nodetest.Open(t, cfg), eventstoretest.Codec(t)
}

// TestTopics_BrokenConnections has writers and readers of a real node whose
// connections are cut again and again.
func TestTopics_BrokenConnections(t *testing.T) {
	const writers, each, topics, cutEvery = 4, 100, 3, 20
	ctx, cancel := context.WithTimeout(t.Context(), 2*hangLimit)
	defer cancel()
	var w *nodetest.Wire
	store, codec := newNode(t, func(addr string) string {
		w = nodetest.NewWire(t, addr)
		return w.Addr()
	})
	f := feed.New(store, codec, noCheckpoint, quiet())
	built := make([]reader, topics)
	var reading, writing sync.WaitGroup
	for i := range topics {
		messages, err := f.Subscribe(ctx, string(rune('a'+i)))
		if err != nil {
			t.Fatal(err)
		}
		reading.Go(func() {
			own := 0
			for msg := range messages {
				page, _ := feed.PageOf(msg)
				if err := built[i].apply(page); err != nil {
					t.Errorf("topic %d: %v", i, err)
				}
				msg.Ack()
				for _, fact := range page.Events {
					if !fact.System() {
						own++
					}
				}
				if own >= writers*each {
					return
				}
			}
		})
	}
	var stored atomic.Int64
	for range writers {
		writing.Go(func() {
			name := "project-" + uuid.NewString()
			for at := eventstore.NoStream; at < each-1; at++ {
				done, err := eventstore.AppendUntilKnown(ctx, store, name, at, []eventstore.Proposed{accepted(t, codec)})
				if err != nil || done.Revision != at+1 {
					t.Errorf("append at %d: %+v, %v", at, done, err)
					return
				}
				if stored.Add(1)%cutEvery == 0 {
					w.Cut()
				}
			}
			events := readWhole(ctx, t, store, name)
			if len(events) != each {
				t.Errorf("%d events are stored, want %d", len(events), each)
			}
		})
	}
	writing.Wait()
	reading.Wait()
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	for i := 1; i < topics; i++ {
		if n := len(built[0].ids); len(built[i].ids) != n || !slices.Equal(built[i].ids, built[0].ids) {
			t.Errorf("topics 0 and %d built %d and %d events, or in another order", i, n, len(built[i].ids))
		}
	}
}

// readWhole reads a stream over connections that break.
func readWhole(ctx context.Context, t *testing.T, store eventstore.Store, name string) []eventstore.Recorded {
	for {
		events, err := store.Read(ctx, name, 0, eventstore.Forwards, 1000)
		if err == nil {
			return events
		}
		if !errors.Is(err, eventstore.ErrUnavailable) {
			t.Errorf("read: %v", err)
			return nil
		}
	}
}
