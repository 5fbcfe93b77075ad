package storage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Config describes a log and how it is kept. Only Dir is required.
type Config struct {
	// Dir is the folder of the log; it is created if it does not exist.
	Dir string
	// FS is the file system that holds Dir: nil is the disk.
	FS vfs.FS
	// Logger receives failures; nil discards them.
	Logger *slog.Logger
	// CacheBytes bounds the cache of blocks read from the disk: 64 MiB if 0.
	CacheBytes int64
	// Reserve is the space in bytes that appends leave free on the disk: 128 MiB if 0.
	Reserve uint64
	// MemtableBytes is how much is held in memory before it is written to a table: 8 MiB if 0.
	MemtableBytes uint64
	// Now is the clock: that of the machine if nil.
	Now func() time.Time
	// ManualScavenge removes nothing before Scavenge is called.
	ManualScavenge bool
}

// Engine is an open log. Its methods may be called concurrently.
type Engine struct {
	store     *store
	views     *views
	tail      *tail
	writer    *writer
	scavenger *scavenger
	stats     counters
	now       func() time.Time
	// reserve is how many bytes of the disk appends leave free.
	reserve uint64

	closeOnce sync.Once
	closed    error
}

// Stats counts what was written since the log was opened.
type Stats struct {
	// Appends are the appends that wrote events, Events the events written, system events included.
	Appends, Events uint64
	// Fsyncs are the group commits.
	Fsyncs uint64
}

// Open opens the log of a folder and locks the folder until Close. The error is one line: what is
// wrong with the folder and what to do.
func Open(cfg Config) (*Engine, error) {
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	st, err := openStore(cfg)
	if err != nil {
		return nil, err
	}
	e, err := newEngine(cfg, st)
	if err != nil {
		return nil, errors.Join(err, st.close())
	}
	go e.writer.run()
	go e.scavenger.run()
	return e, nil
}

func newEngine(cfg Config, st *store) (*Engine, error) {
	head, err := st.head()
	if err != nil {
		return nil, err
	}
	if err := st.before.checkHead(cfg.Dir, head); err != nil {
		return nil, err
	}
	if err := st.writeMark(head); err != nil {
		return nil, openError(cfg.Dir, err)
	}
	e := &Engine{
		store: st, views: &views{db: st.db}, tail: newTail(head), now: cfg.Now, reserve: cmp.Or(cfg.Reserve, defaultReserve),
	}
	if err := e.views.publish(head); err != nil {
		return nil, err
	}
	e.scavenger = newScavenger(st, e.views, cfg.Logger)
	e.scavenger.now, e.scavenger.manual = cfg.Now, cfg.ManualScavenge
	e.writer = newWriter(st, e.views, e.tail, &e.stats, head, e.scavenger.wake)
	e.writer.now, e.writer.engineFailure, e.writer.stall = cfg.Now, st.failure, st.disk.space.stall
	e.writer.short = func() bool { return st.disk.short(e.reserve) }
	e.scavenger.republish, e.scavenger.drainReaders = e.writer.republish, e.writer.republishAndDrain
	return e, nil
}

// Stats returns the counts so far.
func (e *Engine) Stats() Stats {
	return Stats{Appends: e.stats.appends.Load(), Events: e.stats.events.Load(), Fsyncs: e.stats.fsyncs.Load()}
}

// Head returns the position of the newest event that readers see, 0 if there is none.
func (e *Engine) Head() uint64 { return e.tail.newest() }

// Do submits a write and waits for its decision. If the context ends first, the outcome is unknown.
func (e *Engine) Do(ctx context.Context, r *Request) (Decision, error) { return e.writer.do(ctx, r) }

// Submit hands a write to the engine without waiting. Writes that one goroutine submits are decided
// in their order. Each is awaited with Await; a Request is used once.
func (e *Engine) Submit(ctx context.Context, r *Request) error { return e.writer.submit(ctx, r) }

// Await waits for the decision of a write that was submitted. If the context ends first, the
// outcome is unknown.
func (e *Engine) Await(ctx context.Context, r *Request) (Decision, error) {
	return e.writer.await(ctx, r)
}

// Close writes what was submitted and releases the folder. It may be called more than once. Reads
// must have ended.
func (e *Engine) Close() error {
	e.closeOnce.Do(func() {
		e.store.disk.space.close()
		written := e.writer.close()
		e.scavenger.close()
		e.closed = errors.Join(written, e.views.close(), e.store.closeAt(e.writer.head))
	})
	return e.closed
}

// failure is the reason why nothing can be written any more, once there is one.
type failure struct {
	log  *slog.Logger // nil discards
	once sync.Once
	done chan struct{}
	err  error // readable once done is closed
}

func newFailure() *failure { return &failure{done: make(chan struct{})} }

// set keeps the first reason.
func (f *failure) set(err error) {
	f.once.Do(func() {
		f.err = err
		close(f.done)
	})
}

// recoverPanic is deferred by a goroutine of the engine. A panic leaves the memory in an unknown
// state, so it is a reason why nothing can be written any more.
func (f *failure) recoverPanic(what string) {
	r := recover()
	if r == nil {
		return
	}
	if f.log != nil {
		f.log.Error("event store engine stopped, restart the process",
			"detail", what+" panicked", "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
	}
	f.set(fmt.Errorf("the log can be written no more, until a new start: %s panicked: %w", what, &panicked{r}))
}

func (f *failure) get() error {
	select {
	case <-f.done:
		return f.err
	default:
		return nil
	}
}

// Failed is closed once nothing can be written any more until a new start: the disk failed or the
// engine panicked, and only a new start can find out what is on the disk. From then on appends and
// deletions are refused; the outcome of those that were under way is unknown. Reads continue if the
// disk allows. A full disk is not a failure.
func (e *Engine) Failed() <-chan struct{} { return e.store.failure.done }

// Err returns the reason why Failed was closed; nil before.
func (e *Engine) Err() error { return e.store.failure.get() }

// panicked is a panic of the engine, on damage that it does not report as an error.
type panicked struct{ value any }

func (p *panicked) Error() string { return fmt.Sprint(p.value) }

// openError returns one line with the reason why a folder cannot be opened, and what to do.
func openError(dir string, err error) error {
	var panic *panicked
	switch {
	case inUse(err):
		return inUseError(dir, err)
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, os.ErrExist):
		return fmt.Errorf("data folder %s is not a folder: name another, or move what is in its way", dir)
	case errors.Is(err, os.ErrPermission), errors.Is(err, syscall.EROFS):
		return fmt.Errorf("data folder %s cannot be written by this user: %w", dir, err)
	case noSpace(err):
		return fmt.Errorf("the disk of data folder %s is full: make space and start again (%w)", dir, err)
	case strings.Contains(err.Error(), "unknown format major version"),
		strings.Contains(err.Error(), "written in format major version"):
		return newerError(dir, err.Error())
	case pebble.IsCorruptionError(err),
		record.IsInvalidRecord(err),
		errors.Is(err, os.ErrNotExist),
		errors.As(err, &panic),
		strings.Contains(err.Error(), "manifest"),
		strings.Contains(err.Error(), "MANIFEST"):
		return damagedError(dir, err)
	default:
		return fmt.Errorf("the log in %s cannot be opened: %w", dir, err)
	}
}

// damagedError reports a log that differs from how it was closed.
func damagedError(dir string, detail error) error {
	return fmt.Errorf("the log in %s is damaged: %w; keep it as it is, and restore a backup into a new folder", dir,
		detail)
}

// newerError reports a log that this program is too old for.
func newerError(dir, detail string) error {
	return fmt.Errorf("data folder %s was written by a newer version of this program (%s): "+
		"run that version, or restore a backup that this one made", dir, detail)
}

// inUse reports whether another process, or this one, holds the lock of the folder. For its own
// process pebble reports it only in the message.
func inUse(err error) bool {
	return errors.Is(err, syscall.EAGAIN) || err != nil && strings.Contains(err.Error(), "lock held by current process")
}

// lockName is the file of a log that pebble locks.
const lockName = "LOCK"

// Holder names the other process that has a log open, such as "annals serve, pid 4711". It returns "" if there is none,
// or none that this process can see. A process that has the log open itself must not call it: closing any descriptor
// of a file ends the POSIX locks that the process has on it.
func Holder(dir string) string {
	file, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR, 0)
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }() // nothing is written
	lock := syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart}
	if err := syscall.FcntlFlock(file.Fd(), syscall.F_GETLK, &lock); err != nil || lock.Type == syscall.F_UNLCK ||
		lock.Pid <= 0 { // 0 is a process of another namespace
		return ""
	}
	return program(int(lock.Pid))
}

// program names a process by its program and command, if this machine shows them.
func program(pid int) string {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	arguments := strings.Split(strings.TrimRight(string(line), "\x00"), "\x00")
	if err != nil || arguments[0] == "" {
		return fmt.Sprintf("pid %d", pid)
	}
	name := filepath.Base(arguments[0])
	if len(arguments) > 1 && !strings.HasPrefix(arguments[1], "-") { // a flag may hold a password
		name += " " + arguments[1]
	}
	return fmt.Sprintf("%s, pid %d", name, pid)
}

// inUseError names the process that has a log open.
func inUseError(dir string, err error) error {
	text := "data folder " + dir + " is in use by another process"
	if errors.Is(err, syscall.EAGAIN) { // else it is this process
		if holder := Holder(dir); holder != "" {
			text += " (" + holder + ")"
		}
	}
	return errors.New(text)
}
