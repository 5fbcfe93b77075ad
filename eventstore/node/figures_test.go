package node

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	driver "github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/esdb"
	"github.com/annals-project/annals/internal/runtest"
)

const (
	// figureTime is how long one figure is measured, after figureWarm.
	figureTime = 700 * time.Millisecond
	figureWarm = 150 * time.Millisecond
	// figureConnections is how many connections the service opens.
	figureConnections = 4
	// fastDisk is the longest fsync at which the node must reach fastAppends a second.
	fastDisk    = 500 * time.Microsecond
	fastAppends = 10_000
)

// BenchmarkFigures prints what the node does next to what it must do: through the client that the
// service uses, and in the same run against the same node without fsync and against the storage
// engine alone. Run it with -benchtime 1x.
func BenchmarkFigures(b *testing.B) {
	for range b.N {
		t := &figures{b: b}
		t.disk()
		for _, events := range []int{1, 100} {
			for _, callers := range benchCallers {
				t.appends(callers, events)
			}
		}
		t.reads()
		t.latency()
		t.print(os.Stdout)
	}
}

// appends measures one kind of append on the node, on the node without fsync, and on the bare
// storage engine.
func (t *figures) appends(callers, events int) {
	t.b.Helper()
	name := fmt.Sprintf("append, %d callers, %d events each", callers, events)
	var with, without, bare measured
	t.sub(name, func(b *testing.B) {
		with = t.onNode(b, vfs.Default, callers, events)
		without = t.onNode(b, unsynced{vfs.Default}, callers, events)
		bare = t.onEngine(b, callers, events)
	})
	r := row{
		what: name, unit: "appends/s", value: with.rate(), cpu: with.cpuEach(), perFsync: with.perFsync,
		unsynced: without.rate(), engine: bare.rate(), engineCPU: bare.cpuEach(),
	}
	if callers == 32 && events == 1 {
		r.must, r.mustBe = 0.5*without.rate(), "0.5 of no fsync"
		if t.fsync < fastDisk && r.must < fastAppends {
			r.must, r.mustBe = fastAppends, "fsync is fast"
		}
	}
	t.rows = append(t.rows, r)
}

// onNode appends through the service's own client.
func (t *figures) onNode(b *testing.B, fs vfs.FS, callers, events int) measured {
	b.Helper()
	n := startNode(b, Config{Dir: b.TempDir(), FS: fs})
	store := serviceClient(b, n)
	var before Stats
	m := run(b, callers, func() { before = n.Stats() }, func(ctx context.Context) error {
		_, err := store.Append(ctx, "bench-"+uuid.NewString(), eventstore.NoStream, figureEvents(events))
		return err
	})
	after := n.Stats()
	m.perFsync = float64(after.Appends-before.Appends) / float64(max(after.Fsyncs-before.Fsyncs, 1))
	return m
}

// onEngine commits the same bytes, one synced batch for each call.
func (t *figures) onEngine(b *testing.B, callers, events int) measured {
	b.Helper()
	db := openBare(b)
	var position atomic.Uint64
	return run(b, callers, func() {}, func(context.Context) error {
		return appendBare(db, &position, figureEvents(events))
	})
}

// reads measures how fast a stored log is read: one stream, the whole log, and the whole log by a
// subscription.
func (t *figures) reads() {
	const perAppend, appends = 500, 200
	t.sub("reads", func(b *testing.B) {
		n := startNode(b, Config{Dir: b.TempDir(), FS: vfs.Default})
		store, official := serviceClient(b, n), officialClient(b, n)
		ctx := context.Background()
		last := eventstore.NoStream
		for range appends {
			done, err := store.Append(ctx, "bench-one", last, figureEvents(perAppend))
			if err != nil {
				b.Fatal(err)
			}
			last = done.Revision
		}
		const total = perAppend * appends
		rate := func(what string, must float64, read func() error) {
			best := measured{}
			for range 3 { // the first one warms up
				m, err := timed(total, read)
				if err != nil {
					b.Fatalf("%s: %v", what, err)
				}
				if m.rate() > best.rate() {
					best = m
				}
			}
			t.rows = append(t.rows,
				row{what: what, unit: "events/s", value: best.rate(), cpu: best.cpuEach(), must: must, mustBe: mustRate(must)})
		}
		rate("read a stream forwards", 0, func() error {
			read, err := official.ReadStream(ctx, "bench-one", driver.ReadStreamOptions{From: driver.Start{}}, total)
			return drained(read, err, total)
		})
		rate("read $all", 0, func() error {
			read, err := official.ReadAll(ctx, driver.ReadAllOptions{From: driver.Start{}}, total)
			return drained(read, err, total)
		})
		rate("$all subscription that catches up", 150_000, func() error {
			sub, err := official.SubscribeToAll(ctx, subscribeFromStart)
			if err != nil {
				return err
			}
			for range total {
				if got := sub.Recv(); got.EventAppeared == nil {
					return fmt.Errorf("not an event: %+v", got)
				}
			}
			return sub.Close()
		})
		rate("service's client, page by page", 0, func() error { return paged(ctx, store, total) })
		rate("service's client, subscription", 0, func() error { return followed(ctx, store, total) })
	})
}

func paged(ctx context.Context, store eventstore.Store, total int) error {
	after, got := eventstore.Position(0), 0
	for got < total {
		page, err := store.ReadAll(ctx, after, 512)
		if err != nil {
			return err
		}
		if len(page) == 0 {
			return fmt.Errorf("%d events of %d", got, total)
		}
		got += len(page)
		after = page[len(page)-1].Position
	}
	return nil
}

func followed(ctx context.Context, store eventstore.Store, total int) error {
	sub, err := store.Subscribe(ctx, 0)
	if err != nil {
		return err
	}
	for range total {
		if _, err := sub.Next(ctx); err != nil {
			return err
		}
	}
	return sub.Close()
}

func drained(read *driver.ReadStream, err error, total int) error {
	if err != nil {
		return err
	}
	defer read.Close()
	for range total {
		if _, err := read.Recv(); err != nil {
			return err
		}
	}
	return nil
}

// latency measures the time from the call of an append to its event in the hands of a subscriber.
func (t *figures) latency() {
	const appends = 600
	t.sub("latency", func(b *testing.B) {
		n := startNode(b, Config{Dir: b.TempDir(), FS: vfs.Default})
		store := serviceClient(b, n)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		sub, err := store.Subscribe(ctx, 0)
		if err != nil {
			b.Fatal(err)
		}
		var took []time.Duration
		failures := make(chan error, 1)
		for range appends {
			begun := time.Now()
			go func() {
				_, err := store.Append(ctx, "bench-"+uuid.NewString(), eventstore.NoStream, figureEvents(1))
				failures <- err
			}()
			if _, err := sub.Next(ctx); err != nil {
				b.Fatal(err)
			}
			took = append(took, time.Since(begun))
			if err := <-failures; err != nil {
				b.Fatal(err)
			}
		}
		if err := sub.Close(); err != nil {
			b.Error(err)
		}
		slices.Sort(took)
		t.rows = append(
			t.rows,
			row{
				what:   "append to subscriber, p50",
				unit:   "ms",
				value:  ms(took[appends/2]),
				must:   2,
				mustBe: "< 2 ms",
				less:   true,
			},
			row{what: "append to subscriber, p99", unit: "ms", value: ms(took[appends*99/100])},
		)
	})
}

// disk measures an fsync where the log will be.
func (t *figures) disk() {
	const syncs = 100
	t.sub("fsync", func(b *testing.B) {
		f, err := os.Create(filepath.Join(b.TempDir(), "probe"))
		if err != nil {
			b.Fatal(err)
		}
		defer func() {
			if err := f.Close(); err != nil {
				b.Error(err)
			}
		}()
		block := make([]byte, 4<<10)
		took := make([]time.Duration, syncs)
		for i := range took {
			if _, err := f.Write(block); err != nil {
				b.Fatal(err)
			}
			begun := time.Now()
			if err := f.Sync(); err != nil {
				b.Fatal(err)
			}
			took[i] = time.Since(begun)
		}
		slices.Sort(took)
		t.fsync = took[syncs/2]
		t.rows = append(t.rows, row{what: "one fsync of 4 KiB, median", unit: "ms", value: ms(t.fsync)})
	})
}

// serviceClient is the store as the service opens it.
func serviceClient(b *testing.B, n *Node) *esdb.Store {
	b.Helper()
	c := n.Connection()
	store, err := esdb.Open(esdb.Config{
		ConnectionString: c.ConnectionString(), Username: c.Username, Password: c.Password, RootCAs: c.RootCAs,
		Logger: runtest.Logger(b), Connections: figureConnections, BatchAppends: true,
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := store.Close(); err != nil {
			b.Error(err)
		}
	})
	return store
}

// figureBodies are bodies of 500 bytes that compress as badly as words do.
var figureBodies = sync.OnceValue(func() [][]byte {
	bodies := make([][]byte, 256)
	for i := range bodies {
		raw := make([]byte, 360)
		_, _ = rand.Read(raw) // never fails
		bodies[i] = []byte(`{"text":"` + base64.StdEncoding.EncodeToString(raw) + `"}`)
	}
	return bodies
})

func figureEvents(n int) []eventstore.Proposed {
	events := make([]eventstore.Proposed, n)
	for i := range events {
		events[i] = eventstore.Proposed{
			ID:   uuid.New(),
			Type: "tested.v1",
			Data: figureBodies()[i%256],
			Meta: []byte(`{"schema":1}`),
		}
	}
	return events
}

// unsynced is a disk that does not wait for what it was given: what the same node would do if an
// fsync took no time.
type unsynced struct{ vfs.FS }

func (u unsynced) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := u.FS.Create(name, category)
	return unsyncedFile{f}, err
}

func (u unsynced) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := u.FS.OpenReadWrite(name, category, opts...)
	return unsyncedFile{f}, err
}

func (u unsynced) ReuseForWrite(old, name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := u.FS.ReuseForWrite(old, name, category)
	return unsyncedFile{f}, err
}

func (u unsynced) OpenDir(name string) (vfs.File, error) {
	f, err := u.FS.OpenDir(name)
	return unsyncedFile{f}, err
}

type unsyncedFile struct{ vfs.File }

func (unsyncedFile) Sync() error                { return nil }
func (unsyncedFile) SyncData() error            { return nil }
func (unsyncedFile) SyncTo(int64) (bool, error) { return false, nil }
