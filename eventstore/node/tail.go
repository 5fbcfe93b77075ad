package node

import "sync"

// The bounds of the tail. A subscriber that falls behind them reads from the disk again until it has caught up.
const (
	tailEvents = 8192
	tailBytes  = 8 << 20
)

// entry is one event as subscribers are sent it.
type entry struct {
	position uint64
	revision int64
	stream   string
	record   []byte
}

// tail holds the newest events in memory for all live subscribers together, so that a subscriber costs no buffer
// of its own and the writer never waits for one. Positions in it are without gaps.
type tail struct {
	mu      sync.RWMutex
	ring    []entry
	first   uint64 // position of the oldest entry; head+1 while there is none
	head    uint64
	bytes   int
	changed chan struct{} // closed and replaced whenever head moves
}

func newTail(head uint64) *tail {
	return &tail{ring: make([]entry, tailEvents), first: head + 1, head: head, changed: make(chan struct{})}
}

func (t *tail) slot(position uint64) *entry { return &t.ring[position%uint64(len(t.ring))] }

// push adds the events of one commit, in order, and wakes every subscriber.
func (t *tail) push(events []entry) {
	if len(events) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range events {
		if t.head+1-t.first == uint64(len(t.ring)) {
			t.evict()
		}
		*t.slot(e.position) = e
		t.head = e.position
		t.bytes += len(e.record)
		for t.bytes > tailBytes {
			t.evict()
		}
	}
	close(t.changed)
	t.changed = make(chan struct{})
}

func (t *tail) evict() {
	oldest := t.slot(t.first)
	t.bytes -= len(oldest.record)
	*oldest = entry{}
	t.first++
}

// after appends to buf the events behind a position, as many as fit its capacity and pageBytes, one at least. Where there are none, changed is
// closed once there are. behind says that events behind the position are no longer in memory.
func (t *tail) after(position uint64, buf []entry) (events []entry, changed <-chan struct{}, behind bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if position+1 < t.first {
		return buf, nil, true
	}
	size := 0
	for p := position + 1; p <= t.head && len(buf) < cap(buf) && size < pageBytes; p++ {
		e := *t.slot(p)
		buf = append(buf, e)
		size += len(e.record)
	}
	return buf, t.changed, false
}
