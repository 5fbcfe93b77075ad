package storage

import (
	"sync"
)

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
