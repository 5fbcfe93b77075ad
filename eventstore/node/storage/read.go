package storage

import (
	"errors"
)

// StreamStatus is what a reader learns about a stream besides its events.
type StreamStatus struct {
	// Exists is false for a stream that was never written, or is deleted until it is written again.
	Exists bool
	// Tombstoned streams have no events and can never be written again.
	Tombstoned bool
	// Last is the newest revision, NoStream if there is none.
	Last int64
}

// ReadAll reads up to limit events of the whole log, at most one page: forwards from a position
// (inclusive) or backwards from below it. It also returns the head of the log as of the page.
func (e *Engine) ReadAll(from uint64, backwards bool, limit uint64) (p Page, head uint64, err error) {
	v, err := e.views.acquire()
	if err != nil {
		return p, 0, err
	}
	p, err = v.all(from, backwards, int(min(limit, PageEvents)))
	return p, v.head, errors.Join(err, v.release())
}

// ReadStream reads up to limit events of a stream, at most one page, from a revision (inclusive) in
// either direction. It also returns the head of the log as of the page.
func (e *Engine) ReadStream(
	stream string, from int64, backwards bool, limit uint64,
) (p Page, status StreamStatus, head uint64, err error) {
	v, err := e.views.acquire()
	if err != nil {
		return p, status, 0, err
	}
	state, err := v.state(stream)
	if err == nil {
		status = StreamStatus{Exists: state.exists(), Tombstoned: state.deleted(), Last: state.last}
		if !status.Tombstoned {
			p, err = v.stream(state, from, backwards, int(min(limit, PageEvents)), e.now())
		}
	}
	return p, status, v.head, errors.Join(err, v.release())
}

// Event returns one event of a stream, nil if readers do not see it.
func (e *Engine) Event(stream string, revision int64) ([]byte, error) {
	v, err := e.views.acquire()
	if err != nil {
		return nil, err
	}
	record, err := v.event(stream, revision)
	return record, errors.Join(err, v.release())
}

// Tail appends to buf the newest events after a position that are still in memory, as many as fit
// its capacity and one page, at least one. If there are none yet, changed is closed as soon as one
// is written. evicted means that some of them are no longer in memory: read them with ReadAll.
func (e *Engine) Tail(position uint64, buf []Entry) (events []Entry, changed <-chan struct{}, evicted bool) {
	return e.tail.after(position, buf)
}
