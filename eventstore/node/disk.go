package node

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// disk is the file system as the storage engine sees it. It knows the write-ahead logs: the engine keeps old ones and
// writes new content over them, which spares the disk work at every fsync, but leaves behind the new content what the old one
// was. For a scavenge the disk therefore hands out new files only, and takes the old ones away.
type disk struct {
	vfs.FS
	dir string

	mu     sync.Mutex
	newest uint64 // the number of the newest log
	fresh  bool   // no old file becomes a new log
}

func newDisk(fs vfs.FS, dir string) *disk { return &disk{FS: fs, dir: dir} }

// Unwrap returns the file system below.
func (d *disk) Unwrap() vfs.FS { return d.FS }

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
	if n, ok := logNumber(d.PathBase(name)); ok {
		d.newest = max(d.newest, n)
	}
}

// Create makes a new file.
func (d *disk) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.create(name, category)
}

func (d *disk) create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.Create(name, category)
	if err == nil {
		d.created(name)
	}
	return f, err
}

// ReuseForWrite makes a new log, out of an old one where that may be.
func (d *disk) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fresh {
		if err := d.Remove(oldname); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		return d.create(newname, category)
	}
	f, err := d.FS.ReuseForWrite(oldname, newname, category)
	if errors.Is(err, os.ErrNotExist) { // a scavenge took it
		return d.create(newname, category)
	}
	if err == nil {
		d.created(newname)
	}
	return f, err
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
