package storage

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

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
