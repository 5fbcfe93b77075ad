package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	defaultCache = 64 << 20
	// What is in memory stands in the write-ahead logs, and a start after a crash reads it from there: memtablesKept times memtableBytes at
	// most, since writes wait for more to reach tables.
	memtableBytes = 8 << 20
	memtablesKept = 4
	filterPolicy  = bloom.FilterPolicy(10) // ten bits for each key
)

// store is the opened folder.
type store struct {
	db      *pebble.DB
	disk    *disk
	jobs    *jobs
	lock    *pebble.Lock
	cache   *pebble.Cache
	failure *failure
	// files is held while files are taken away or copied beside the engine; capacity 1.
	files chan struct{}
	// marked is what markFile says; before belongs to the last process.
	before, marked mark
	// memtable is how many bytes are held in memory before they go to a table.
	memtable uint64
	// asItIs leaves the write-ahead log as a crash would, for tests.
	asItIs bool
}

func openStore(cfg Config) (*store, error) {
	fs := cfg.FS
	if fs == nil {
		fs = vfs.Default
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("data folder %s: %w", cfg.Dir, err)
	}
	if err := makeFolder(fs, dir); err != nil {
		return nil, unopened(cfg.Dir, err)
	}
	lock, err := pebble.LockDirectory(dir, fs)
	if err != nil {
		return nil, unopened(cfg.Dir, err)
	}
	format, err := readFormat(fs, dir)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	before, err := readMark(fs, dir)
	if err == nil {
		err = before.checkManifest(fs, dir)
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	s := &store{
		before: before, disk: newDisk(fs, dir, cfg.Logger), jobs: newJobs(), lock: lock, cache: pebble.NewCache(cmp.Or(cfg.CacheBytes, defaultCache)),
		failure: newFailure(), files: make(chan struct{}, 1), memtable: cmp.Or(cfg.memtable, memtableBytes),
	}
	s.disk.rotationFailed = pebbleLog{cfg.Logger, s.failure}.park
	if err := s.open(cfg.Logger); err != nil {
		s.disk.spare.give()
		s.cache.Unref()
		return nil, errors.Join(unopened(cfg.Dir, err), lock.Close())
	}
	if err := s.upgrade(format); err != nil {
		return nil, errors.Join(unopened(cfg.Dir, err), s.close())
	}
	s.disk.space.patient.Store(true)
	return s, nil
}

// open opens the engine, in a goroutine of its own: a failure that the engine calls fatal ends the goroutine that it happens in.
func (s *store) open(log *slog.Logger) error {
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if r := recover(); r != nil {
				err = &panicked{r}
			}
		}()
		s.db, err = pebble.Open(s.disk.dir, s.options(log))
	}()
	<-done
	if s.db == nil && err == nil {
		return s.failure.get()
	}
	return err
}

// makeFolder makes a folder that only its owner reads, and fsyncs the folders above those that it made: else the log
// could be lost together with the name of its folder.
func makeFolder(fs vfs.FS, dir string) error {
	var parents []string
	for d := dir; ; d = fs.PathDir(d) {
		if _, err := fs.Stat(d); err == nil {
			break
		} else if !errors.Is(err, os.ErrNotExist) { // the file system wraps it
			return err
		}
		if fs.PathDir(d) == d {
			break
		}
		parents = append(parents, fs.PathDir(d))
	}
	if err := fs.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, parent := range parents {
		f, err := fs.OpenDir(parent)
		if err != nil {
			return err
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			return err
		}
	}
	return nil
}

func (s *store) options(log *slog.Logger) *pebble.Options {
	o := &pebble.Options{
		FS: s.disk, Lock: s.lock, Cache: s.cache,
		FormatMajorVersion:          pebble.FormatNewest,
		MemTableSize:                s.memtable,
		MemTableStopWritesThreshold: memtablesKept,
		MaxOpenFiles:                tableFiles(),
		CompactionConcurrencyRange:  func() (int, int) { return 1, 2 },
		EventListener:               s.jobs.listener(log),
		Logger:                      pebbleLog{log, s.failure},
	}
	// Most appends go to a stream that is new, and the filter answers "not there" without the disk.
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = filterPolicy
	}
	return o
}

// head finds the position of the newest event. The newest event is never removed, so positions never repeat.
func (s *store) head() (uint64, error) {
	iter, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{spaceEvent}, UpperBound: []byte{spaceEvent + 1}})
	if err != nil {
		return 0, fmt.Errorf("find the end of the log: %w", err)
	}
	var head uint64
	if iter.Last() {
		head = positionOf(iter.Key())
	}
	if err := errors.Join(iter.Error(), iter.Close()); err != nil {
		return 0, fmt.Errorf("find the end of the log: %w", err)
	}
	return head, nil
}

// close gives the folder back.
func (s *store) close() error { return s.closeAt(0) }

// closeAt gives the folder back, and notes the head where it is known.
func (s *store) closeAt(head uint64) error {
	var err error
	if s.failure.get() == nil {
		s.flushAtLast()
	}
	if s.failure.get() == nil {
		if err = s.db.Close(); err == nil && head > 0 {
			err = s.writeMark(head)
		}
	} else {
		err = s.abandon()
	}
	s.disk.spare.give()
	err = errors.Join(err, s.lock.Close())
	if err != nil {
		return fmt.Errorf("close the log: %w", err)
	}
	s.cache.Unref()
	return nil
}

// flushTime is how long a store that closes may take to write to tables what is in memory.
const flushTime = 10 * time.Second

// flushAtLast leaves the next start nothing to read from the write-ahead log. What stays there, for want of time or of space on the disk,
// is not lost. The engine is flushed in a goroutine of its own, as it may end the one that it fails in.
func (s *store) flushAtLast() {
	if s.asItIs || s.disk.short(defaultReserve) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushTime)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.flush(ctx); err != nil {
			s.disk.space.log.Info("the next start of the event store reads its write-ahead log", "err", err)
		}
	}()
	<-done
}

// abandonTime is how long a store that failed may take to close.
const abandonTime = 5 * time.Second

// abandon closes an engine that failed, as far as it can be: it may have ended in the middle of anything, holding its own
// locks. Nothing that is left of it reaches the disk any more.
func (s *store) abandon() error {
	s.disk.fence()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if r := recover(); r != nil {
				s.failure.set(fmt.Errorf("close the log: %v", r))
			}
		}()
		if err := s.db.Close(); err != nil { // what it could not write is known
			s.failure.set(err)
		}
	}()
	timer := time.NewTimer(abandonTime)
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-timer.C:
		return errors.New("the engine does not end; the process should")
	}
}

// pebbleLog hands the storage engine's failures to the logger of the node. Its chatter is left out.
type pebbleLog struct {
	log     *slog.Logger
	failure *failure
}

func (pebbleLog) Infof(string, ...any) {}

func (l pebbleLog) Errorf(format string, args ...any) {
	l.log.Error("log storage failed", "detail", fmt.Sprintf(format, args...))
}

// Fatalf is called where the engine cannot know any more what is on disk, such as after a failed fsync. Going on could
// acknowledge what is lost, so the node writes no more; the next start reads what the disk really holds. The engine expects
// that the call does not return: the goroutine ends, be it the writer or one of the engine's own, and reads go on.
func (l pebbleLog) Fatalf(format string, args ...any) {
	detail := fmt.Sprintf(format, args...)
	l.log.Error("log storage cannot go on", "detail", detail)
	l.failure.set(fmt.Errorf("the log can be written no more, until a new start: %s", detail))
	runtime.Goexit()
}

// park is Fatalf for a failure in the middle of a rotation of the write-ahead log. The engine has released a mutex there that
// a deferred call unlocks: neither a panic nor the end of the goroutine would end in anything but the end of the process. So
// the goroutine stops for good where it is; the writer does not wait for it, and reads go on.
func (l pebbleLog) park(err error) {
	l.log.Error("log storage cannot go on: no next write-ahead log", "err", err)
	l.failure.set(fmt.Errorf("the log can be written no more, until a new start: next write-ahead log: %w", err))
	select {}
}
