package storage

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
)

// view is the log as of one group commit. Readers see views only. A view is taken after the fsync
// of its commit and before the next commit begins, so no answer depends on an event that a crash
// could take back.
type view struct {
	snapshot *pebble.Snapshot
	// head is the position of the newest event.
	head uint64
	refs atomic.Int64
	// gone is closed once the view is released. It is nil unless readers hold the view after a
	// newer one was published.
	gone  chan struct{}
	owner *views
}

func (v *view) release() error {
	if v.refs.Add(-1) > 0 {
		return nil
	}
	err := v.snapshot.Close()
	if v.gone != nil {
		v.owner.mu.Lock()
		delete(v.owner.held, v)
		v.owner.mu.Unlock()
		close(v.gone)
	}
	return err
}

// views provides the newest view.
type views struct {
	db *pebble.DB

	mu      sync.Mutex
	current *view
	// held are the former views that readers still hold.
	held map[*view]struct{}
}

// publish takes a view of what is committed. Only the writer calls it, between two commits.
func (s *views) publish(head uint64) error {
	next := &view{snapshot: s.db.NewSnapshot(), head: head, owner: s}
	next.refs.Store(1)
	s.mu.Lock()
	last := s.current
	s.current = next
	s.hold(last)
	s.mu.Unlock()
	if last == nil {
		return nil
	}
	return last.release()
}

// hold records a view that is no longer current and that readers hold; no reader can join it any
// more.
func (s *views) hold(v *view) {
	if v == nil || v.refs.Load() == 1 {
		return
	}
	if s.held == nil {
		s.held = map[*view]struct{}{}
	}
	v.gone = make(chan struct{})
	s.held[v] = struct{}{}
}

// drain waits until the views before the current one are released.
func (s *views) drain(ctx context.Context) error {
	s.mu.Lock()
	var waiting []<-chan struct{}
	for v := range s.held {
		waiting = append(waiting, v.gone)
	}
	s.mu.Unlock()
	for _, gone := range waiting {
		select {
		case <-gone:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// acquire returns the newest view. The caller releases it soon: until then old versions of the data
// cannot be removed.
func (s *views) acquire() (*view, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil {
		return nil, ErrClosing
	}
	s.current.refs.Add(1)
	return s.current, nil
}

// close releases the last view. Views that readers hold stay valid until they release them.
func (s *views) close() error {
	s.mu.Lock()
	last := s.current
	s.current = nil
	s.hold(last)
	s.mu.Unlock()
	if last == nil {
		return nil
	}
	return last.release()
}
