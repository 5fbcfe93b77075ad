package node

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

// disk is the file system as the storage engine sees it. It knows the write-ahead logs: the engine keeps old ones and
// writes new content over them, which spares the disk work at every fsync, but leaves behind the new content what the old one
// was. For a scavenge the disk therefore hands out new files only, and takes the old ones away.
//
// It also keeps a disk without space from the engine, which would give up for good (space.go).
type disk struct {
	vfs.FS
	dir   string
	space *space
	spare spare
	// rotationFailed is called if the engine can have no next write-ahead log. It does not return.
	rotationFailed func(err error)

	mu     sync.Mutex
	newest uint64 // the number of the newest log
	fresh  bool   // no old file becomes a new log
	// manifest is the newest manifest, and manifestSize what of it was fsynced.
	manifest     string
	manifestSize int64

	fenced atomic.Bool
}

func newDisk(fs vfs.FS, dir string, log *slog.Logger) *disk {
	return &disk{FS: fs, dir: dir, space: newSpace(log)}
}

// Unwrap returns the file system below.
func (d *disk) Unwrap() vfs.FS { return d.FS }

// owns says whether a file is the log's own: the engine also writes copies of it, which simply fail where they cannot be written.
func (d *disk) owns(name string) bool { return d.PathDir(name) == d.dir }

// logNumber reads the number of a write-ahead log out of its name.
func logNumber(name string) (uint64, bool) {
	stem, ok := strings.CutSuffix(name, ".log")
	if !ok {
		return 0, false
	}
	// A log may have several parts, which are numbered behind a hyphen.
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
	err = d.space.try(d.patience(name), func() error {
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
	file := &diskFile{File: f, disk: d, patience: d.patience(name)}
	if base := d.PathBase(name); d.owns(name) && isManifest(base) {
		file.manifest = base
	}
	return file, nil
}

// openFor opens a file. The log's own may take the spare descriptor.
func (d *disk) openFor(name string, open func() error) error {
	if !d.owns(name) {
		return open()
	}
	return d.spare.use(open)
}

// checkRotation keeps an error of a new write-ahead log from the engine, which would not survive it: it panics where the
// deferred unlock of a mutex that it does not hold ends the process, with no reason in the log.
func (d *disk) checkRotation(name string, err error) {
	if _, isLog := logNumber(d.PathBase(name)); isLog && d.owns(name) && d.space.patient.Load() && d.rotationFailed != nil {
		d.rotationFailed(err)
	}
}

// ReuseForWrite makes a new log, out of an old one where that may be.
func (d *disk) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, reused, err := d.reuse(oldname, newname, category)
	if err != nil {
		d.checkRotation(newname, err)
		return nil, err
	}
	if !reused {
		return d.Create(newname, category)
	}
	return &diskFile{File: f, disk: d, patience: d.patience(newname)}, nil
}

// reuse makes a new log out of an old one; it does not where that one is not to be used, or was taken by a scavenge.
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
	// Without a descriptor the old file has its new name already: Create waits for one, and begins it again.
	if errors.Is(err, os.ErrNotExist) || noDescriptor(err) {
		return nil, false, nil
	}
	if n, ok := logNumber(d.PathBase(newname)); ok && err == nil {
		d.newest = max(d.newest, n)
	}
	return f, err == nil, err
}

// freshLogs lets every log from now on be a new file, or lets old ones be used again. It returns the number of the newest log so far.
func (d *disk) freshLogs(fresh bool) (newest uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fresh = fresh
	return d.newest
}

// removeLogs takes away the logs up to a number. The engine must be done with them, and freshLogs in force.
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
