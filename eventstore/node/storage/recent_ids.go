package storage

import (
	"github.com/google/uuid"
)

// recentBytes bounds the memory of recentIDs; the server has the same bound.
const recentBytes = 8 << 20

// recentEntryBytes is the size of one entry without the name of its stream: the id twice, the
// place, and the share of the map.
const recentEntryBytes = 128

// recentEvent is the place of an event.
type recentEvent struct {
	stream   string
	revision int64
	position uint64
}

// recentIDs maps the ids of the newest events to their places. It makes a repeated append without
// an exact revision idempotent. A restart empties it, as on the server.
type recentIDs struct {
	events map[uuid.UUID]recentEvent
	order  []uuid.UUID // a queue; the first is the oldest
	bytes  int
}

func newRecentIDs() *recentIDs { return &recentIDs{events: map[uuid.UUID]recentEvent{}} }

func (l *recentIDs) find(id uuid.UUID) (recentEvent, bool) {
	w, ok := l.events[id]
	return w, ok
}

// add adds an event and evicts the oldest ones over the bound. An id that is written again keeps
// its newest place.
func (l *recentIDs) add(id uuid.UUID, added recentEvent) {
	if old, known := l.events[id]; known {
		l.bytes += len(added.stream) - len(old.stream)
		l.events[id] = added
		return
	}
	l.events[id] = added
	l.order = append(l.order, id)
	l.bytes += recentEntryBytes + len(added.stream)
	for l.bytes > recentBytes && len(l.order) > 0 {
		oldest := l.order[0]
		l.order = l.order[1:]
		l.bytes -= recentEntryBytes + len(l.events[oldest].stream)
		delete(l.events, oldest)
	}
}
