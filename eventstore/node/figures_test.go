package node

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"text/tabwriter"
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
			runtest.Must(b, err)
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
		runtest.Must(b, err)
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
			runtest.Must(b, <-failures)
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
		runtest.Must(b, err)
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
			runtest.Must(b, f.Sync())
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
	runtest.Must(b, err)
	closeAtEnd(b, store)
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

// figures collects the rows of the table.
type figures struct {
	b     *testing.B
	fsync time.Duration
	rows  []row
}

// row is one line: a measured value next to its bound and to the values of the layers below.
type row struct {
	what, unit string
	value      float64
	// must is the least allowed value, or the most if less is set; 0 for a figure that is only
	// printed.
	must   float64
	mustBe string
	less   bool
	// unsynced and engine are the same load without fsync and on the storage engine alone; 0 where
	// there is no such thing.
	unsynced, engine float64
	// cpu is the time that all processors together spent on one: client, node and storage.
	cpu, engineCPU time.Duration
	perFsync       float64
}

func (r row) verdict() string {
	switch {
	case r.must == 0:
		return ""
	case r.less == (r.value < r.must):
		return "ok"
	default:
		return "MISSED"
	}
}

func mustRate(must float64) string {
	if must == 0 {
		return ""
	}
	return "target"
}

// print writes the table. What could not be measured is left empty.
func (t *figures) print(to io.Writer) {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	line := func(cells ...string) {
		if _, err := fmt.Fprintln(w, strings.Join(cells, "\t")); err != nil {
			t.b.Error(err)
		}
	}
	line("", "measured", "must", "", "CPU each", "per fsync", "no fsync", "ratio", "bare engine", "ratio", "its CPU")
	for _, r := range t.rows {
		must := ""
		if r.must != 0 {
			must = fmt.Sprintf("%s (%s)", number(r.must), r.mustBe)
		}
		line(
			r.what,
			number(r.value)+" "+r.unit,
			must,
			r.verdict(),
			micros(r.cpu),
			number(r.perFsync),
			number(r.unsynced),
			quotient(r.value, r.unsynced),
			number(r.engine),
			quotient(r.value, r.engine),
			micros(r.engineCPU),
		)
	}
	if err := w.Flush(); err != nil {
		t.b.Error(err)
	}
}

func number(v float64) string {
	switch {
	case v == 0:
		return ""
	case v < 100:
		return fmt.Sprintf("%.2f", v)
	default:
		return fmt.Sprintf("%.0f", v)
	}
}

func quotient(a, b float64) string {
	if b == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f", a/b)
}

func micros(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f µs", float64(d.Nanoseconds())/1000)
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// sub runs a part of the measurement, and ends afterwards everything that the part started.
func (t *figures) sub(name string, f func(*testing.B)) {
	t.b.Helper()
	if !t.b.Run(strings.ReplaceAll(name, " ", "-"), func(b *testing.B) {
		if b.N == 1 { // once, however often the framework wants it
			f(b)
		}
	}) {
		t.b.FailNow()
	}
}

// measured is what a load did.
type measured struct {
	calls    uint64
	wall     time.Duration
	cpu      time.Duration
	perFsync float64
}

func (m measured) rate() float64 {
	if m.wall == 0 {
		return 0
	}
	return float64(m.calls) / m.wall.Seconds()
}

func (m measured) cpuEach() time.Duration { return m.cpu / time.Duration(max(m.calls, 1)) }

// timed measures one call that does n things.
func timed(n int, call func() error) (measured, error) {
	cpu, begun := cpuTime(), time.Now()
	err := call()
	return measured{calls: uint64(n), wall: time.Since(begun), cpu: cpuTime() - cpu}, err
}

// run has callers call for figureTime, after figureWarm; begin is called in between.
func run(b *testing.B, callers int, begin func(), call func(context.Context) error) measured {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var done atomic.Uint64
	var running sync.WaitGroup
	failures := make(chan error, callers)
	for range callers {
		running.Go(func() {
			for ctx.Err() == nil {
				if err := call(context.WithoutCancel(ctx)); err != nil {
					failures <- err
					return
				}
				done.Add(1)
			}
		})
	}
	timer := time.NewTimer(figureWarm)
	defer timer.Stop()
	<-timer.C
	begin()
	calls, cpu, begun := done.Load(), cpuTime(), time.Now()
	timer.Reset(figureTime)
	<-timer.C
	m := measured{calls: done.Load() - calls, cpu: cpuTime() - cpu, wall: time.Since(begun)}
	cancel()
	running.Wait()
	select {
	case err := <-failures:
		b.Fatal(err)
	default:
	}
	return m
}

// cpuTime is what this process used of all processors so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic("the system does not say what was used: " + err.Error())
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
