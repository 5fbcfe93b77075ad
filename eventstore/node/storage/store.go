package storage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	defaultCache = 64 << 20
	// What is in memory is also in the write-ahead logs, and a start after a crash replays it: at
	// most memtablesKept times memtableBytes and one more, since writes wait for more to be flushed.
	memtableBytes = 8 << 20
	memtablesKept = 4
	filterPolicy  = bloom.FilterPolicy(10) // ten bits for each key
)

// store is the open folder.
type store struct {
	db      *pebble.DB
	disk    *disk
	jobs    *jobs
	lock    *pebble.Lock
	cache   *pebble.Cache
	failure *failure
	// files is held while files are deleted or copied without the engine; capacity 1.
	files chan struct{}
	// writes is held shared by every commit, and alone by a copy of the log that needs it to stand
	// still.
	writes sync.RWMutex
	// marked is the content of markFile; before is the mark of the last process.
	before, marked mark
	// memtable is how many bytes are held in memory before they are written to a table.
	memtable uint64
	// skipFlush leaves the write-ahead log as a crash would, for tests.
	skipFlush bool
}

func openStore(cfg Config) (*store, error) {
	fs := cmp.Or(cfg.FS, vfs.Default)
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("data folder %s: %w", cfg.Dir, err)
	}
	if err := makeFolder(fs, dir); err != nil {
		return nil, openError(cfg.Dir, err)
	}
	lock, err := pebble.LockDirectory(dir, fs)
	if err != nil {
		return nil, openError(cfg.Dir, err)
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
		before: before, disk: newDisk(fs, dir, cfg.Logger), jobs: newJobs(), lock: lock,
		cache:   pebble.NewCache(cmp.Or(cfg.CacheBytes, defaultCache)),
		failure: newFailure(), files: make(chan struct{}, 1), memtable: cmp.Or(cfg.MemtableBytes, memtableBytes),
	}
	s.failure.log = cfg.Logger
	s.disk.rotationFailed = pebbleLog{cfg.Logger, s.failure}.park
	if err := s.open(cfg.Logger); err != nil {
		s.disk.spare.release()
		s.cache.Unref()
		return nil, errors.Join(openError(cfg.Dir, err), lock.Close())
	}
	if err := s.upgrade(format); err != nil {
		return nil, errors.Join(openError(cfg.Dir, err), s.close())
	}
	s.disk.space.retries.Store(true)
	return s, nil
}

// open opens the engine in a separate goroutine: a failure that the engine calls fatal ends the
// goroutine in which it happens.
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

// makeFolder creates a folder that only its owner can read, and fsyncs the parents of the folders
// that it created: otherwise a crash could lose the folder's name, and the log with it.
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
	// Most appends are to a new stream; the filter answers "not found" without the disk.
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = filterPolicy
	}
	return o
}

// head returns the position of the newest event. The newest event is never removed, so positions
// are not reused.
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

// close releases the folder.
func (s *store) close() error { return s.closeAt(0) }

// closeAt releases the folder, and writes the mark for the head unless that is 0.
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
	s.disk.spare.release()
	err = errors.Join(err, s.lock.Close())
	if err != nil {
		return fmt.Errorf("close the log: %w", err)
	}
	s.cache.Unref()
	return nil
}

// flushTime bounds how long closing writes the memory to tables.
const flushTime = 10 * time.Second

// flushAtLast writes the memory to tables, so that the next start has nothing to replay. What is
// not flushed, for lack of time or space, is still in the write-ahead log. The flush runs in a
// separate goroutine, since the engine may end the one in which it fails, or hold it permanently (park).
func (s *store) flushAtLast() {
	if s.skipFlush || s.disk.short(defaultReserve) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushTime)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer s.failure.recoverPanic("the last flush")
		if err := s.flush(ctx); err != nil {
			s.disk.space.log.Info("event store flush failed, the next start replays the write-ahead log", "err", err)
		}
	}()
	select {
	case <-done:
	case <-s.failure.done:
	}
}

// abandonTime is how long a store that failed may take to close.
const abandonTime = 5 * time.Second

// abandon closes an engine that failed, if it can. The engine may hold its own locks, so the wait
// is bounded.
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
		return errors.New("the engine does not stop: restart the process")
	}
}

// pebbleLog passes the engine's failures to the logger, and discards its information.
type pebbleLog struct {
	log     *slog.Logger
	failure *failure
}

func (pebbleLog) Infof(string, ...any) {}

func (l pebbleLog) Errorf(format string, args ...any) {
	l.log.Error("event store engine failed", "detail", fmt.Sprintf(format, args...))
}

// Fatalf is called if the engine cannot know what is on the disk, such as after a failed fsync.
// Continuing could acknowledge what is lost, so nothing is written any more; the next start reads
// what the disk holds. The engine expects that the call does not return: the goroutine ends, be it
// the writer or one of the engine's, and reads continue.
func (l pebbleLog) Fatalf(format string, args ...any) {
	detail := fmt.Sprintf(format, args...)
	l.log.Error("event store engine stopped, restart the process", "detail", detail)
	l.failure.set(fmt.Errorf("the log can be written no more, until a new start: %s", detail))
	runtime.Goexit()
}

// park is Fatalf for a failure during a rotation of the write-ahead log. There the engine has
// released a mutex that a deferred call unlocks, so a panic or the end of the goroutine would end
// the process. The goroutine blocks permanently instead; the writer does not wait for it, and reads
// continue.
func (l pebbleLog) park(err error) {
	l.log.Error("event store engine stopped without a next write-ahead log, restart the process", "err", err)
	l.failure.set(fmt.Errorf("the log can be written no more, until a new start: next write-ahead log: %w", err))
	select {}
}

// vanishTime is how long a scavenge waits for the engine to delete files: readers use them for
// moments only.
const vanishTime = 5 * time.Minute

// lockFiles prevents concurrent deletions and copies of files.
func (s *store) lockFiles(ctx context.Context) error {
	select {
	case s.files <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.failure.done:
		return s.failure.get()
	}
}

func (s *store) unlockFiles() { <-s.files }

// commit writes a batch with an fsync, and closes it.
func (s *store) commit(batch *pebble.Batch) error {
	if err := s.failure.get(); err != nil {
		return errors.Join(err, batch.Close())
	}
	if err := errors.Join(s.write(batch), batch.Close()); err != nil {
		return fmt.Errorf("write the log: %w", err)
	}
	return nil
}

// write writes a batch with an fsync. Every write of the log goes through here.
func (s *store) write(batch *pebble.Batch) error {
	s.writes.RLock()
	defer s.writes.RUnlock()
	return batch.Commit(pebble.Sync)
}

// flush writes the memory to tables and begins a new write-ahead log. The logs before it are no
// longer needed when it returns.
func (s *store) flush(ctx context.Context) error {
	flushed, err := s.db.AsyncFlush()
	if err != nil {
		return fmt.Errorf("flush the log: %w", err)
	}
	select {
	case <-flushed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.failure.done:
		return s.failure.get()
	}
}

// tables returns the numbers of the files that the engine uses.
func (s *store) tables() (map[uint64]struct{}, error) {
	levels, err := s.db.SSTables()
	if err != nil {
		return nil, fmt.Errorf("list files: %w", err)
	}
	out := map[uint64]struct{}{}
	for _, level := range levels {
		for _, t := range level {
			out[uint64(t.BackingSSTNum)] = struct{}{}
		}
	}
	return out, nil
}

func (s *store) newestTable() (newest uint64, err error) {
	live, err := s.tables()
	for n := range live {
		newest = max(newest, n)
	}
	return newest, err
}

// staleTables returns the files in the folder that the engine does not use: it will delete them, or
// is still writing them.
func (s *store) staleTables() (map[uint64]struct{}, error) {
	names, err := s.disk.List(s.disk.dir)
	if err != nil {
		return nil, fmt.Errorf("list files: %w", err)
	}
	live, err := s.tables()
	if err != nil {
		return nil, err
	}
	out := map[uint64]struct{}{}
	for _, name := range names {
		stem, ok := strings.CutSuffix(name, ".sst")
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(stem, 10, 64)
		if _, used := live[n]; err == nil && !used {
			out[n] = struct{}{}
		}
	}
	return out, nil
}

// awaitDeleted waits until the files that the engine no longer uses are deleted: it deletes them in
// the background, once no reader has them open.
func (s *store) awaitDeleted(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, vanishTime, errors.New("a reader still uses them"))
	defer cancel()
	var waiting map[uint64]struct{}
	for {
		changed := s.jobs.next()
		stale, err := s.staleTables()
		if err != nil {
			return err
		}
		if waiting == nil {
			waiting = stale
		}
		maps.DeleteFunc(waiting, func(n uint64, _ struct{}) bool {
			_, still := stale[n]
			return !still
		})
		if len(waiting) == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-s.failure.done:
			return s.failure.get()
		case <-ctx.Done():
			return fmt.Errorf("%d old files are not deleted: %w", len(waiting), context.Cause(ctx))
		}
	}
}

// jobs tracks the flushes and compactions of the engine. A compaction keeps what an open snapshot
// sees, so a scavenge waits for those that began before its own snapshots ended.
type jobs struct {
	mu      sync.Mutex
	running map[int]struct{}
	changed chan struct{} // closed and replaced whenever a job ends or a file is deleted
}

func newJobs() *jobs { return &jobs{running: map[int]struct{}{}, changed: make(chan struct{})} }

func (j *jobs) began(id int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.running[id] = struct{}{}
}

func (j *jobs) ended(id int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.running, id)
	j.notify()
}

func (j *jobs) notify() {
	close(j.changed)
	j.changed = make(chan struct{})
}

// next returns a channel that is closed when the next job ends or the next file is deleted.
func (j *jobs) next() <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.changed
}

// awaitRunning waits until the jobs that are running now have ended.
func (j *jobs) awaitRunning(ctx context.Context) error {
	j.mu.Lock()
	waiting := map[int]struct{}{}
	for id := range j.running {
		waiting[id] = struct{}{}
	}
	j.mu.Unlock()
	for {
		j.mu.Lock()
		for id := range waiting {
			if _, on := j.running[id]; !on {
				delete(waiting, id)
			}
		}
		changed := j.changed
		j.mu.Unlock()
		if len(waiting) == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// listener returns the callbacks of the engine.
func (j *jobs) listener(log *slog.Logger) *pebble.EventListener {
	return &pebble.EventListener{
		// Reads of the file fail; the rest of the log is intact.
		DataCorruption: func(i pebble.DataCorruptionInfo) {
			log.Error("a file of the log is damaged", "path", i.Path, "err", i.Details)
		},
		CompactionBegin: func(i pebble.CompactionInfo) { j.began(i.JobID) },
		CompactionEnd:   func(i pebble.CompactionInfo) { j.ended(i.JobID) },
		FlushBegin:      func(i pebble.FlushInfo) { j.began(i.JobID) },
		FlushEnd:        func(i pebble.FlushInfo) { j.ended(i.JobID) },
		TableDeleted: func(pebble.TableDeleteInfo) {
			j.mu.Lock()
			defer j.mu.Unlock()
			j.notify()
		},
	}
}
