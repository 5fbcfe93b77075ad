package feed_test

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/esdb"
	"github.com/annals-project/annals/eventstore/feed"
	"github.com/annals-project/annals/eventstore/node"
)

// newNode starts a node in memory and opens a store of it, over another address if via names one.
func newNode(t testing.TB, via func(addr string) string) (eventstore.Store, *eventstore.Codec) {
	t.Helper()
	n, err := node.Start(context.Background(), node.Config{Dir: "log", FS: vfs.NewMem(), Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	conn := n.Connection()
	if via != nil {
		conn.Addr = via(conn.Addr)
	}
	store, err := esdb.Open(esdb.Config{
		ConnectionString: conn.ConnectionString(), Username: conn.Username, Password: conn.Password, RootCAs: conn.RootCAs, Logger: quiet(), Connections: 2,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	codec, err := eventstore.NewCodec(domain.Catalog)
	if err != nil {
		t.Fatal(err)
	}
	return store, codec
}

// wire passes on bytes between the clients of an address and a server, until it is cut.
type wire struct {
	listener net.Listener
	running  sync.WaitGroup

	mu   sync.Mutex
	to   string
	open map[net.Conn]bool
}

func newWire(t *testing.T, to string) *wire {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{listener: listener, to: to, open: map[net.Conn]bool{}}
	w.running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", w.server())
			if err != nil { // a server that is down: the client sees its connection end
				_ = client.Close()
				continue
			}
			w.pass(client, server)
		}
	})
	t.Cleanup(func() {
		if err := listener.Close(); err != nil {
			t.Error(err)
		}
		w.cut()
		w.running.Wait()
	})
	return w
}

func (w *wire) server() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to
}

// lead lets new connections go to another server.
func (w *wire) lead(to string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.to = to
}

func (w *wire) pass(client, server net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for from, to := range map[net.Conn]net.Conn{client: server, server: client} {
		w.open[from] = true
		w.running.Go(func() {
			// Either end closing ends both; what the copy failed of is what the test is about.
			_, _ = io.Copy(to, from)
			_ = to.Close()
			_ = from.Close()
			w.mu.Lock()
			defer w.mu.Unlock()
			delete(w.open, from)
		})
	}
}

// cut breaks all connections.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for conn := range w.open {
		_ = conn.Close()
	}
}

// TestTopics_BrokenConnections has writers and readers of a real node whose
// connections are cut again and again.
func TestTopics_BrokenConnections(t *testing.T) {
	const writers, each, topics, cutEvery = 4, 100, 3, 20
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	var w *wire
	store, codec := newNode(t, func(addr string) string {
		w = newWire(t, addr)
		return w.listener.Addr().String()
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
					w.cut()
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
