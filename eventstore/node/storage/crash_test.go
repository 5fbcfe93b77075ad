package storage

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/seedtest"
)

// acknowledged is what the answers to clients named: the newest revision of each stream, and the
// streams that were tombstoned.
type acknowledged struct {
	mu        sync.Mutex
	revisions map[string]int64
	ended     map[string]bool
	erased    map[string]bool
}

func (a *acknowledged) note(do func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	do()
}

// copied returns what was acknowledged so far.
func (a *acknowledged) copied() *acknowledged {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := &acknowledged{revisions: map[string]int64{}, ended: map[string]bool{}, erased: map[string]bool{}}
	for name, revision := range a.revisions {
		out.revisions[name] = revision
	}
	for name := range a.ended {
		out.ended[name] = true
	}
	for name := range a.erased {
		out.erased[name] = true
	}
	return out
}

// A power cut at any moment of concurrent appends, tombstones, scavenges and backups undoes nothing
// that was acknowledged, whatever part of the bytes without fsync it leaves: an append is there, a
// tombstoned stream stays tombstoned, scavenged events are in no file. ANNALS_NODE_STEPS makes it
// longer.
func TestCrash_DuringAllOperations(t *testing.T) {
	rounds := 6
	if text := os.Getenv("ANNALS_NODE_STEPS"); text != "" {
		more, err := strconv.Atoi(text)
		runtest.Must(t, err)
		rounds *= more
	}
	fs := &crashableFS{MemFS: vfs.NewCrashableMem()}
	n, c := openClient(t, Config{Dir: "log", FS: fs, MemtableBytes: 128 << 10})
	told := &acknowledged{revisions: map[string]int64{}, ended: map[string]bool{}, erased: map[string]bool{}}
	ctx, cancel := context.WithCancel(context.Background())
	var load sync.WaitGroup
	for w := range 4 {
		load.Go(func() { appendAndEnd(ctx, t, c, told, fmt.Sprintf("w%d", w)) })
	}
	load.Go(func() {
		for ctx.Err() == nil {
			before := told.copied()
			if err := n.Scavenge(ctx); err != nil {
				if ctx.Err() == nil {
					t.Error(err)
				}
				return
			}
			told.note(func() {
				for name := range before.ended {
					told.erased[name] = true
				}
			})
		}
	})
	load.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			if err := n.Backup(ctx, fmt.Sprintf("backup-%d", i)); err != nil && ctx.Err() == nil {
				t.Error(err)
				return
			}
		}
	})
	stats, seed := n.Stats, seedtest.Of(t)
	rng := rand.New(rand.NewPCG(seed, 2))
	for round := range rounds {
		for goal := stats().Events + 50 + rng.Uint64N(300); stats().Events < goal && !t.Failed(); {
			n.tail.mu.RLock()
			changed := n.tail.changed
			n.tail.mu.RUnlock()
			<-changed
		}
		want := told.copied()
		crashed := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: []int{0, 50, 100}[round%3], RNG: rng})
		checkCrashed(t, round, crashed, want)
	}
	cancel()
	load.Wait()
}

// crashableFS is a MemFS that is not copied during the calls that take the lock of copies twice: if a copy begins to
// wait in between, they never get it the second time.
type crashableFS struct {
	*vfs.MemFS
	nesting sync.RWMutex
}

func (f *crashableFS) Lock(name string) (io.Closer, error) {
	f.nesting.RLock()
	defer f.nesting.RUnlock()
	return f.MemFS.Lock(name)
}

func (f *crashableFS) Link(oldname, newname string) error {
	f.nesting.RLock()
	defer f.nesting.RUnlock()
	return f.MemFS.Link(oldname, newname)
}

func (f *crashableFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f.nesting.RLock()
	defer f.nesting.RUnlock()
	return f.MemFS.ReuseForWrite(oldname, newname, category)
}

func (f *crashableFS) CrashClone(cfg vfs.CrashCloneCfg) *vfs.MemFS {
	f.nesting.Lock()
	defer f.nesting.Unlock()
	return f.MemFS.CrashClone(cfg)
}

// markOf returns what the events of a stream hold, and nothing that outlives them. The name does outlive them:
// the engine keeps it with other fields around it, whose bytes can look like text.
func markOf(stream string) string {
	sum := sha256.Sum256([]byte(stream))
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}

// appendAndEnd appends to one stream after the other and ends each of them.
func appendAndEnd(ctx context.Context, t *testing.T, c client, told *acknowledged, prefix string) {
	for stream := 0; ctx.Err() == nil; stream++ {
		name := fmt.Sprintf("%s-%d", prefix, stream)
		for i := int64(-1); i < 8; i += 2 {
			first, second := newEvent(markOf(name)+noise(600)), newEvent("{}")
			if resp, err := c.tryAppend(context.WithoutCancel(ctx), name, at(i), first, second); err != nil || !stored(resp) {
				t.Errorf("append: %v, %v", resp, err)
				return
			}
			told.note(func() { told.revisions[name] = i + 2 })
		}
		if stream%2 == 0 {
			continue
		}
		if _, err := c.tryTombstone(name, anyRevision); err != nil {
			t.Error(err)
			return
		}
		told.note(func() { told.ended[name] = true })
	}
}

func checkCrashed(t *testing.T, round int, fs *vfs.MemFS, want *acknowledged) {
	t.Helper()
	n, c := openClient(t, Config{Dir: "log", FS: fs})
	for name, revision := range want.revisions {
		events, _, err := c.tryRead(ofStream(name))
		gone := errors.Is(err, errTombstoned)
		switch {
		case want.ended[name] && !gone:
			t.Errorf("round %d: %s was tombstoned, and shows %d events, %v", round, name, len(events), err)
		case gone || want.ended[name]: // may have been ended without the client hearing of it
		case err != nil || int64(len(events)) <= revision:
			t.Errorf("round %d: %s shows %d events, revision %d was acknowledged, %v", round, name, len(events), revision, err)
		case len(events)%2 != 0:
			t.Errorf("round %d: %s has half an append", round, name)
		}
	}
	for _, e := range c.read(ofAll()) {
		if want.erased[e.stream] && e.typ != TombstoneType {
			t.Errorf("round %d: an event of %s is back after its scavenge", round, e.stream)
		}
	}
	runtest.Must(t, n.Close())
	dir := n.store.disk.dir
	names, err := fs.List(dir)
	runtest.Must(t, err)
	for _, file := range names {
		text, err := readSmall(fs, fs.PathJoin(dir, file))
		runtest.Must(t, err)
		for name := range want.erased {
			if strings.Contains(text, markOf(name)) {
				t.Errorf("round %d: the file %s holds a text of %s after its scavenge", round, file, name)
			}
		}
	}
}

// panics fails the test unless the engine has stopped writing because of a panic.
func panics(t *testing.T, e *Engine, of string) {
	t.Helper()
	select {
	case <-e.Failed():
	case <-runtest.Context(t).Done():
		t.Fatal("the engine has not failed")
	}
	if err := e.Err(); err == nil || !strings.Contains(err.Error(), of+" panicked: out of order") {
		t.Errorf("the engine failed with %v", err)
	}
}

// A panic of the writer fails the engine and does not end the process: the append that it happened
// in and all later ones get the error, reads continue, and the next start finds what was written.
func TestWriter_Panic(t *testing.T) {
	cfg := memoryConfig()
	e, c := openClient(t, cfg)
	_, position := c.append("kept-1", none, newEvent(`{}`))
	sound := e.writer.short
	e.writer.short = func() bool { panic("out of order") }
	for range 2 {
		if d, err := c.tryAppend(runtest.Context(t), "lost-1", none, newEvent(`{}`)); err == nil || !errors.Is(err, e.Err()) {
			t.Errorf("append: %+v, %v", d, err)
		}
	}
	panics(t, e, "the writer")
	e.writer.short = sound
	if p, _, err := e.ReadAll(0, false, 10); err != nil || len(p.Events) != 1 {
		t.Errorf("read: %+v, %v", p, err)
	}
	if err := e.Scavenge(runtest.Context(t)); !errors.Is(err, e.Err()) {
		t.Errorf("scavenge: %v", err)
	}
	runtest.Must(t, e.Close())
	if again := open(t, cfg); again.Head() != position {
		t.Errorf("after a new start the head is %d, want %d", again.Head(), position)
	}
}

// A panic while the scavenger waits for the writer ends both.
func TestWriter_PanicDuringScavenge(t *testing.T) {
	e := open(t, memoryConfig())
	vs := e.writer.views
	e.writer.views = nil
	if err := e.writer.republishAndDrain(runtest.Context(t)); err == nil || !errors.Is(err, e.Err()) {
		t.Errorf("drain: %v", err)
	}
	e.writer.views = vs
	runtest.Must(t, e.Close())
}

// A panic of the commit itself, which is in a goroutine of its own.
func TestWriter_PanicOfCommit(t *testing.T) {
	e := open(t, memoryConfig())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = e.writer.commitBatch() // without a batch; the goroutine ends here, as the writer does
	}()
	<-ended
	if err := e.Err(); err == nil || !strings.Contains(err.Error(), "a commit panicked") {
		t.Errorf("the engine failed with %v", err)
	}
	if d, err := clientOf(t, e).tryAppend(runtest.Context(t), "lost-1", none, newEvent(`{}`)); !errors.Is(err, e.Err()) {
		t.Errorf("append: %+v, %v", d, err)
	}
	runtest.Must(t, e.Close())
}

// A panic of the scavenger fails the engine too: a scavenge that is waited for ends with the error.
func TestScavenger_Panic(t *testing.T) {
	e, c := openClient(t, memoryConfig())
	c.append("kept-1", none, newEvent(`{}`))
	e.scavenger.drainReaders = func(context.Context) error { panic("out of order") }
	if err := e.Scavenge(runtest.Context(t)); err == nil || !errors.Is(err, e.Err()) {
		t.Errorf("scavenge: %v", err)
	}
	panics(t, e, "the scavenger")
	if d, err := c.tryAppend(runtest.Context(t), "lost-1", none, newEvent(`{}`)); !errors.Is(err, e.Err()) {
		t.Errorf("append: %+v, %v", d, err)
	}
	if p, _, err := e.ReadAll(0, false, 10); err != nil || len(p.Events) == 0 || len(p.Events) > 2 {
		t.Errorf("read: %+v, %v", p, err)
	}
	runtest.Must(t, e.Close())
}

// gated is a disk that writes no tables while its gate is closed.
type gated struct {
	vfs.FS
	gate chan struct{}
}

func (g gated) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if strings.HasSuffix(name, ".sst") {
		<-g.gate
	}
	return g.FS.Create(name, category)
}

// The bytes of the write-ahead logs that a start must read are bounded, however much is written and
// however slowly tables are flushed.
func TestReplay_Bounded(t *testing.T) {
	// Besides what the tables in memory count, the log holds the frames of its records.
	const most = (memtablesKept+1)*memtableBytes + memtableBytes/8
	disk := gated{vfs.NewMem(), make(chan struct{})}
	st, err := openStore(Config{Dir: "log", FS: disk, Logger: runtest.Logger(t)})
	runtest.Must(t, err)
	var writing sync.WaitGroup
	writing.Go(func() {
		value := []byte(noise(32 << 10))
		for i := range 2 * most / len(value) {
			if err := st.db.Set(eventKey(uint64(i+1)), value, pebble.NoSync); err != nil {
				t.Error(err)
				return
			}
			if size := st.db.Metrics().WAL.Size; size > most {
				t.Errorf("after %d events %d bytes are to be read at a start", i, size)
				return
			}
		}
	})
	deadline := time.Now().Add(runtest.Timeout)
	for st.db.Metrics().WAL.Size < memtablesKept*memtableBytes { // the writer comes to wait
		if time.Now().After(deadline) {
			t.Fatal("the log does not grow: this test tests nothing")
		}
	}
	close(disk.gate)
	writing.Wait()
	runtest.Must(t, st.close())
}

// A node that was closed leaves nothing in the write-ahead log.
func TestReplay_AfterClose(t *testing.T) {
	disk := vfs.NewMem()
	n, c := openClient(t, Config{Dir: "log", FS: disk})
	for i := range 20 {
		c.append(fmt.Sprintf("s%d", i), none, newEvent(noise(1000)))
	}
	runtest.Must(t, n.Close())
	st, err := openStore(Config{Dir: "log", FS: disk, Logger: runtest.Logger(t)})
	runtest.Must(t, err)
	head, err := st.head()
	runtest.Must(t, err)
	m := st.db.Metrics()
	if replayed := m.Levels[0].TablesFlushed; replayed != 0 || head != 20 {
		t.Errorf("%d tables were made of what was in the log, and the head is %d", replayed, head)
	}
	runtest.Must(t, st.close())
}
