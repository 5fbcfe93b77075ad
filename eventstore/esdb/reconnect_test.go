package esdb_test

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/esdb"
	"github.com/annals-project/annals/eventstore/node/nodetest"
)

// reconnects is how often the connections are cut: ANNALS_RECONNECTS, or few.
func reconnects(t *testing.T) int {
	t.Helper()
	text := os.Getenv("ANNALS_RECONNECTS")
	if text == "" {
		return 60
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 20 {
		t.Fatalf("ANNALS_RECONNECTS is %q, want a number from 20 on", text)
	}
	return n
}

// TestReconnects_NoLeak cuts all connections again and again while many calls are on
// them, and then counts what there is of connections, goroutines and memory.
func TestReconnects_NoLeak(t *testing.T) {
	const connections, callers, early = 2, 8, 10
	rounds := reconnects(t)
	conn := startNode(t)
	w := nodetest.NewWire(t, conn.Addr)
	conn.Addr = w.Addr()
	store := open(t, conn, connections)
	ctx := within(t, hangLimit+time.Duration(rounds)*time.Second)

	working, stop := context.WithCancel(ctx)
	defer stop()
	var done atomic.Int64
	var running sync.WaitGroup
	for range callers {
		running.Go(func() {
			stream, at := "account-"+uuid.NewString(), eventstore.NoStream
			for working.Err() == nil {
				events := []eventstore.Proposed{{ID: uuid.New(), Type: "thing.done.v1", Data: []byte(`{}`), Meta: []byte(`{}`)}}
				appended, err := eventstore.AppendUntilKnown(ctx, store, stream, at, events)
				if err != nil || appended.Revision != at+1 {
					t.Errorf("append at %d: %+v, %v", at, appended, err)
					return
				}
				at++
				if _, _, err := store.ReadLast(ctx, stream); err != nil && !errors.Is(err, eventstore.ErrUnavailable) {
					t.Errorf("read: %v", err)
					return
				}
				done.Add(1)
			}
		})
	}
	running.Go(func() { follow(working, t, store) })

	var before resources
	for round := range rounds {
		next := done.Load() + callers
		until(ctx, t, "calls go on", func() bool { return done.Load() >= next })
		if round == early {
			before = settled(ctx, t, w, connections)
		}
		w.Cut()
	}
	next := done.Load() + callers
	until(ctx, t, "calls go on", func() bool { return done.Load() >= next })
	after := settled(ctx, t, w, connections)
	_, ever := w.Clients()
	t.Logf("%d cuts, %d connections; goroutines %d, then %d; heap %d KiB, then %d KiB", rounds, ever, before.goroutines,
		after.goroutines, before.heap>>10, after.heap>>10)
	if ever < rounds {
		t.Errorf("only %d connections in %d rounds", ever, rounds)
	}
	// Calls come and go, and each has some goroutines on either side.
	if grown := after.goroutines - before.goroutines; grown > 6*callers {
		t.Errorf("%d goroutines more after %d rounds", grown, rounds-early)
	}
	if grown := int64(after.heap) - int64(before.heap); grown > 16<<20 {
		t.Errorf("%d KiB more memory after %d rounds", grown>>10, rounds-early)
	}
	stop()
	running.Wait()
	if err := store.Close(); err != nil {
		t.Error(err)
	}
	until(ctx, t, "all connections are closed", func() bool { open, _ := w.Clients(); return open == 0 })
}

// follow subscribes whenever it must, and proves that every event comes once and in order.
func follow(ctx context.Context, t *testing.T, store *esdb.Store) {
	after := eventstore.Position(0)
	last := map[string]eventstore.Revision{}
	for ctx.Err() == nil {
		sub, err := store.Subscribe(ctx, after)
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, eventstore.ErrUnavailable) {
				t.Errorf("subscribe: %v", err)
			}
			continue
		}
		for {
			r, err := sub.Next(ctx)
			if err != nil {
				if ctx.Err() == nil && !errors.Is(err, eventstore.ErrUnavailable) {
					t.Errorf("follow: %v", err)
				}
				break
			}
			if before, known := last[r.Stream]; r.Position <= after || known && r.Revision != before+1 ||
				!known && r.Revision != 0 {
				t.Errorf("event %d of %s at %d came after event %d, at %d", r.Revision, r.Stream, r.Position, before, after)
			}
			after, last[r.Stream] = r.Position, r.Revision
		}
		if err := sub.Close(); err != nil {
			t.Error(err)
		}
	}
}

type resources struct {
	goroutines int
	heap       uint64
}

// settled waits until no more connections than expected are open, and counts. The subscription may
// still use a client that was retired, and grpc may have opened its connection again.
func settled(ctx context.Context, t *testing.T, w *nodetest.Wire, connections int) resources {
	t.Helper()
	until(
		ctx, t, "no connection is open that nobody uses",
		func() bool { open, _ := w.Clients(); return open <= connections+1 },
	)
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return resources{goroutines: runtime.NumGoroutine(), heap: m.HeapAlloc}
}

// until waits for something to become true.
func until(ctx context.Context, t *testing.T, what string, happened func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !happened() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("never: %s", what)
		}
	}
}
