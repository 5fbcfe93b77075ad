package storage

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// disk is the file system as the storage engine sees it. It tracks the write-ahead logs: the engine
// reuses old ones by overwriting them, which saves work at every fsync but leaves old content after
// the new. So during a scavenge the disk hands out new files only, and deletes the old ones.
//
// It also hides a full disk from the engine, which would fail permanently (space.go).
type disk struct {
	vfs.FS
	dir   string
	space *space
	spare spare
	// rotationFailed is called if the next write-ahead log cannot be created. It does not return.
	rotationFailed func(err error)

	mu     sync.Mutex
	newest uint64 // the number of the newest log
	fresh  bool   // no old file becomes a new log
	// manifest is the newest manifest, and manifestSize how many bytes of it are fsynced.
	manifest     string
	manifestSize int64

	fenced atomic.Bool
}

func newDisk(fs vfs.FS, dir string, log *slog.Logger) *disk {
	return &disk{FS: fs, dir: dir, space: newSpace(log)}
}

// Unwrap returns the file system below.
func (d *disk) Unwrap() vfs.FS { return d.FS }

// owns reports whether a file belongs to the log. The engine also writes copies of the log; these
// simply fail if they cannot be written.
func (d *disk) owns(name string) bool { return d.PathDir(name) == d.dir }

// logNumber returns the number in the name of a write-ahead log.
func logNumber(name string) (uint64, bool) {
	stem, ok := strings.CutSuffix(name, ".log")
	if !ok {
		return 0, false
	}
	// A log may have several parts, numbered after a hyphen.
	stem, _, _ = strings.Cut(stem, "-")
	n, err := strconv.ParseUint(stem, 10, 64)
	return n, err == nil
}

func (d *disk) created(name string) {
	if n, ok := logNumber(d.PathBase(name)); ok && d.owns(name) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.newest = max(d.newest, n)
	}
}

// Create makes a new file.
func (d *disk) Create(name string, category vfs.DiskWriteCategory) (f vfs.File, err error) {
	err = d.space.try(d.policy(name), func() error {
		return d.unlessFenced(func() error {
			return d.openFor(name, func() error {
				f, err = d.FS.Create(name, category)
				return err
			})
		})
	})
	if err != nil {
		d.checkRotation(name, err)
		return nil, err
	}
	d.created(name)
	file := &diskFile{File: f, disk: d, policy: d.policy(name)}
	if base := d.PathBase(name); d.owns(name) && isManifest(base) {
		file.manifest = base
	}
	return file, nil
}

// openFor opens a file. Files of the log may use the spare descriptor.
func (d *disk) openFor(name string, open func() error) error {
	if !d.owns(name) {
		return open()
	}
	return d.spare.use(open)
}

// checkRotation hides the error of a new write-ahead log from the engine, which would not survive
// it: it panics while a deferred call unlocks a mutex that it does not hold, and the process ends
// without a reason in its log.
func (d *disk) checkRotation(name string, err error) {
	if _, isLog := logNumber(d.PathBase(name)); isLog && d.owns(name) && d.space.retries.Load() &&
		d.rotationFailed != nil {
		d.rotationFailed(err)
	}
}

// ReuseForWrite creates a new log, by renaming an old one unless a scavenge runs.
func (d *disk) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, reused, err := d.reuse(oldname, newname, category)
	if err != nil {
		d.checkRotation(newname, err)
		return nil, err
	}
	if !reused {
		return d.Create(newname, category)
	}
	return &diskFile{File: f, disk: d, policy: d.policy(newname)}, nil
}

// reuse renames an old log to a new one. reused is false if old logs must not be reused, or a
// scavenge deleted this one.
func (d *disk) reuse(oldname, newname string, category vfs.DiskWriteCategory) (f vfs.File, reused bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fresh {
		if err := d.Remove(oldname); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, false, err
		}
		return nil, false, nil
	}
	if d.fenced.Load() {
		return nil, false, errFenced
	}
	f, err = d.FS.ReuseForWrite(oldname, newname, category)
	// Without a descriptor the old file is already renamed: Create waits for a descriptor and
	// truncates it.
	if errors.Is(err, os.ErrNotExist) || noDescriptor(err) {
		return nil, false, nil
	}
	if n, ok := logNumber(d.PathBase(newname)); ok && err == nil {
		d.newest = max(d.newest, n)
	}
	return f, err == nil, err
}

// freshLogs makes every log from now on a new file, or allows reuse again. It returns the number of
// the newest log.
func (d *disk) freshLogs(fresh bool) (newest uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fresh = fresh
	return d.newest
}

// removeLogs deletes the logs up to a number. The engine must no longer need them, and freshLogs
// must be in force.
func (d *disk) removeLogs(upTo uint64) error {
	names, err := d.List(d.dir)
	if err != nil {
		return fmt.Errorf("remove old write-ahead logs: %w", err)
	}
	for _, name := range names {
		if n, ok := logNumber(name); !ok || n > upTo {
			continue
		}
		// The engine may remove it at the same time.
		if err := d.Remove(d.PathJoin(d.dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove old write-ahead logs: %w", err)
		}
	}
	return nil
}
