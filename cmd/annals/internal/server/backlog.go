package server

import (
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/feed"
)

const (
	// segmentEvents is how many events of a backlog are dropped together.
	segmentEvents = 64
	// maxSegments bounds the segments. Above it each two neighbours are merged.
	maxSegments = 4096
	// maxBlobs bounds the blobs whose projects are cached.
	maxBlobs = 4096
)

// amount is a number of events and their bytes, including the text that they refer to.
type amount struct {
	events int
	bytes  int64
}

func (a *amount) add(o amount) {
	a.events += o.events
	a.bytes += o.bytes
}

// backlog counts the newest events of the log by project. It covers the events that arrived since
// the process follows the log and that are not applied yet by the projections that writes need
// and by the recall index while it works.
type backlog struct {
	mu       sync.Mutex
	known    bool
	from     eventstore.Position // the backlog covers everything after it
	segments []segment
	arrived  uint64 // the number of all that arrived
	// blobs are the projects of new blobs by stream, since a chunk names no project.
	blobs map[string]uuid.UUID
	// clock is time.Now if it is nil.
	clock func() time.Time
}

// segment is the consecutive events up to a position.
type segment struct {
	end   eventstore.Position
	at    time.Time // when the last of them arrived
	all   amount
	share map[uuid.UUID]amount // by project
}

// Begins implements feed.Observer.
func (b *backlog) Begins(after eventstore.Position) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.known, b.from, b.segments = true, after, nil
}

// Arrived implements feed.Observer.
func (b *backlog) Arrived(f eventstore.DecodedEvent) {
	project, one := amountOf(f)
	b.mu.Lock()
	defer b.mu.Unlock()
	switch f.Event.(type) {
	case *blob.Opened:
		if b.blobs == nil || len(b.blobs) >= maxBlobs {
			b.blobs = map[string]uuid.UUID{}
		}
		b.blobs[f.Stream] = project
	case blob.Chunk:
		project = b.blobs[f.Stream]
	}
	last := len(b.segments) - 1
	if last < 0 || b.segments[last].all.events >= segmentEvents {
		if len(b.segments) >= maxSegments {
			b.merge()
		}
		b.segments = append(b.segments, segment{share: map[uuid.UUID]amount{}})
		last = len(b.segments) - 1
	}
	b.arrived += uint64(one.events) //nolint:gosec // 0 or 1
	s := &b.segments[last]
	s.end, s.at = f.Position, b.now()
	s.all.add(one)
	if project != uuid.Nil {
		w := s.share[project]
		w.add(one)
		s.share[project] = w
	}
}

func (b *backlog) now() time.Time {
	if b.clock != nil {
		return b.clock()
	}
	return time.Now()
}

// waited returns how long ago the first events after a position arrived, 0 if there are none.
func (b *backlog) waited(position eventstore.Position, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.segments {
		if s.end > position {
			return now.Sub(s.at)
		}
	}
	return 0
}

// arrivals returns how many events arrived.
func (b *backlog) arrivals() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.arrived
}

// merge merges each two segments. The caller holds the lock.
func (b *backlog) merge() {
	merged := b.segments[:0]
	for i := 0; i < len(b.segments); i += 2 {
		s := b.segments[i]
		if i+1 < len(b.segments) {
			next := b.segments[i+1]
			s.end, s.at = next.end, next.at
			s.all.add(next.all)
			for project, w := range next.share {
				sum := s.share[project]
				sum.add(w)
				s.share[project] = sum
			}
		}
		merged = append(merged, s)
	}
	clear(b.segments[len(merged):])
	b.segments = merged
}

// applied drops the segments that end at a position or before it.
func (b *backlog) applied(position eventstore.Position) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for n < len(b.segments) && b.segments[n].end <= position {
		b.from = b.segments[n].end
		n++
	}
	clear(b.segments[:n])
	b.segments = b.segments[n:]
	if len(b.segments) == 0 {
		b.segments = nil
	}
}

// after returns what arrived after a position, in total and by project. It counts the whole
// segment of the position. ok is false if the backlog does not cover all of that.
func (b *backlog) after(position eventstore.Position) (all amount, share map[uuid.UUID]amount, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.known || position < b.from {
		return amount{}, nil, false
	}
	share = map[uuid.UUID]amount{}
	for _, s := range b.segments {
		if s.end <= position {
			continue
		}
		all.add(s.all)
		for project, w := range s.share {
			sum := share[project]
			sum.add(w)
			share[project] = sum
		}
	}
	return all, share, true
}

// amountOf returns the project of an event, zero for none, and about what the event costs.
func amountOf(f eventstore.DecodedEvent) (uuid.UUID, amount) {
	if f.Stream == feed.SystemStream { // it costs next to nothing
		return uuid.Nil, amount{}
	}
	w := amount{events: 1, bytes: int64(f.Size())}
	if send, _, ok := datapoint.SendOf(f.Event); ok {
		w.bytes = max(w.bytes, send.Bytes)
		return send.ProjectID, w
	}
	return event.ProjectOf(f.Event), w
}
