package storage

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
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

// The bounds of one page, which is read from one view.
const (
	PageEvents = 512
	pageBytes  = 256 << 10
)

// Page is a series of events, in the order of the read.
type Page struct {
	Events []Entry
	// End is true if the log has no events after the page, as of its view.
	End   bool
	arena []byte
	bytes int
}

// full reports whether the page is complete.
func (p *Page) full(limit int) bool {
	return len(p.Events) >= min(limit, PageEvents) || p.bytes >= pageBytes
}

// copyRecord copies a record. The copy stays valid while a message that contains it is sent.
func (p *Page) copyRecord(record []byte) []byte {
	if cap(p.arena)-len(p.arena) < len(record) {
		p.arena = make([]byte, 0, max(len(record), min(2*cap(p.arena), pageBytes), 4<<10))
	}
	start := len(p.arena)
	p.arena = append(p.arena, record...)
	p.bytes += len(record)
	return p.arena[start:len(p.arena):len(p.arena)]
}

// all reads the whole log: forwards from a position (inclusive), backwards from below it.
func (v *view) all(from uint64, backwards bool, limit int) (p Page, err error) {
	iter, err := v.snapshot.NewIter(
		&pebble.IterOptions{LowerBound: []byte{spaceEvent}, UpperBound: []byte{spaceEvent + 1}},
	)
	if err != nil {
		return p, fmt.Errorf("read the log: %w", err)
	}
	defer func() { err = errors.Join(err, iter.Close()) }()
	step, valid := iter.Next, false
	if backwards {
		step, valid = iter.Prev, iter.SeekLT(eventKey(from))
	} else {
		valid = iter.SeekGE(eventKey(from))
	}
	for ; valid && !p.full(limit); valid = step() {
		value, err := iter.ValueAndErr()
		if err != nil {
			return p, fmt.Errorf("read the log: %w", err)
		}
		p.Events = append(p.Events, Entry{Position: positionOf(iter.Key()), Record: p.copyRecord(value)})
	}
	p.End = !valid
	if err := iter.Error(); err != nil {
		return p, fmt.Errorf("read the log: %w", err)
	}
	return p, nil
}

// stream reads the events of one stream that its metadata shows, from a revision (inclusive) in
// either direction.
func (v *view) stream(s *streamState, from int64, backwards bool, limit int, now time.Time) (p Page, err error) {
	first := s.firstReadable()
	if !s.exists() || first > s.last {
		return Page{End: true}, nil
	}
	if !backwards {
		first = max(first, from)
	}
	last := s.last
	if backwards {
		last = min(last, from)
	}
	if first > last {
		return Page{End: true}, nil
	}
	index, err := v.snapshot.NewIter(&pebble.IterOptions{
		LowerBound: revisionKey(s.id, first), UpperBound: append(revisionKey(s.id, last), 0),
	})
	if err != nil {
		return p, fmt.Errorf("read the log: %w", err)
	}
	defer func() { err = errors.Join(err, index.Close()) }()
	events, err := v.snapshot.NewIter(&pebble.IterOptions{
		LowerBound: []byte{spaceEvent}, UpperBound: []byte{spaceEvent + 1},
	})
	if err != nil {
		return p, fmt.Errorf("read the log: %w", err)
	}
	defer func() { err = errors.Join(err, events.Close()) }()

	step, valid := index.Next, false
	if backwards {
		step, valid = index.Prev, index.Last()
	} else {
		valid = index.First()
	}
	for ; valid && !p.full(limit); valid = step() {
		e, err := resolve(index, events)
		if err != nil {
			return p, err
		}
		if s.meta.maxAge > 0 {
			r, err := ParseRecord(e.Record)
			if err != nil {
				return p, fmt.Errorf("event at position %d: %w", e.Position, err)
			}
			if r.Created.Before(now.Add(-s.meta.maxAge)) {
				continue
			}
		}
		e.Record = p.copyRecord(e.Record)
		p.Events = append(p.Events, e)
	}
	p.End = !valid
	if err := index.Error(); err != nil {
		return p, fmt.Errorf("read the log: %w", err)
	}
	return p, nil
}

// resolve reads the event that the index iterator points to. The record is valid until the next
// call.
func resolve(index, events *pebble.Iterator) (Entry, error) {
	value, err := index.ValueAndErr()
	if err != nil {
		return Entry{}, fmt.Errorf("read the log: %w", err)
	}
	position, err := decodePosition(value)
	if err != nil {
		return Entry{}, err
	}
	if !events.SeekGE(eventKey(position)) || positionOf(events.Key()) != position {
		return Entry{}, errors.Join(fmt.Errorf("position %d: event of the index not found", position), events.Error())
	}
	record, err := events.ValueAndErr()
	if err != nil {
		return Entry{}, fmt.Errorf("read the log: %w", err)
	}
	return Entry{Position: position, Revision: revisionOf(index.Key()), Record: record}, nil
}

// state returns the state of a stream as readers see it: a tombstone ends the metadata of its
// stream too.
func (v *view) state(stream string) (*streamState, error) {
	s, err := loadState(v.snapshot, stream)
	for range metaLevels {
		if err != nil || s.deleted() || !IsMeta(stream) {
			break
		}
		stream = stream[len(MetaPrefix):]
		var original *streamState
		if original, err = loadState(v.snapshot, stream); err == nil {
			s.tombstone = original.tombstone
		}
	}
	return s, err
}

// event returns one event of a stream, nil if readers do not see it.
func (v *view) event(stream string, revision int64) ([]byte, error) {
	state, err := v.state(stream)
	if err != nil || state.deleted() || !state.exists() || revision < state.firstReadable() || revision > state.last {
		return nil, err
	}
	index, found, err := get(v.snapshot, revisionKey(state.id, revision))
	if err != nil || !found {
		return nil, err
	}
	position, err := decodePosition(index)
	if err != nil {
		return nil, err
	}
	record, _, err := get(v.snapshot, eventKey(position))
	return record, err
}

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
	return s.replace(next)
}

// replace makes another view the current one, nil for none, and releases the last.
func (s *views) replace(next *view) error {
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
func (s *views) close() error { return s.replace(nil) }

// The bounds of the tail. A subscriber that lags further reads from the disk until it has caught
// up.
const (
	tailEvents = 8192
	tailBytes  = 8 << 20
)

// Entry is a stored event with its place.
type Entry struct {
	Position uint64
	Revision int64
	Stream   string
	Record   []byte
}

// tail holds the newest events in memory for all live subscribers together, so that a subscriber
// needs no buffer and the writer never waits for one. Its positions have no gaps.
type tail struct {
	mu      sync.RWMutex
	ring    []Entry
	first   uint64 // position of the oldest entry; head+1 while there is none
	head    uint64
	bytes   int
	changed chan struct{} // closed and replaced whenever head moves
}

func newTail(head uint64) *tail {
	return &tail{ring: make([]Entry, tailEvents), first: head + 1, head: head, changed: make(chan struct{})}
}

func (t *tail) slot(position uint64) *Entry { return &t.ring[position%uint64(len(t.ring))] }

// push adds the events of one commit, in order, and wakes the subscribers.
func (t *tail) push(events []Entry) {
	if len(events) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range events {
		if t.head+1-t.first == uint64(len(t.ring)) {
			t.evict()
		}
		*t.slot(e.Position) = e
		t.head = e.Position
		t.bytes += len(e.Record)
		for t.bytes > tailBytes {
			t.evict()
		}
	}
	close(t.changed)
	t.changed = make(chan struct{})
}

func (t *tail) evict() {
	oldest := t.slot(t.first)
	t.bytes -= len(oldest.Record)
	*oldest = Entry{}
	t.first++
}

// after appends to buf the events after a position, as many as fit its capacity and pageBytes, at
// least one. If there are none, changed is closed once there are. evicted means that events after
// the position are no longer in memory.
func (t *tail) after(position uint64, buf []Entry) (events []Entry, changed <-chan struct{}, evicted bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if position+1 < t.first {
		return buf, nil, true
	}
	size := 0
	for p := position + 1; p <= t.head && len(buf) < cap(buf) && size < pageBytes; p++ {
		e := *t.slot(p)
		buf = append(buf, e)
		size += len(e.Record)
	}
	return buf, t.changed, false
}

// newest returns the position of the newest event.
func (t *tail) newest() uint64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.head
}
