package node

import (
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// defaultReserve is the space that appends leave free: what the engine needs to write out what it holds, and deletions to be written.
	defaultReserve = 128 << 20
	// retryPause lies between two tries of a write of the log that found no space, tablePause between two tries of a table.
	retryPause = 100 * time.Millisecond
	tablePause = time.Second
	// stallPatience is how long writes may wait for space before those who wait for them are told.
	stallPatience = 2 * time.Second
)

// patience is what a write does where there is no space.
type patience int

const (
	// atOnce fails: copies beside the log, and whatever is no file of the log.
	atOnce patience = iota
	// later fails after tablePause: tables, which the engine writes again. What is written of them goes, and makes space.
	later
	// forever waits for space: write-ahead logs and manifests. The engine would give up for good if one of these failed.
	forever
)

// space is what the disk knows of the space on it. A write of the log that finds none waits until there is some: to the
// engine the disk is slow then, not broken, so that everything goes on where it stood as soon as there is space again.
type space struct {
	log *slog.Logger
	// told is stallPatience; tests are less patient.
	told time.Duration
	// patient is set once the log is open: a start that finds no space fails.
	patient atomic.Bool

	mu      sync.Mutex
	waiting int
	stalled chan struct{} // closed while a write has been waiting for longer than stallPatience
	alarm   *time.Timer
	gaveUp  chan struct{} // closed when nothing waits any more
}

func newSpace(log *slog.Logger) *space {
	return &space{log: log, told: stallPatience, stalled: make(chan struct{}), gaveUp: make(chan struct{})}
}

// starved reports whether an error passes as soon as there is space, or a file descriptor, again.
func starved(err error) bool { return noSpace(err) || noDescriptor(err) }

// noSpace says whether an error is that the disk or the user's share of it is full.
func noSpace(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// patience is what a write to a file does where there is no space.
func (d *disk) patience(name string) patience {
	switch {
	case !d.owns(name):
		return atOnce
	case strings.HasSuffix(name, ".sst"), strings.HasSuffix(name, ".blob"):
		return later
	default:
		return forever
	}
}

// try does something until it finds space, or as long as it may.
func (s *space) try(p patience, do func() error) error {
	err := do()
	if !starved(err) || p == atOnce || !s.patient.Load() {
		return err
	}
	if p == later {
		s.pause(tablePause)
		return err
	}
	s.wait(err)
	defer s.found()
	for starved(err) && s.pause(retryPause) {
		err = do()
	}
	return err
}

// pause reports false where nothing is to wait any more.
func (s *space) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.gaveUp:
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
	s.alarm = time.AfterFunc(s.told, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.waiting > 0 && s.stalled == stalled {
			close(stalled)
		}
	})
}

func (s *space) found() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting--; s.waiting > 0 {
		return
	}
	s.alarm.Stop()
	select {
	case <-s.stalled:
		s.stalled = make(chan struct{})
	default:
	}
	s.log.Info("writes of the event store no longer wait for space")
}

// stall is closed while writes have been waiting for space for some time.
func (s *space) stall() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stalled
}

// giveUp lets the writes fail that wait for space, and all that would from now on.
func (s *space) giveUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.gaveUp:
	default:
		close(s.gaveUp)
	}
}

// short says whether the disk has less space left than appends leave free. A file system that cannot tell has enough.
func (d *disk) short(reserve uint64) bool {
	usage, err := d.GetDiskUsage(d.dir)
	return err == nil && usage.AvailBytes < reserve
}
