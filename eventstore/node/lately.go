package node

import "github.com/google/uuid"

// latelyBytes bounds the memory of the events that were written lately, as the server bounds it.
const latelyBytes = 8 << 20

// latelyEntryBytes is what one entry costs besides the name of its stream: the id twice, its place, and the map's share.
const latelyEntryBytes = 128

// written is the place of an event that was written lately.
type written struct {
	stream   string
	revision int64
	position uint64
}

// lately knows the ids of the newest events of this process. It is what makes a repeated append idempotent where
// the client names no exact revision; it is forgotten at a restart.
type lately struct {
	places map[uuid.UUID]written
	order  []uuid.UUID // a queue; the first is the oldest
	bytes  int
}

func newLately() *lately { return &lately{places: map[uuid.UUID]written{}} }

func (l *lately) find(id uuid.UUID) (written, bool) {
	w, ok := l.places[id]
	return w, ok
}

// add remembers an event and forgets the oldest ones beyond the bound. An id that is written again keeps its newest place.
func (l *lately) add(id uuid.UUID, place written) {
	if old, known := l.places[id]; known {
		l.bytes += len(place.stream) - len(old.stream)
		l.places[id] = place
		return
	}
	l.places[id] = place
	l.order = append(l.order, id)
	l.bytes += latelyEntryBytes + len(place.stream)
	for l.bytes > latelyBytes && len(l.order) > 0 {
		oldest := l.order[0]
		l.order = l.order[1:]
		l.bytes -= latelyEntryBytes + len(l.places[oldest].stream)
		delete(l.places, oldest)
	}
}
