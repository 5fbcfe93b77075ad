package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
)

// benchData is an event body of the size that a short text has.
var benchData = `{"text":"` + strings.Repeat("x", 500) + `"}`

var benchCallers = []int{1, 8, 32, 128}

// BenchmarkAppend is one event an append, each to a stream of its own, through a raw client over TLS, on the disk of the test.
func BenchmarkAppend(b *testing.B) {
	for _, callers := range benchCallers {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			n := startNode(b, Config{Dir: b.TempDir(), FS: vfs.Default})
			c := dial(b, n)
			spread(b, callers, func(ctx context.Context) error {
				resp, err := c.tryAppend(ctx, "bench-"+uuid.NewString(), none, newEvent(benchData))
				if err == nil && resp.GetSuccess() == nil {
					err = fmt.Errorf("append: %v", resp)
				}
				return err
			})
			s := n.Stats()
			b.ReportMetric(float64(s.Appends)/float64(max(s.Fsyncs, 1)), "appends/fsync")
		})
	}
}

// BenchmarkServiceAppend is BenchmarkAppend through the client that the service uses.
func BenchmarkServiceAppend(b *testing.B) { serviceAppend(b, vfs.Default) }

// BenchmarkServiceAppendUnsynced is the same without fsync: what remains is the processors' work.
func BenchmarkServiceAppendUnsynced(b *testing.B) { serviceAppend(b, unsynced{vfs.Default}) }

func serviceAppend(b *testing.B, fs vfs.FS) {
	for _, callers := range benchCallers {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			n := startNode(b, Config{Dir: b.TempDir(), FS: fs})
			store := serviceClient(b, n)
			spread(b, callers, func(ctx context.Context) error {
				_, err := store.Append(ctx, "bench-"+uuid.NewString(), eventstore.NoStream, figureEvents(1))
				return err
			})
			s := n.Stats()
			b.ReportMetric(float64(s.Appends)/float64(max(s.Fsyncs, 1)), "appends/fsync")
		})
	}
}

// BenchmarkServiceRead is the look at the last event of a stream that every decision begins with.
func BenchmarkServiceRead(b *testing.B) {
	for _, callers := range []int{1, 32} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			n := startNode(b, Config{Dir: b.TempDir(), FS: vfs.Default})
			store := serviceClient(b, n)
			const kept = 1000
			for i := range kept {
				if _, err := store.Append(b.Context(), fmt.Sprintf("bench-%d", i), eventstore.NoStream, figureEvents(1)); err != nil {
					b.Fatal(err)
				}
			}
			var turn atomic.Uint64
			spread(b, callers, func(ctx context.Context) error {
				_, ok, err := store.ReadLast(ctx, fmt.Sprintf("bench-%d", turn.Add(1)%kept))
				if err == nil && !ok {
					err = errors.New("there is no last event")
				}
				return err
			})
		})
	}
}

// BenchmarkAppendLarge is one chunk of a large content an append: 512 KiB that do not compress.
func BenchmarkAppendLarge(b *testing.B) {
	n := startNode(b, Config{Dir: b.TempDir(), FS: vfs.Default})
	c := dial(b, n)
	chunk := make([]byte, 512<<10)
	if _, err := rand.Read(chunk); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(chunk)))
	spread(b, 4, func(ctx context.Context) error {
		resp, err := c.tryAppend(ctx, "blob-"+uuid.NewString(), none, event{id: uuid.New(), typ: "chunk", data: string(chunk), raw: true})
		if err == nil && resp.GetSuccess() == nil {
			err = fmt.Errorf("append: %v", resp)
		}
		return err
	})
}

// BenchmarkBarePebble is what the storage engine alone makes of the same writes: one synced batch each.
func BenchmarkBarePebble(b *testing.B) {
	for _, callers := range benchCallers {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			st, err := openStore(Config{Dir: b.TempDir(), Logger: testLog(b)})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() {
				if err := st.close(); err != nil {
					b.Error(err)
				}
			})
			var mu sync.Mutex
			var position uint64
			spread(b, callers, func(context.Context) error {
				mu.Lock()
				position++
				at := position
				mu.Unlock()
				name := "bench-" + uuid.NewString()
				batch := st.db.NewBatch()
				record := propose(name, uuid.New(), "tested", true, []byte(benchData), nil).record(0, at, "16000000000000000")
				return errors.Join(batch.Set(eventKey(at), record, nil), batch.Set(revisionKey(at, 0), encodePosition(at), nil),
					batch.Set(streamKey(name), (&streamState{id: at}).encode(), nil), batch.Commit(pebble.Sync), batch.Close())
			})
		})
	}
}

// spread runs b.N calls on that many goroutines.
func spread(b *testing.B, callers int, call func(context.Context) error) {
	ctx := context.Background()
	work := make(chan struct{}, callers)
	failures := make(chan error, callers)
	var wg sync.WaitGroup
	cpu := cpuTime()
	b.ResetTimer()
	for range callers {
		wg.Go(func() {
			for range work {
				if err := call(ctx); err != nil {
					failures <- err
					return
				}
			}
			failures <- nil
		})
	}
	for range b.N {
		work <- struct{}{}
	}
	close(work)
	wg.Wait()
	b.StopTimer()
	for range callers {
		if err := <-failures; err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
	b.ReportMetric(float64((cpuTime()-cpu).Microseconds())/float64(b.N), "cpu-µs/call")
}

// BenchmarkRead reads the whole log, stored by large appends, with the official client and with a raw one, and one
// stream after the other.
func BenchmarkRead(b *testing.B) {
	const perAppend, appends = 500, 200
	n := startNode(b, Config{Dir: b.TempDir(), FS: vfs.Default})
	c := dial(b, n)
	for i := range appends {
		events := make([]event, perAppend)
		for j := range events {
			events[j] = newEvent(benchData)
		}
		c.append(fmt.Sprintf("bench-%d", i), none, events...)
	}
	b.Run("all raw", func(b *testing.B) {
		for b.Loop() {
			call, err := c.Read(b.Context(), readOf(ofAll()))
			if err != nil {
				b.Fatal(err)
			}
			for err == nil {
				_, err = call.Recv()
			}
			if !errors.Is(err, io.EOF) {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.N*perAppend*appends)/b.Elapsed().Seconds(), "events/s")
	})
	official := officialClient(b, n)
	b.Run("catch-up official", func(b *testing.B) {
		for b.Loop() {
			sub, err := official.SubscribeToAll(b.Context(), esdb.SubscribeToAllOptions{From: esdb.Start{}})
			if err != nil {
				b.Fatal(err)
			}
			for sub.Recv().CaughtUp == nil {
			}
			if err := sub.Close(); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.N*perAppend*appends)/b.Elapsed().Seconds(), "events/s")
	})
	b.Run("last of a stream", func(b *testing.B) {
		i := 0
		for b.Loop() {
			o := backwards(atEnd(ofStream(fmt.Sprintf("bench-%d", i%appends))))
			if got := c.read(limited(o, 1)); len(got) != 1 {
				b.Fatalf("%d events", len(got))
			}
			i++
		}
	})
}
