package node

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore/node/storage"
)

// modelEvent is an event as the rules make it.
type modelEvent struct {
	stream   string
	revision int64
	position uint64
	id       uuid.UUID
	typ      string
	data     string
	created  time.Time
	// taken reports that a scavenge removed the event.
	taken bool
}

// modelStream is a stream according to the rules: every event that it ever had, and its metadata.
type modelStream struct {
	events    []*modelEvent
	cut       int64
	maxCount  int64
	maxAge    time.Duration
	hasMeta   bool
	tombstone bool
}

func (s *modelStream) last() int64   { return int64(len(s.events)) - 1 }
func (s *modelStream) deleted() bool { return s.cut == math.MaxInt64 }

// model is a plain event store: slices and maps, and the rules of the server written down once
// more.
type model struct {
	now     time.Time
	head    uint64
	streams map[string]*modelStream
	log     []*modelEvent
	// recent are the first places of ids in their streams since the last start, by which an append at no exact revision
	// is recognized.
	recent map[modelID]*modelEvent
}

// modelID is an id in a stream.
type modelID struct {
	stream string
	id     uuid.UUID
}

func newModel(now time.Time) *model {
	return &model{now: now, streams: map[string]*modelStream{}, recent: map[modelID]*modelEvent{}}
}

func (m *model) stream(name string) *modelStream {
	s, ok := m.streams[name]
	if !ok {
		s = &modelStream{}
		if storage.IsMeta(name) {
			s.maxCount = 1
		}
		m.streams[name] = s
	}
	return s
}

// ended reports whether a stream was tombstoned, or is the metadata of one that was.
func (m *model) ended(name string) bool {
	return m.stream(name).tombstone || storage.IsMeta(name) && m.ended(name[len(storage.MetaPrefix):])
}

// takes reports whether a stream can be appended to: metadata can even after the tombstone of its stream, if there was
// some before.
func (m *model) takes(name string) bool {
	s := m.stream(name)
	return !s.tombstone && (!m.ended(name) || len(s.events) > 0)
}

// ruling is how a write ends.
type ruling struct {
	verdict  storage.Verdict
	revision int64
	position uint64
}

// decide judges a write by the order of the server's checks.
func (m *model) decide(name string, e storage.Expectation, events []event) ruling {
	s := m.stream(name)
	wrong := ruling{verdict: storage.WrongVersion, revision: s.last()}
	switch {
	case !m.takes(name):
		return ruling{verdict: storage.StreamDeleted}
	case e.Kind == storage.ExpectExists && s.deleted():
		return ruling{verdict: storage.StreamDeleted}
	case e.Kind == storage.ExpectExists && len(s.events) == 0 && !s.hasMeta:
		return wrong
	case e.Kind != storage.ExpectExact:
		return m.decideByID(name, wrong, events)
	case e.Revision > s.last():
		return wrong
	case e.Revision == s.last():
		return ruling{verdict: storage.Written}
	}
	var last *modelEvent
	for i, sent := range events {
		at := e.Revision + 1 + int64(i)
		if at <= s.last() && !s.events[at].taken && s.events[at].id == sent.id {
			last = s.events[at]
			continue
		}
		if i == 0 && e.Revision == storage.NoStream && s.deleted() {
			return ruling{verdict: storage.Written}
		}
		return wrong
	}
	return ruling{verdict: storage.Repeated, revision: last.revision, position: last.position}
}

func (m *model) decideByID(name string, wrong ruling, events []event) ruling {
	var last *modelEvent
	for i, sent := range events {
		known, ok := m.recent[modelID{name, sent.id}]
		switch {
		case ok:
			last = known
		case i == 0:
			return ruling{verdict: storage.Written}
		default:
			return wrong
		}
	}
	return ruling{verdict: storage.Repeated, revision: last.revision, position: last.position}
}

// append applies an append and returns the answer that the node must give.
func (m *model) append(name string, e storage.Expectation, events []event) ruling {
	o := m.decide(name, e, events)
	if o.verdict != storage.Written {
		return o
	}
	s := m.stream(name)
	first := s.last() + 1
	for _, sent := range events {
		m.write(name, sent)
	}
	o.revision, o.position = s.last(), m.head
	if s.deleted() && !storage.IsMeta(name) { // shows the stream again, from the first event on
		hiding := m.stream(storage.MetaPrefix + name).events
		m.describe(name, event{typ: storage.MetadataType, data: truncated(hiding[len(hiding)-1].data, first)})
	}
	if storage.IsMeta(name) {
		described := name[len(storage.MetaPrefix):]
		original, newest := m.stream(described), events[len(events)-1]
		if original.tombstone {
			return o
		}
		undelete := original.deleted()
		m.apply(described, newest)
		if undelete {
			m.describe(described,
				event{id: uuid.Nil, typ: storage.MetadataType, data: truncated(newest.data, original.last()+1)})
		}
	}
	return o
}

// describe writes metadata of the node's own.
func (m *model) describe(name string, sent event) {
	m.write(storage.MetaPrefix+name, sent)
	m.apply(name, sent)
}

func (m *model) write(name string, sent event) {
	s := m.stream(name)
	m.head++
	e := &modelEvent{
		stream:   name,
		revision: s.last() + 1,
		position: m.head,
		id:       sent.id,
		typ:      sent.typ,
		data:     sent.data,
		created:  m.now,
	}
	s.events, m.log = append(s.events, e), append(m.log, e)
	id := modelID{name, sent.id}
	if _, known := m.recent[id]; !known && sent.id != uuid.Nil {
		m.recent[id] = e
	}
}

func (m *model) apply(name string, newest event) {
	s, meta := m.stream(name), metadataOf(newest.data)
	if s.hasMeta = true; storage.IsMeta(name) {
		return // it has no effect
	}
	s.cut, s.maxCount, s.maxAge = meta.Cut, meta.MaxCount, time.Duration(meta.MaxAge)*time.Second
}

// modelMeta is what the rules say of stream metadata. One wrong field makes all of it count as
// empty.
type modelMeta struct {
	Cut      int64 `json:"$tb"`
	MaxCount int64 `json:"$maxCount"`
	MaxAge   int64 `json:"$maxAge"`
}

func metadataOf(text string) modelMeta {
	var m modelMeta
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return modelMeta{}
	}
	return m
}

var cutIn = regexp.MustCompile(`"\$tb":\d+`)

// truncated is metadata with $tb set to a revision; the rest of its text stays.
func truncated(text string, before int64) string {
	cut := fmt.Sprintf(`"$tb":%d`, before)
	switch {
	case cutIn.MatchString(text):
		return cutIn.ReplaceAllLiteralString(text, cut)
	case text == "{}":
		return "{" + cut + "}"
	default:
		return strings.TrimSuffix(text, "}") + "," + cut + "}"
	}
}

// delete hides a stream.
func (m *model) delete(name string, e storage.Expectation) ruling {
	if m.ended(name) {
		return ruling{verdict: storage.StreamDeleted}
	}
	o := m.decide(name, e, []event{{id: uuid.New()}})
	s := m.stream(name)
	if o.verdict == storage.Written && len(s.events) == 0 && !s.hasMeta {
		o = ruling{verdict: storage.WrongVersion, revision: s.last()}
	}
	if o.verdict == storage.Written && m.ended(storage.MetaPrefix+name) {
		o.verdict = storage.MetastreamDeleted
	}
	if o.verdict == storage.Written {
		m.describe(name, event{typ: storage.MetadataType, data: fmt.Sprintf(`{"$tb":%d}`, int64(math.MaxInt64))})
		o.position = m.head
	}
	return o
}

// entomb ends a stream.
func (m *model) entomb(name string, e storage.Expectation) ruling {
	if m.ended(name) {
		return ruling{verdict: storage.StreamDeleted}
	}
	o := m.decide(name, e, []event{{id: uuid.New()}})
	if o.verdict == storage.Written {
		m.head++
		o.position = m.head
		m.stream(name).tombstone = true
		m.log = append(m.log, &modelEvent{
			stream:   name,
			revision: storage.TombstoneRevision,
			position: m.head,
			typ:      storage.TombstoneType,
			created:  m.now,
		})
		if storage.IsMeta(name) {
			m.apply(name[len(storage.MetaPrefix):], event{})
		}
	}
	return o
}

// visible are the events that a reader of a stream sees; found is false where there is no such
// stream for readers.
func (m *model) visible(name string) (events []*modelEvent, found bool) {
	s := m.stream(name)
	if len(s.events) == 0 || s.deleted() {
		return nil, false
	}
	for _, e := range s.events {
		if !e.taken && !s.hides(e, m.now) {
			events = append(events, e)
		}
	}
	return events, true
}

// hides reports whether the metadata of a stream hides one of its events from readers.
func (s *modelStream) hides(e *modelEvent, now time.Time) bool {
	return e.revision < s.cut || s.maxCount > 0 && e.revision <= s.last()-s.maxCount ||
		s.maxAge > 0 && e.created.Before(now.Add(-s.maxAge))
}

// scavenge takes what a scavenge takes.
func (m *model) scavenge() {
	for name, s := range m.streams {
		ended := m.ended(name)
		young := false // age takes from the front only
		for _, e := range s.events {
			byAge := s.maxAge > 0 && e.created.Before(m.now.Add(-s.maxAge))
			young = young || !byAge
			hidden := e.revision < s.cut || s.maxCount > 0 && e.revision <= s.last()-s.maxCount || byAge && !young
			e.taken = e.taken || ended && e.position < m.head || hidden && e.revision < s.last()
		}
	}
}

// restarted forgets what a start forgets.
func (m *model) restarted() { m.recent = map[modelID]*modelEvent{} }
