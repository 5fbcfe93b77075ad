package storage

import (
	"errors"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// errFenced stops the writes of an engine that failed, since the next engine may have opened the
// folder already.
var errFenced = errors.New("the log was closed after a failure")

// fence stops all writes to the disk.
func (d *disk) fence() {
	d.fenced.Store(true)
	d.space.close()
}

func (d *disk) unlessFenced(do func() error) error {
	if d.fenced.Load() {
		return errFenced
	}
	return do()
}

// Rename moves a file.
func (d *disk) Rename(oldname, newname string) error {
	return d.space.try(d.policy(newname), func() error {
		return d.unlessFenced(func() error { return d.FS.Rename(oldname, newname) })
	})
}

// Remove removes a file.
func (d *disk) Remove(name string) error {
	return d.unlessFenced(func() error { return d.FS.Remove(name) })
}

// RemoveAll removes a folder.
func (d *disk) RemoveAll(name string) error {
	return d.unlessFenced(func() error { return d.FS.RemoveAll(name) })
}

// Link gives a file another name.
func (d *disk) Link(oldname, newname string) error {
	return d.unlessFenced(func() error { return d.FS.Link(oldname, newname) })
}

// MkdirAll makes a folder.
func (d *disk) MkdirAll(dir string, perm os.FileMode) error {
	return d.unlessFenced(func() error { return d.FS.MkdirAll(dir, perm) })
}

// OpenReadWrite opens a file to change it.
func (d *disk) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	if d.fenced.Load() {
		return nil, errFenced
	}
	f, err := d.FS.OpenReadWrite(name, category, opts...)
	if err != nil {
		return nil, err
	}
	return &diskFile{File: f, disk: d, policy: d.policy(name)}, nil
}

// diskFile is a file that the engine writes.
type diskFile struct {
	vfs.File
	disk     *disk
	policy   spacePolicy
	manifest string // its name, where it is a manifest
	written  int64
}

// Write writes all of p. Without space it may write in parts and wait in between.
func (f *diskFile) Write(p []byte) (written int, err error) {
	err = f.disk.space.try(f.policy, func() error {
		return f.disk.unlessFenced(func() error {
			n, err := f.File.Write(p[written:])
			written += n
			return err
		})
	})
	f.written += int64(written)
	return written, err
}

// Sync writes the file to the disk.
func (f *diskFile) Sync() error {
	if err := f.disk.unlessFenced(f.File.Sync); err != nil {
		return err
	}
	if f.manifest != "" {
		f.disk.mu.Lock()
		defer f.disk.mu.Unlock()
		f.disk.manifest, f.disk.manifestSize = f.manifest, f.written
	}
	return nil
}

// SyncData writes the file to the disk, without its metadata.
func (f *diskFile) SyncData() error { return f.disk.unlessFenced(f.File.SyncData) }
