package main

import (
	"reflect"
	"sync"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/feed"
)

// The bounds of a backlog.
const (
	// segmentEvents is how many events are dropped together.
	segmentEvents = 256
	// mostSegments bounds the segments. Beyond it two neighbours become one.
	mostSegments = 4096
	// mostBlobs bounds the blobs whose projects are known.
	mostBlobs = 4096
)

// work is events that projections have to apply, with their bytes and the text that they refer to.
type work struct {
	events int
	bytes  int64
}

func (w *work) add(o work) {
	w.events += o.events
	w.bytes += o.bytes
}

// backlog is an account of which project the newest events of the log belong to. It holds what arrived since the process began
// to follow the log, up to what the projections that writes need, and a recall index that is at work, have applied.
type backlog struct {
	mu       sync.Mutex
	known    bool
	from     eventstore.Position // everything after it is in the account
	segments []segment
	// blobs are the projects of blobs that were begun lately, whose chunks name none.
	blobs map[string]uuid.UUID
}

// segment is consecutive events up to a position.
type segment struct {
	end   eventstore.Position
	all   work
	share map[uuid.UUID]work // by project
}

// Begins implements feed.Observer.
func (b *backlog) Begins(after eventstore.Position) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.known, b.from, b.segments = true, after, nil
}

// Arrived implements feed.Observer.
func (b *backlog) Arrived(f eventstore.Fact) {
	project, one := workOf(f)
	b.mu.Lock()
	defer b.mu.Unlock()
	switch f.Event.(type) {
	case *blob.Opened:
		if b.blobs == nil || len(b.blobs) >= mostBlobs {
			b.blobs = map[string]uuid.UUID{}
		}
		b.blobs[f.Stream] = project
	case blob.Chunk:
		project = b.blobs[f.Stream]
	}
	last := len(b.segments) - 1
	if last < 0 || b.segments[last].all.events >= segmentEvents {
		if len(b.segments) >= mostSegments {
			b.merge()
		}
		b.segments = append(b.segments, segment{share: map[uuid.UUID]work{}})
		last = len(b.segments) - 1
	}
	s := &b.segments[last]
	s.end = f.Position
	s.all.add(one)
	if project != uuid.Nil {
		w := s.share[project]
		w.add(one)
		s.share[project] = w
	}
}

// merge makes one segment of each two; the caller holds the lock.
func (b *backlog) merge() {
	kept := b.segments[:0]
	for i := 0; i < len(b.segments); i += 2 {
		s := b.segments[i]
		if i+1 < len(b.segments) {
			next := b.segments[i+1]
			s.end = next.end
			s.all.add(next.all)
			for project, w := range next.share {
				sum := s.share[project]
				sum.add(w)
				s.share[project] = sum
			}
		}
		kept = append(kept, s)
	}
	clear(b.segments[len(kept):])
	b.segments = kept
}

// applied forgets what lies up to a position, as far as whole segments do.
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

// after is what arrived after a position, in all and by project; ok is false if part of that is not in the account. A segment
// that the position is in counts whole.
func (b *backlog) after(position eventstore.Position) (all work, share map[uuid.UUID]work, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.known || position < b.from {
		return work{}, nil, false
	}
	share = map[uuid.UUID]work{}
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

// workOf is what an event costs about, and the project that it belongs to, zero for none.
func workOf(f eventstore.Fact) (uuid.UUID, work) {
	if f.Stream == feed.SystemStream { // it costs next to nothing
		return uuid.Nil, work{}
	}
	w := work{events: 1, bytes: int64(f.Size())}
	if send, _, ok := datapoint.SendOf(f.Event); ok {
		w.bytes = max(w.bytes, send.Bytes)
		return send.ProjectID, w
	}
	return projectOf(f.Event), w
}

// projectFields are the indexes of field ProjectID by type of event, nil for none.
var projectFields sync.Map

// projectOf is field ProjectID of an event.
func projectOf(e any) uuid.UUID {
	v := reflect.ValueOf(e)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		return uuid.Nil
	}
	v = v.Elem()
	index, seen := projectFields.Load(v.Type())
	if !seen {
		field, has := v.Type().FieldByName("ProjectID")
		if !has || field.Type != reflect.TypeFor[uuid.UUID]() {
			field.Index = nil
		}
		index, _ = projectFields.LoadOrStore(v.Type(), field.Index)
	}
	if path := index.([]int); path != nil {
		return v.FieldByIndex(path).Interface().(uuid.UUID)
	}
	return uuid.Nil
}
