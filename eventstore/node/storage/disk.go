package storage

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// disk is the file system as the storage engine sees it. It tracks the write-ahead logs: the engine
// reuses old ones by overwriting them, which saves work at every fsync but leaves old content after
// the new. So during a scavenge the disk hands out new files only, and deletes the old ones.
//
// It also hides a full disk from the engine, which would fail permanently (space).
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

// noDescriptor reports whether an error means that the process or the machine has no file
// descriptor left.
func noDescriptor(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// spare is a file descriptor reserved for the log. The engine cannot continue without the next file
// of its write-ahead log; everything else in the process can wait for a descriptor.
type spare struct {
	mu   sync.Mutex
	file *os.File
}

// use calls open, which opens a file of the log, and frees the spare descriptor for it if there is
// no other.
func (s *spare) use(open func() error) error {
	s.refill()
	err := open()
	if !noDescriptor(err) || !s.release() {
		return err
	}
	defer s.refill()
	return open()
}

// release closes the spare descriptor, if there is one.
func (s *spare) release() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		return false
	}
	_ = s.file.Close() // the null device
	s.file = nil
	return true
}

// refill opens the spare descriptor if there is none. If that fails, the next use tries again.
func (s *spare) refill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		s.file, _ = os.Open(os.DevNull)
	}
}

// tableFiles returns how many tables the engine keeps open: a quarter of the descriptors of the
// process, within bounds.
func tableFiles() int {
	const most, least = 1000, 32
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return most
	}
	return int(min(max(limit.Cur/4, least), most))
}

const (
	// defaultReserve is the space that appends leave free: the engine needs it to write what it
	// holds in memory, and deletions need it.
	defaultReserve = 128 << 20
	// retryPause is the pause between two tries of a write of the log without space, tablePause
	// that of a table.
	retryPause = 100 * time.Millisecond
	tablePause = time.Second
	// stallTimeout is how long writes wait for space before their callers receive ErrStalled.
	stallTimeout = 2 * time.Second
)

// spacePolicy is what a write does without space.
type spacePolicy int

const (
	// failFast fails at once: copies of the log, and other files.
	failFast spacePolicy = iota
	// failAfterPause fails after tablePause: tables, which the engine writes again. It deletes the
	// partial table, which frees space.
	failAfterPause
	// waitForSpace waits: write-ahead logs and manifests. The engine would fail permanently if one
	// of these writes failed.
	waitForSpace
)

// space makes writes of the log wait while the disk is full. To the engine the disk is slow, not
// broken, so it continues as soon as there is space again.
type space struct {
	log *slog.Logger
	// stallAfter is stallTimeout; tests shorten it.
	stallAfter time.Duration
	// retries is set once the log is open: a start without space fails.
	retries atomic.Bool

	mu      sync.Mutex
	waiting int
	// commitBegan is when the commit in progress began, zero if there is none. held is set while it
	// waits for a table that cannot be written: the engine holds no more in memory then.
	commitBegan time.Time
	held        bool
	stalled     chan struct{} // closed while writes have been waiting for longer than stallTimeout
	alarm       *time.Timer
	closed      chan struct{} // closed once no write may wait
}

func newSpace(log *slog.Logger) *space {
	return &space{log: log, stallAfter: stallTimeout, stalled: make(chan struct{}), closed: make(chan struct{})}
}

// starved reports whether an error ends as soon as there is space, or a file descriptor, again.
func starved(err error) bool { return noSpace(err) || noDescriptor(err) }

// noSpace reports whether the disk, or the quota of the user, is full.
func noSpace(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// policy returns what a write to a file does without space.
func (d *disk) policy(name string) spacePolicy {
	switch {
	case !d.owns(name):
		return failFast
	case strings.HasSuffix(name, ".sst"), strings.HasSuffix(name, ".blob"):
		return failAfterPause
	default:
		return waitForSpace
	}
}

// try calls do, and again as its policy allows while there is no space.
func (s *space) try(p spacePolicy, do func() error) error {
	err := do()
	if !starved(err) || p == failFast || !s.retries.Load() {
		return err
	}
	if p == failAfterPause {
		s.tableFailed(err) // before the pause, which may outlast the want of space
		s.pause(tablePause)
		return err
	}
	s.wait(err)
	defer s.resume()
	for starved(err) && s.pause(retryPause) {
		err = do()
	}
	return err
}

// pause returns false once the space is closed.
func (s *space) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.closed:
		return false
	}
}

func (s *space) wait(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting++; s.waiting > 1 {
		return
	}
	s.log.Error("no space left on the disk of the event store, or no file descriptor; writes wait for it", "err", err)
	stalled := s.stalled
	s.alarm = time.AfterFunc(s.stallAfter, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.waiting > 0 && s.stalled == stalled {
			s.stopWaits()
		}
	})
}

// stopWaits makes the callers of writes receive ErrStalled.
func (s *space) stopWaits() {
	select {
	case <-s.stalled:
	default:
		close(s.stalled)
	}
}

func (s *space) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting--; s.waiting > 0 {
		return
	}
	s.alarm.Stop()
	s.proceed()
}

// commit calls do, which commits to the engine. One commit is in progress at a time.
func (s *space) commit(do func() error) error {
	s.mu.Lock()
	s.commitBegan = time.Now()
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.commitBegan = time.Time{}
		if s.held {
			s.held = false
			s.proceed()
		}
	}()
	return do()
}

// tableFailed notes that a table could not be written for want of space. A commit that has been in
// progress for long waits for that table.
func (s *space) tableFailed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held || s.commitBegan.IsZero() || time.Since(s.commitBegan) < s.stallAfter {
		return
	}
	s.log.Error("no space left for the tables of the event store; writes wait for it", "err", err)
	s.held = true
	s.stopWaits()
}

// proceed ends a stall if nothing waits any more.
func (s *space) proceed() {
	if s.waiting > 0 || s.held {
		return
	}
	select {
	case <-s.stalled:
		s.stalled = make(chan struct{})
	default:
	}
	s.log.Info("writes of the event store no longer wait for space")
}

// stall returns a channel that is closed once writes have waited for space longer than stallAfter.
func (s *space) stall() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stalled
}

// close fails the writes that wait for space, and all later ones.
func (s *space) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.closed:
	default:
		close(s.closed)
	}
}

// Space is what the disk of a log has left.
type Space struct {
	// Free is how many bytes of the disk can still be written, Reserve how many of them appends leave free.
	Free, Reserve uint64
	// Full is true while appends are refused, or wait for space or for a file descriptor for longer than stallTimeout.
	Full bool
}

// Space returns what the disk of the log has left. A file system that cannot report its space has enough.
func (e *Engine) Space() Space {
	s := Space{Free: math.MaxUint64, Reserve: e.reserve}
	if usage, err := e.store.disk.GetDiskUsage(e.store.disk.dir); err == nil {
		s.Free = usage.AvailBytes
	}
	s.Full = s.Free < s.Reserve
	select {
	case <-e.store.disk.space.stall():
		s.Full = true
	default:
	}
	return s
}

// short reports whether the disk has less space than appends must leave free. A file system that
// cannot report its space has enough.
func (d *disk) short(reserve uint64) bool {
	usage, err := d.GetDiskUsage(d.dir)
	return err == nil && usage.AvailBytes < reserve
}
