package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/annals-project/annals/internal/runtest"
)

// quotaFS is a file system with room for so many bytes. A write that does not fit is written as far
// as it does, as on a disk.
type quotaFS struct {
	vfs.FS
	left    *atomic.Int64
	full    chan struct{} // receives once a write did not fit; capacity 1
	reports bool          // whether it reports how much room there is
	sync    func() error  // what an fsync of a log answers; nil is the file system
}

func newQuota(bytes int64) *quotaFS {
	q := &quotaFS{FS: vfs.NewMem(), left: new(atomic.Int64), full: make(chan struct{}, 1)}
	q.left.Store(bytes)
	return q
}

func (q *quotaFS) GetDiskUsage(path string) (vfs.DiskUsage, error) {
	if !q.reports {
		return q.FS.GetDiskUsage(path)
	}
	return vfs.DiskUsage{AvailBytes: uint64(max(q.left.Load(), 0))}, nil
}

func (q *quotaFS) file(name string, f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &quotaFile{File: f, quota: q, log: strings.HasSuffix(name, ".log")}, nil
}

func (q *quotaFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if q.left.Load() <= 0 {
		q.tell()
		return nil, &os.PathError{Op: "create", Path: name, Err: syscall.ENOSPC}
	}
	f, err := q.FS.Create(name, category)
	return q.file(name, f, err)
}

func (q *quotaFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := q.FS.ReuseForWrite(oldname, newname, category)
	return q.file(newname, f, err)
}

func (q *quotaFS) tell() {
	select {
	case q.full <- struct{}{}:
	default:
	}
}

type quotaFile struct {
	vfs.File
	quota *quotaFS
	log   bool
}

func (f *quotaFile) Write(p []byte) (int, error) {
	left := f.quota.left.Add(-int64(len(p)))
	if left >= 0 {
		return f.File.Write(p)
	}
	fits := max(int64(len(p))+left, 0)
	f.quota.left.Add(int64(len(p)) - fits)
	n, err := f.File.Write(p[:fits])
	f.quota.tell()
	return n, errors.Join(err, &os.PathError{Op: "write", Path: "log", Err: syscall.ENOSPC})
}

func (f *quotaFile) SyncData() error {
	if f.log && f.quota.sync != nil {
		if err := f.quota.sync(); err != nil {
			return err
		}
	}
	return f.File.SyncData()
}

// outcomes are appends of one event each to one stream, and how they were answered.
type outcomes struct {
	stored, refused, unknown []event
}

func (o *outcomes) took(t *testing.T, e event, revision uint64, err error) {
	t.Helper()
	switch {
	case err == nil:
		o.stored = append(o.stored, e)
	case errors.Is(err, ErrFull):
		o.refused = append(o.refused, e)
	case errors.Is(err, ErrStalled), errors.Is(err, context.DeadlineExceeded):
		o.unknown = append(o.unknown, e)
	default:
		t.Errorf("append at %d: %v", revision, err)
	}
}

// check compares the answers with the stream.
func (o *outcomes) check(t *testing.T, events []recordedEvent) {
	t.Helper()
	count := map[string]int{}
	for _, e := range events {
		count[e.id.String()]++
	}
	for _, e := range o.stored {
		if count[e.id.String()] != 1 {
			t.Errorf("an event that was acknowledged is in the log %d times", count[e.id.String()])
		}
	}
	for _, e := range o.refused {
		if count[e.id.String()] != 0 {
			t.Errorf("an event that was refused is in the log %d times", count[e.id.String()])
		}
	}
	for _, e := range o.unknown {
		if count[e.id.String()] > 1 {
			t.Errorf("an event is in the log %d times", count[e.id.String()])
		}
	}
}

// A disk fills up at any point of a write. The writes that wait have an unknown outcome, reads go
// on, and once there is space everything continues without a restart. Everything that was
// acknowledged is there, even after a crash while the disk was full.
func TestFullDisk_StallsAndRecovers(t *testing.T) {
	for _, quota := range []int64{20_000, 100_000, 1_000_000, 3_000_000} {
		t.Run(fmt.Sprint(quota), func(t *testing.T) {
			fs := newQuota(quota)
			crashable := vfs.NewCrashableMem()
			fs.FS = crashable
			n := open(t, Config{Dir: "log", FS: fs, MemtableBytes: 256 << 10})
			n.store.disk.space.stallAfter = 20 * time.Millisecond
			c := clientOf(t, n)
			o, mu := outcomes{}, sync.Mutex{}
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			var load sync.WaitGroup
			for w := range 4 {
				load.Go(func() {
					for ctx.Err() == nil {
						e := newEvent(fmt.Sprintf("%d: %s", w, strings.Repeat("x", 5000)))
						resp, err := c.tryAppend(context.Background(), fmt.Sprintf("w%d", w), anyRevision, e)
						mu.Lock()
						o.took(t, e, uint64(resp.Revision), err)
						mu.Unlock()
					}
				})
			}
			<-fs.full
			<-n.store.disk.space.stall()
			cancel()
			load.Wait()
			var before []recordedEvent
			for w := range 4 {
				events, _, err := c.tryRead(ofStream(fmt.Sprintf("w%d", w)))
				runtest.Must(t, err)
				before = append(before, events...)
			}
			o.check(t, before)
			if len(o.unknown) == 0 {
				t.Error("nothing was under way when the disk was full: this test tests nothing")
			}
			crashed := open(t, Config{Dir: "log", FS: crashable.CrashClone(vfs.CrashCloneCfg{})})
			o.check(t, clientOf(t, crashed).read(ofAll()))

			fs.left.Store(1 << 30)
			awaitSpace(t, n)
			for w := range 4 {
				c.append(fmt.Sprintf("w%d", w), anyRevision, newEvents(1)...)
			}
			wantRunning(t, n)
			all := c.read(ofAll())
			o.check(t, all)
			runtest.Must(t, n.Close())
			again := clientOf(t, open(t, Config{Dir: "log", FS: fs}))
			if got := again.read(ofAll()); len(got) != len(all) {
				t.Errorf("%d events after a restart, %d before", len(got), len(all))
			}
		})
	}
}

// noTables is a file system that has no room for tables while it is full, but for logs.
type noTables struct {
	vfs.FS
	full atomic.Bool
}

func (f *noTables) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if f.full.Load() && strings.HasSuffix(name, ".sst") {
		return nil, &os.PathError{Op: "create", Path: name, Err: syscall.ENOSPC}
	}
	return f.FS.Create(name, category)
}

// The logs still have room, but the tables have not: the engine holds writes back once its memory is
// full. Their callers learn it, and the writes continue once there is space.
func TestFullDisk_TablesOnly(t *testing.T) {
	fs := &noTables{FS: vfs.NewMem()}
	n := open(t, Config{Dir: "log", FS: fs, MemtableBytes: 64 << 10})
	n.store.disk.space.stallAfter = 20 * time.Millisecond
	c := clientOf(t, n)
	fs.full.Store(true)
	var o outcomes
	for i := 0; len(o.unknown) == 0 && !t.Failed(); i++ {
		e := newEvent(noise(5000))
		resp, err := c.tryAppend(runtest.Context(t), "s", anyRevision, e)
		if errors.Is(err, context.DeadlineExceeded) {
			t.Fatal("a write that is held back is not ended")
		}
		o.took(t, e, uint64(resp.Revision), err)
	}
	o.check(t, c.read(ofAll()))
	fs.full.Store(false)
	awaitSpace(t, n)
	c.append("s", anyRevision, newEvent("{}"))
	o.check(t, c.read(ofAll()))
}

// wantRunning checks that the engine has not failed.
func wantRunning(t *testing.T, n *Engine) {
	t.Helper()
	select {
	case <-n.Failed():
		t.Fatal(n.Err())
	default:
	}
}

func awaitFailure(t *testing.T, n *Engine) {
	t.Helper()
	select {
	case <-n.Failed():
	case <-time.After(runtest.Timeout):
		t.Fatal("the node does not say that it failed")
	}
}

// awaitSpace waits until no write waits for space.
func awaitSpace(t *testing.T, n *Engine) {
	t.Helper()
	deadline := time.Now().Add(runtest.Timeout)
	for time.Now().Before(deadline) {
		select {
		case <-n.store.disk.space.stall():
			runtime.Gosched()
		default:
			return
		}
	}
	t.Fatal("writes still wait for space")
}

// If the disk reports that it is nearly full, appends are refused and nothing of them is stored.
// Repeats of stored appends are still recognized, reads and deletions go on, and appends succeed
// again once there is space.
func TestFullDisk_NearlyFull(t *testing.T) {
	fs := newQuota(100 << 20)
	fs.reports = true
	n, c := openClient(t, Config{Dir: "log", FS: fs, Reserve: 50 << 20})
	kept := newEvents(2)
	c.append("kept", none, kept...)
	c.append("gone", none, newEvents(2)...)

	if s := n.Space(); s.Full || s.Free > 100<<20 || s.Free < 99<<20 || s.Reserve != 50<<20 {
		t.Errorf("a disk with space: %+v", s)
	}
	fs.left.Store(40 << 20)
	if s := n.Space(); !s.Full || s.Free != 40<<20 {
		t.Errorf("a disk that is nearly full: %+v", s)
	}
	refused := newEvent("{}")
	for _, expected := range []Expectation{at(1), anyRevision, existing} {
		resp, err := c.tryAppend(runtest.Context(t), "kept", expected, refused)
		if !errors.Is(err, ErrFull) {
			t.Errorf("append at %v: %v, %v", expected, resp, err)
		}
	}
	if revision, _ := c.append("kept", none, kept...); revision != 1 {
		t.Errorf("the same append again: revision %d", revision)
	}
	if resp, err := c.tryAppend(runtest.Context(t), "kept", at(7), refused); err != nil || resp.Verdict != WrongVersion {
		t.Errorf("an append at the wrong revision: %v, %v", resp, err)
	}
	c.wantCount(ofStream("kept"), 2)
	c.tombstone("gone", at(1))
	runtest.Must(t, n.Scavenge(runtest.Context(t)))

	fs.left.Store(100 << 20)
	if revision, _ := c.append("kept", at(1), refused); revision != 2 {
		t.Errorf("appended as revision %d", revision)
	}
}

// A failed fsync is final: the node reports it and keeps running. Writes under way get no definite
// answer, reads go on, nothing is written any more, and the next start finds what the disk holds.
func TestFsync_Failed(t *testing.T) {
	fs := newQuota(1 << 30)
	var broken atomic.Bool
	fs.sync = func() error {
		if broken.Load() {
			return &os.PathError{Op: "sync", Path: "log", Err: syscall.EIO}
		}
		return nil
	}
	n, c := openClient(t, Config{Dir: "log", FS: fs})
	kept := newEvents(2)
	c.append("s", none, kept...)
	wantRunning(t, n)
	broken.Store(true)
	for range 2 {
		if resp, err := c.tryAppend(runtest.Context(t), "s", at(1), newEvents(1)...); err == nil {
			t.Errorf("append: %v, %v", resp, err)
		}
	}
	awaitFailure(t, n)
	if err := n.Err(); err == nil || !strings.Contains(err.Error(), syscall.EIO.Error()) {
		t.Errorf("it failed because: %v", err)
	}
	c.wantCount(ofStream("s"), 2)
	if err := n.Scavenge(runtest.Context(t)); err == nil {
		t.Error("a scavenge succeeded")
	}
	if err := n.Backup(runtest.Context(t), "backup"); err == nil {
		t.Error("a backup succeeded")
	}
	if _, err := c.tryTombstone("s", anyRevision); err == nil {
		t.Error("a tombstone was written")
	}
	runtest.Must(t, n.Close())
	broken.Store(false)
	got := clientOf(t, open(t, Config{Dir: "log", FS: fs})).read(ofStream("s"))
	if len(got) < 2 || got[0].id != kept[0].id || got[1].id != kept[1].id {
		t.Errorf("after a new start: %v", got)
	}
}

// A small real file system fills up and is emptied again.
func TestFullDisk_FileSystem(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting a file system takes root")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64m"); err != nil {
		t.Skip("no file system can be mounted here: ", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	n := open(t, Config{Dir: filepath.Join(dir, "log"), FS: vfs.Default, Reserve: 16 << 20, MemtableBytes: 1 << 20})
	t.Cleanup(func() { runtest.Must(t, n.Close()) }) // before the unmount
	c := clientOf(t, n)
	var o outcomes
	for len(o.refused) == 0 {
		e := newEvent(noise(100 << 10))
		resp, err := c.tryAppend(runtest.Context(t), fmt.Sprintf("s%d", len(o.stored)%5), anyRevision, e)
		if o.took(t, e, uint64(resp.Revision), err); t.Failed() || len(o.unknown) > 0 {
			t.Fatal("not refused: ", err)
		}
	}
	o.check(t, c.read(ofAll()))

	ballast := filepath.Join(dir, "ballast") // somebody else takes what was left
	f, err := os.Create(ballast)
	runtest.Must(t, err)
	for chunk := make([]byte, 64<<10); err == nil; {
		_, err = f.Write(chunk)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	runtest.Must(t, f.Close())
	ended := make(chan error, 1)
	go func() {
		var last error
		for i := 0; last == nil; i++ { // deletions are not refused, and come to wait
			_, last = c.tryDelete(fmt.Sprintf("s%d", i%5), anyRevision)
		}
		ended <- last
	}()
	select {
	case err := <-ended:
		if !errors.Is(err, ErrStalled) {
			t.Errorf("a deletion on the full disk: %v", err)
		}
	case <-time.After(4 * runtest.Timeout):
		t.Fatal("the disk does not become full")
	}
	o.check(t, c.read(ofAll()))
	runtest.Must(t, os.Remove(ballast))
	awaitSpace(t, n)
	for i := range 5 {
		c.tombstone(fmt.Sprintf("s%d", i), anyRevision)
	}
	runtest.Must(t, n.Scavenge(runtest.Context(t)))
	c.append("after", none, newEvent(noise(100<<10)))
	wantRunning(t, n)
}
