package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/annals-project/annals/internal/runtest"
)

// runsAlone is set in a process that runs one test, which may use all descriptors or leave
// goroutines.
const runsAlone = "NODE_TEST_RUNS_ALONE"

// alone runs a test in a process of its own.
func alone(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	if os.Getenv(runsAlone) != "" {
		test(t)
		if t.Failed() {
			t.FailNow()
		}
		fmt.Println("survived")
		os.Exit(0)
	}
	ctx, cancel := context.WithTimeout(t.Context(), runtest.Timeout)
	defer cancel()
	child := exec.CommandContext(ctx, os.Args[0], "-test.run", "^"+t.Name()+"$")
	// The child ends without its clean-up, so its temporary files are below a folder of this process.
	child.Env = append(os.Environ(), runsAlone+"=yes", "TMPDIR="+t.TempDir())
	if out, err := child.CombinedOutput(); err != nil || !strings.Contains(string(out), "survived") {
		t.Errorf("%v\n%.4000s", err, out)
	}
}

// hog opens every descriptor that the process may have, as connections do, and every one that is
// closed later.
type hog struct {
	files []*os.File
	stop  chan struct{}
	done  chan struct{}
}

func newHog() *hog {
	h := &hog{stop: make(chan struct{}), done: make(chan struct{})}
	full := make(chan struct{})
	go func() {
		defer close(h.done)
		var once sync.Once
		for {
			select {
			case <-h.stop:
				return
			default:
			}
			if f, err := os.Open(os.DevNull); err == nil {
				h.files = append(h.files, f)
			} else {
				once.Do(func() { close(full) })
			}
		}
	}()
	<-full
	return h
}

func (h *hog) release() {
	close(h.stop)
	<-h.done
	for _, f := range h.files {
		_ = f.Close()
	}
}

// While connections use every descriptor, the log continues with its spare one, or waits. Nothing
// ends.
func TestNode_NoDescriptorLeft(t *testing.T) {
	alone(t, func(t *testing.T) {
		limit := syscall.Rlimit{Cur: 128, Max: 128}
		runtest.Must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
		n := open(t, Config{Dir: t.TempDir(), FS: vfs.Default, MemtableBytes: 256 << 10})
		n.store.disk.space.stallAfter = 20 * time.Millisecond
		c := clientOf(t, n)
		stored := 0
		grow := func(events int, patience time.Duration) {
			for range events {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				_, err := c.tryAppend(ctx, "s", anyRevision, newEvent(strings.Repeat("x", 20_000)))
				cancel()
				switch {
				case err == nil:
					stored++
				case errors.Is(err, ErrStalled), errors.Is(err, context.DeadlineExceeded): // it may be written later
				default:
					t.Errorf("append: %v", err)
				}
			}
		}
		grow(20, runtest.Timeout)
		h := newHog()
		grow(60, 100*time.Millisecond)
		h.release()
		awaitSpace(t, n)
		before := stored
		grow(60, runtest.Timeout)
		if stored != before+60 {
			t.Errorf("%d of 60 events were stored once there were descriptors again", stored-before)
		}
		if err := n.Err(); err != nil {
			t.Error(err)
		}
		if got := len(c.read(ofStream("s"))); got < stored {
			t.Errorf("%d events are read, %d were stored", got, stored)
		}
		runtest.Must(t, n.Close())
	})
}

// logFS fails to make write-ahead logs.
type logFS struct {
	vfs.FS
	err atomic.Pointer[error]
	// failed counts what was refused.
	failed atomic.Int64
}

func (f *logFS) refuse(name string) error {
	if err := f.err.Load(); err != nil && strings.HasSuffix(name, ".log") {
		f.failed.Add(1)
		return &os.PathError{Op: "create", Path: name, Err: *err}
	}
	return nil
}

func (f *logFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := f.refuse(name); err != nil {
		return nil, err
	}
	return f.FS.Create(name, category)
}

func (f *logFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := f.refuse(newname); err != nil {
		return nil, err
	}
	return f.FS.ReuseForWrite(oldname, newname, category)
}

// A rotation that fails permanently ends the writes, with a reason. Reads and the process go on.
func TestNode_RotationFails(t *testing.T) {
	alone(t, func(t *testing.T) {
		fs := &logFS{FS: vfs.NewMem()}
		n, err := Open(Config{Dir: "log", FS: fs, MemtableBytes: 256 << 10, Logger: runtest.Logger(t)})
		runtest.Must(t, err)
		c := clientOf(t, n)
		c.append("s", anyRevision, newEvents(3)...)
		eio := error(syscall.EIO)
		fs.err.Store(&eio)
		for range 100 {
			if _, err := c.tryAppend(runtest.Context(t), "s", anyRevision, newEvent(strings.Repeat("x", 20_000))); err != nil {
				break
			}
		}
		awaitFailure(t, n)
		if err := n.Err(); err == nil || !strings.Contains(err.Error(), syscall.EIO.Error()) {
			t.Errorf("it failed because: %v", err)
		}
		if got := len(c.read(ofStream("s"))); got < 3 {
			t.Errorf("%d events are read", got)
		}
		// The engine cannot be closed; the folder is given back all the same when the process ends.
		if err := n.Close(); err == nil {
			t.Error("the node was closed although its engine does not end")
		}
	})
}

// A rotation that finds no descriptor waits for one.
func TestNode_RotationWaitsForADescriptor(t *testing.T) {
	fs := &logFS{FS: vfs.NewMem()}
	n := open(t, Config{Dir: "log", FS: fs, MemtableBytes: 256 << 10})
	n.store.disk.space.stallAfter = 20 * time.Millisecond
	c := clientOf(t, n)
	emfile := error(syscall.EMFILE)
	fs.err.Store(&emfile)
	var failed error
	for range 100 {
		if _, failed = c.tryAppend(runtest.Context(t), "s", anyRevision, newEvent(strings.Repeat("x", 20_000))); failed != nil {
			break
		}
	}
	if failed == nil || fs.failed.Load() == 0 {
		t.Fatalf("%v, %d refused: this test tests nothing", failed, fs.failed.Load())
	}
	fs.err.Store(nil)
	awaitSpace(t, n)
	c.append("s", anyRevision, newEvents(1)...)
	if err := n.Err(); err != nil {
		t.Error(err)
	}
}

func TestDescriptors_Spare(t *testing.T) {
	var s spare
	defer s.release()
	tries := 0
	err := s.use(func() error {
		if tries++; tries == 1 && s.file != nil {
			return &os.PathError{Op: "open", Path: "log", Err: syscall.EMFILE}
		}
		return nil
	})
	if err != nil || tries != 2 || s.file == nil {
		t.Errorf("%v after %d tries, the spare is back: %t", err, tries, s.file != nil)
	}
}
