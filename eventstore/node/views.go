package node

import (
	"context"
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
	// gone is closed once the view is given back. It is there only for a view that readers hold beyond its time.
	gone chan struct{}
	of   *views
}

func (v *view) release() error {
	if v.refs.Add(-1) > 0 {
		return nil
	}
	err := v.snapshot.Close()
	if v.gone != nil {
		v.of.mu.Lock()
		delete(v.of.held, v)
		v.of.mu.Unlock()
		close(v.gone)
	}
	return err
}

// views hands out the newest view.
type views struct {
	db *pebble.DB

	mu      sync.Mutex
	current *view
	// held are the views before the current one that readers still hold.
	held map[*view]struct{}
}

// publish takes a view of what is committed now. Only the writer calls it, between two commits.
func (s *views) publish(head uint64) error {
	next := &view{snapshot: s.db.NewSnapshot(), head: head, of: s}
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

// hold notes a view that is no longer the current one and that readers hold; from now on they can only become fewer.
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

// drain waits until the views before the current one are given back.
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
	s.hold(last)
	s.mu.Unlock()
	if last == nil {
		return nil
	}
	return last.release()
}
