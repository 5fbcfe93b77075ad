package node

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/node/storage"
	"github.com/annals-project/annals/internal/runtest"
)

// benchData is an event body of the size that a short text has.
var benchData = `{"text":"` + strings.Repeat("x", 500) + `"}`

var benchCallers = []int{1, 8, 32, 128}

// BenchmarkAppend appends one event at a time, each to a separate stream, through a raw client over
// TLS, on the disk of the test.
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

// BenchmarkServiceRead reads the last event of a stream, as every decision does first.
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

// BenchmarkAppendLarge appends one chunk of a large content at a time: 512 KiB that do not
// compress.
func BenchmarkAppendLarge(b *testing.B) {
	n := startNode(b, Config{Dir: b.TempDir(), FS: vfs.Default})
	c := dial(b, n)
	chunk := make([]byte, 512<<10)
	if _, err := rand.Read(chunk); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(chunk)))
	spread(b, 4, func(ctx context.Context) error {
		resp, err := c.tryAppend(ctx, "blob-"+uuid.NewString(), none,
			event{id: uuid.New(), typ: "chunk", data: string(chunk), raw: true})
		if err == nil && resp.GetSuccess() == nil {
			err = fmt.Errorf("append: %v", resp)
		}
		return err
	})
}

// BenchmarkBarePebble makes the same writes with the storage engine alone, each as one synced
// batch.
func BenchmarkBarePebble(b *testing.B) {
	for _, callers := range benchCallers {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			db := openBare(b)
			var position atomic.Uint64
			one := []eventstore.Proposed{{Type: "tested", Data: []byte(benchData)}}
			spread(b, callers, func(context.Context) error { return appendBare(db, &position, one) })
		})
	}
}

// openBare opens the storage engine as the node opens it.
func openBare(b *testing.B) *pebble.DB {
	b.Helper()
	options := &pebble.Options{
		FormatMajorVersion: pebble.FormatNewest, MemTableSize: 8 << 20, MemTableStopWritesThreshold: 4, CacheSize: 64 << 20,
		Logger: bareLog{},
	}
	for i := range options.Levels {
		options.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	db, err := pebble.Open(b.TempDir(), options)
	runtest.Must(b, err)
	closeAtEnd(b, db)
	return db
}

// bareLog keeps the engine's messages out of the figures.
type bareLog struct{}

func (bareLog) Infof(string, ...any)           {}
func (bareLog) Errorf(string, ...any)          {}
func (bareLog) Fatalf(format string, a ...any) { panic(fmt.Sprintf(format, a...)) }

// appendBare commits what the node writes for an append to a new stream: one synced batch.
func appendBare(db *pebble.DB, position *atomic.Uint64, events []eventstore.Proposed) error {
	last := position.Add(uint64(len(events)))
	first := last - uint64(len(events)) + 1
	name := "bench-" + uuid.NewString()
	batch := db.NewBatch()
	number := binary.BigEndian.AppendUint64
	for i, e := range events {
		at := first + uint64(i)
		record := storage.Propose(name, uuid.New(), e.Type, true, e.Data, e.Meta).Record(int64(i), at, "16000000000000000")
		if err := batch.Set(number([]byte{'e'}, at), record, nil); err != nil {
			return err
		}
		if err := batch.Set(number(number([]byte{'r'}, first), uint64(i)), number(nil, at), nil); err != nil {
			return err
		}
	}
	if err := batch.Set(append([]byte{'s'}, name...), make([]byte, 12), nil); err != nil {
		return err
	}
	return errors.Join(batch.Commit(pebble.Sync), batch.Close())
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
		runtest.Must(b, <-failures)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
	b.ReportMetric(float64((cpuTime()-cpu).Microseconds())/float64(b.N), "cpu-µs/call")
}

// BenchmarkRead reads the whole log, stored by large appends, with the official client and with a
// raw one, and one stream after the other.
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
			runtest.Must(b, err)
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
			runtest.Must(b, err)
			for sub.Recv().CaughtUp == nil {
			}
			runtest.Must(b, sub.Close())
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
