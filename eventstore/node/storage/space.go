package storage

import (
	"errors"
	"log/slog"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

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
