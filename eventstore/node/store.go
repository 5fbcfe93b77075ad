package node

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	defaultCache  = 64 << 20
	memtableBytes = 16 << 20
	filterBits    = 10
)

// store is the opened folder.
type store struct {
	db    *pebble.DB
	lock  *pebble.Lock
	cache *pebble.Cache
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
		return nil, fmt.Errorf("data folder: %w", err)
	}
	lock, err := pebble.LockDirectory(dir, fs)
	if inUse(err) {
		return nil, fmt.Errorf("data folder %s is in use by another process", cfg.Dir)
	}
	if err != nil {
		return nil, fmt.Errorf("data folder %s: %w", cfg.Dir, err)
	}
	size := cfg.CacheBytes
	if size == 0 {
		size = defaultCache
	}
	cache := pebble.NewCache(size)
	db, err := pebble.Open(dir, options(fs, lock, cache, cfg.Logger))
	if err != nil {
		cache.Unref()
		return nil, errors.Join(fmt.Errorf("open the log in %s: %w", cfg.Dir, err), lock.Close())
	}
	return &store{db: db, lock: lock, cache: cache}, nil
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

// inUse tells a folder that is locked from one that cannot be locked. Within one process pebble only says it in words.
func inUse(err error) bool {
	return errors.Is(err, syscall.EAGAIN) || err != nil && strings.Contains(err.Error(), "lock held by current process")
}

func options(fs vfs.FS, lock *pebble.Lock, cache *pebble.Cache, log *slog.Logger) *pebble.Options {
	o := &pebble.Options{
		FS: fs, Lock: lock, Cache: cache,
		FormatMajorVersion:          pebble.FormatNewest,
		MemTableSize:                memtableBytes,
		MemTableStopWritesThreshold: 4,
		CompactionConcurrencyRange:  func() (int, int) { return 1, 2 },
		Logger:                      pebbleLog{log},
	}
	// Most appends go to a stream that is new, and the filter answers "not there" without the disk.
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(filterBits)
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

func (s *store) close() error {
	err := errors.Join(s.db.Close(), s.lock.Close())
	s.cache.Unref()
	if err != nil {
		return fmt.Errorf("close the log: %w", err)
	}
	return nil
}

// pebbleLog hands the storage engine's failures to the logger of the node. Its chatter is left out.
type pebbleLog struct{ log *slog.Logger }

func (pebbleLog) Infof(string, ...any) {}

func (l pebbleLog) Errorf(format string, args ...any) {
	l.log.Error("log storage failed", "detail", fmt.Sprintf(format, args...))
}

// Fatalf is called where the engine cannot know any more what is on disk, such as after a failed fsync. Going on could
// acknowledge what is lost, so the process ends; the next start reads what the disk really holds.
func (l pebbleLog) Fatalf(format string, args ...any) {
	detail := fmt.Sprintf(format, args...)
	l.log.Error("log storage cannot go on", "detail", detail)
	panic("event store node: " + detail)
}
