package storage

import (
	"github.com/google/uuid"
)

// The bounds of recentIDs, whose memory is that of the server: so many bytes, of which an entry
// takes its key, its place and its share of the free slots of a map.
const (
	recentBytes      = 8 << 20
	recentEntryBytes = 80
	recentEntries    = recentBytes / recentEntryBytes
)

// recentKey is an event id in one stream, which is named by the id of its state: the same id in
// another stream is another event.
type recentKey struct {
	id       uuid.UUID
	streamID uint64
}

// recentEvent is the place of an event in its stream and in the log.
type recentEvent struct {
	revision int64
	position uint64
}

// recentIDs maps the ids of the newest events to their places. It makes a repeated append without
// an exact revision idempotent. A restart empties it, as on the server.
//
// It holds at least half of its limit: the older half is evicted at once.
type recentIDs struct {
	limit      int // of entries
	young, old map[recentKey]recentEvent
}

func newRecentIDs(limit int) *recentIDs {
	return &recentIDs{limit: limit, young: map[recentKey]recentEvent{}, old: map[recentKey]recentEvent{}}
}

func (l *recentIDs) find(id uuid.UUID, streamID uint64) (recentEvent, bool) {
	key := recentKey{id, streamID}
	e, known := l.young[key]
	if !known {
		e, known = l.old[key]
	}
	return e, known
}

// add adds an event. An id that is written to its stream again keeps its first place and its age: a
// repeated append gets the answer of the first one.
func (l *recentIDs) add(id uuid.UUID, streamID uint64, added recentEvent) {
	if _, known := l.find(id, streamID); known {
		return
	}
	if len(l.young) >= l.limit/2 {
		l.young, l.old = l.old, l.young
		clear(l.young)
	}
	l.young[recentKey{id, streamID}] = added
}
