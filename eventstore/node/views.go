package node

import (
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
)

// view is the log as of one group commit. Readers see views only, and a view is taken after its commit was
// fsynced and before the next one begins: so nothing is ever answered from an event that a crash could take back.
type view struct {
	snapshot *pebble.Snapshot
	// head is the position of the newest event.
	head uint64
	refs atomic.Int64
}

func (v *view) release() error {
	if v.refs.Add(-1) == 0 {
		return v.snapshot.Close()
	}
	return nil
}

// views hands out the newest view.
type views struct {
	db *pebble.DB

	mu      sync.Mutex
	current *view
}

// publish takes a view of what is committed now. Only the writer calls it, between two commits.
func (s *views) publish(head uint64) error {
	next := &view{snapshot: s.db.NewSnapshot(), head: head}
	next.refs.Store(1)
	s.mu.Lock()
	last := s.current
	s.current = next
	s.mu.Unlock()
	if last == nil {
		return nil
	}
	return last.release()
}

// acquire returns the newest view; the caller releases it soon, since it keeps old versions of the data from being removed.
func (s *views) acquire() (*view, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil {
		return nil, errClosing
	}
	s.current.refs.Add(1)
	return s.current, nil
}

// close gives the last view back. Views that readers still hold stay good until they release them.
func (s *views) close() error {
	s.mu.Lock()
	last := s.current
	s.current = nil
	s.mu.Unlock()
	if last == nil {
		return nil
	}
	return last.release()
}
