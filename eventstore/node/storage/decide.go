package storage

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore/node/wire"
)

// ExpectedKind is the kind of a client's expectation of a stream.
type ExpectedKind int

// The kinds of expectations: a stream revision, anything, or a stream that exists.
const (
	ExpectExact ExpectedKind = iota // a revision, or -1 for no stream
	ExpectAny
	ExpectExists
)

// Expectation is what a client expects of a stream. Revision counts only if Kind is ExpectExact.
type Expectation struct {
	Kind     ExpectedKind
	Revision int64
}

// NoStream is the revision of a stream without events.
const NoStream = -1

// String returns the number that stands for the expectation in the trailers of the protocol.
func (e Expectation) String() string {
	switch e.Kind {
	case ExpectAny:
		return "-2"
	case ExpectExists:
		return "-4"
	default:
		return strconv.FormatInt(e.Revision, 10)
	}
}

// Verdict is the outcome of a check.
type Verdict int

// The outcomes of a check: stored now, stored by an earlier equal request, refused since the stream
// has another revision, refused since it is tombstoned, a delete refused since it would write
// metadata and the metastream is tombstoned.
const (
	Written Verdict = iota
	Repeated
	WrongVersion
	StreamDeleted
	MetastreamDeleted
	// notYet means that the answer depends on events of the current group: decide again after its
	// commit.
	notYet
)

// Decision is a verdict with the values of its answer.
type Decision struct {
	Verdict  Verdict
	Revision int64  // already: of the last original event; WrongVersion: current
	Position uint64 // already: of the last original event
	// failure is the reason why there is no verdict: a value that it depends on cannot be read. It
	// affects this request only.
	failure error
}

// check decides an append by the rules of the server, in their order. The stream is not tombstoned.
func (w *writer) check(s *streamState, expected Expectation, events []Proposed) (Decision, error) {
	switch {
	case expected.Kind == ExpectExists && s.softDeleted():
		return Decision{Verdict: StreamDeleted}, nil
	case expected.Kind == ExpectExists && s.last < 0 && !s.hasMeta:
		return w.wrong(s), nil
	case expected.Kind != ExpectExact:
		return w.checkIDs(s, events), nil
	case expected.Revision > s.last:
		return w.wrong(s), nil
	case expected.Revision == s.last:
		return Decision{Verdict: Written}, nil
	case s.group == w.group:
		return Decision{Verdict: notYet}, nil
	}
	return w.checkStored(s, expected, events)
}

func (w *writer) wrong(s *streamState) Decision {
	return Decision{Verdict: WrongVersion, Revision: s.last}
}

// checkIDs searches recentIDs for the events: that is how a repeated append without an exact
// revision is recognized.
func (w *writer) checkIDs(s *streamState, events []Proposed) Decision {
	var last recentEvent
	for i, e := range events {
		found, known := w.recent.find(e.id, s.id)
		switch {
		case known:
			last = found
		case i == 0:
			return Decision{Verdict: Written}
		default:
			return w.wrong(s)
		}
	}
	if len(events) == 0 {
		return Decision{Verdict: Written}
	}
	return Decision{Verdict: Repeated, Revision: last.revision, Position: last.position}
}

// checkStored compares an append at an old revision with the events after that revision.
func (w *writer) checkStored(s *streamState, expected Expectation, events []Proposed) (Decision, error) {
	var position uint64
	for i, e := range events {
		stored, at, err := w.stored(s, expected.Revision+1+int64(i))
		if err != nil {
			return Decision{}, err
		}
		if at != 0 && stored.ID == e.id {
			position = at
			continue
		}
		if i == 0 && expected.Revision == NoStream && s.softDeleted() {
			return Decision{Verdict: Written}, nil
		}
		return w.wrong(s), nil
	}
	if len(events) == 0 {
		if expected.Revision == NoStream && s.softDeleted() {
			return Decision{Verdict: Written}, nil
		}
		return w.wrong(s), nil
	}
	return Decision{Verdict: Repeated, Revision: expected.Revision + int64(len(events)), Position: position}, nil
}

// stored reads one event of a stream. Its position is 0 if there is none.
func (w *writer) stored(s *streamState, revision int64) (Recorded, uint64, error) {
	if revision > s.last {
		return Recorded{}, 0, nil
	}
	index, found, err := get(w.store.db, revisionKey(s.id, revision))
	if err != nil || !found {
		return Recorded{}, 0, err
	}
	position, err := decodePosition(index)
	if err != nil {
		return Recorded{}, 0, err
	}
	value, found, err := get(w.store.db, eventKey(position))
	if err != nil || !found {
		return Recorded{}, 0, err
	}
	r, err := ParseRecord(value)
	if err != nil {
		return Recorded{}, 0, fmt.Errorf("event at position %d: %w", position, err)
	}
	return r, position, nil
}

// get reads a copy of one value.
func get(from pebble.Reader, key []byte) (value []byte, found bool, err error) {
	shared, closer, err := from.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read the log: %w", err)
	}
	value = append([]byte(nil), shared...)
	if err := closer.Close(); err != nil {
		return nil, false, fmt.Errorf("read the log: %w", err)
	}
	return value, true, nil
}

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

// decide checks one request and adds what it writes to the batch. An error leaves the batch
// incomplete.
func (w *writer) decide(r *Request) (Decision, error) {
	s, d, err := w.examine(r)
	if err != nil {
		return Decision{failure: err}, nil
	}
	if d.Verdict != Written {
		return d, nil
	}
	var hiding []byte
	if r.Kind == KindAppend && len(r.Events) > 0 {
		if w.isShort() {
			return Decision{failure: ErrFull}, nil
		}
		if hiding, d = w.hidingMeta(r.Stream, s); d != (Decision{}) {
			return d, nil
		}
	}
	switch r.Kind {
	case KindDelete:
		err = w.writeMeta(r.Stream, []byte(fmt.Sprintf(`{"$tb":%d}`, int64(softDeleted))))
		d.Position = w.head
	case KindTombstone:
		err = w.writeTombstone(r.Stream, s)
		d.Position = w.head
	default:
		d, err = w.append(r, s, hiding)
	}
	return d, err
}

// hidingMeta reads the metadata that hides a soft-deleted stream, nil for any other stream. If the
// current group holds it, it can be read after the commit.
func (w *writer) hidingMeta(stream string, s *streamState) ([]byte, Decision) {
	if !s.softDeleted() {
		return nil, Decision{}
	}
	meta, err := w.state(MetaPrefix + stream)
	if err != nil {
		return nil, Decision{failure: err}
	}
	if meta.group == w.group {
		return nil, Decision{Verdict: notYet}
	}
	newest, _, err := w.stored(meta, meta.last)
	if err != nil {
		return nil, Decision{failure: err}
	}
	return newest.Data, Decision{}
}

// isShort reports whether appends must be refused for want of space. Deletions are not refused,
// since they free some. It queries the disk once a group, and only after the log was searched: a
// repeated append still gets its answer.
func (w *writer) isShort() bool {
	if w.diskShort == nil {
		short := w.short()
		w.diskShort = &short
	}
	return *w.diskShort
}

// examine checks one request and writes nothing. It reads all states that writing the request
// needs.
func (w *writer) examine(r *Request) (*streamState, Decision, error) {
	s, err := w.state(r.Stream)
	if err != nil {
		return nil, Decision{}, err
	}
	deleted, metaDeleted := s.deleted(), false
	if IsMeta(r.Stream) {
		original, err := w.state(r.Stream[len(MetaPrefix):])
		if err != nil {
			return nil, Decision{}, err
		}
		// Like the server, it accepts metadata after the tombstone if some was written before.
		taken := r.Kind == KindAppend && s.last >= 0
		deleted = deleted || original.deleted() && !taken
	}
	if r.Kind == KindDelete || s.softDeleted() { // writes metadata
		meta, err := w.state(MetaPrefix + r.Stream)
		if err != nil {
			return nil, Decision{}, err
		}
		metaDeleted = meta.deleted()
	}
	if deleted {
		return s, Decision{Verdict: StreamDeleted}, nil
	}
	check := r.Events
	if r.Kind != KindAppend {
		check = []Proposed{{id: uuid.New()}}
	}
	d, err := w.check(s, r.Expected, check)
	if err == nil && d.Verdict == Written && r.Kind == KindDelete {
		switch {
		case s.last < 0 && !s.hasMeta:
			d = w.wrong(s)
		case metaDeleted:
			d.Verdict = MetastreamDeleted
		}
	}
	return s, d, err
}

// append writes the events of a request. If the stream was soft-deleted, it then writes the metadata
// that hid it again, so that it shows the new events.
func (w *writer) append(r *Request, s *streamState, hiding []byte) (Decision, error) {
	if len(r.Events) == 0 {
		return Decision{Verdict: Written, Revision: s.last}, nil
	}
	w.stats.appends.Add(1)
	first, hidden := s.last+1, s.softDeleted()
	undelete := false
	if IsMeta(r.Stream) {
		original, err := w.state(r.Stream[len(MetaPrefix):])
		if err != nil {
			return Decision{}, err
		}
		undelete = original.softDeleted() && !original.deleted()
	}
	if err := w.write(r.Stream, s, r.Events); err != nil {
		return Decision{}, err
	}
	d := Decision{Verdict: Written, Revision: s.last, Position: w.head}
	if hidden {
		return d, w.writeMeta(r.Stream, truncatedJSON(hiding, first))
	}
	if newest := r.Events[len(r.Events)-1].metadata; undelete && validMeta(newest) {
		name := r.Stream[len(MetaPrefix):]
		original, err := w.state(name)
		if err != nil {
			return Decision{}, err
		}
		return d, w.writeMeta(name, truncatedJSON(newest, original.last+1))
	}
	return d, nil
}

// writeMeta appends metadata that the engine itself makes to the metastream of a stream.
func (w *writer) writeMeta(stream string, metadata []byte) error {
	name := MetaPrefix + stream
	s, err := w.state(name)
	if err != nil {
		return err
	}
	return w.write(name, s, []Proposed{Propose(name, uuid.New(), MetadataType, true, metadata, nil)})
}

// writeTombstone ends a stream permanently. If it is a metastream, the stream that it describes is
// without metadata from then on.
func (w *writer) writeTombstone(stream string, s *streamState) error {
	p := Propose(stream, uuid.New(), TombstoneType, false, nil, nil)
	if err := w.putEvent(stream, s, p, TombstoneRevision); err != nil {
		return err
	}
	s.tombstone = w.head
	if err := w.scheduleRemoval(stream, 0); err != nil {
		return err
	}
	if IsMeta(stream) {
		if err := w.applyMeta(stream[len(MetaPrefix):], nil); err != nil {
			return err
		}
	}
	return w.putState(stream, s)
}

// write puts events at the end of a stream.
func (w *writer) write(stream string, s *streamState, events []Proposed) error {
	before := s.last
	for _, p := range events {
		if err := w.putEvent(stream, s, p, s.last+1); err != nil {
			return err
		}
		s.last++
		w.recent.add(p.id, s.id, recentEvent{revision: s.last, position: w.head})
	}
	if IsMeta(stream) {
		if err := w.applyMeta(stream[len(MetaPrefix):], events[len(events)-1].metadata); err != nil {
			return err
		}
		if s.last > 0 { // readers see the newest metadata only
			if err := w.scheduleRemoval(stream, supersededGrace); err != nil {
				return err
			}
		}
	}
	// The former last event may now be removed, and $tb may be ahead of what is written.
	if !IsMeta(stream) && s.last > 0 && s.meta.truncateBefore > max(before, 0) {
		if err := w.scheduleRemoval(stream, s.removalGrace()); err != nil {
			return err
		}
	}
	return w.putState(stream, s)
}

// putEvent assigns the next position to one event and adds it to the batch.
func (w *writer) putEvent(stream string, s *streamState, p Proposed, revision int64) error {
	w.head++
	s.id = cmp.Or(s.id, w.head)
	record := p.Record(revision, w.head, wire.Ticks(w.now()))
	if err := w.batch.Set(eventKey(w.head), record, nil); err != nil {
		return fmt.Errorf("write the log: %w", err)
	}
	if err := w.batch.Set(revisionKey(s.id, revision), encodePosition(w.head), nil); err != nil {
		return fmt.Errorf("write the log: %w", err)
	}
	w.entries = append(w.entries, Entry{Position: w.head, Revision: revision, Stream: stream, Record: record})
	return nil
}

// applyMeta updates the state of a stream from its newest metadata. Like the server, it accepts
// metadata of a tombstoned stream, which has no effect and is removed. That of a metastream has no
// effect either: its readers always see the last event.
func (w *writer) applyMeta(stream string, metadata []byte) error {
	s, err := w.state(stream)
	if err != nil {
		return err
	}
	if s.deleted() {
		return w.scheduleRemoval(stream, 0)
	}
	if IsMeta(stream) {
		s.hasMeta = true
		return w.putState(stream, s)
	}
	before, bounded := s.meta.truncateBefore, s.meta.bounded()
	s.hasMeta, s.meta = true, parseMeta(metadata)
	if s.meta.bounded() != bounded {
		if err := w.markBounded(stream, s.meta.bounded()); err != nil {
			return err
		}
	}
	if s.last >= 0 && s.meta.truncateBefore > before || before == softDeleted {
		grace := s.removalGrace()
		if before == softDeleted { // its writer may find that it was deleted by mistake
			grace = softDeleteGrace
		}
		if err := w.scheduleRemoval(stream, grace); err != nil {
			return err
		}
	}
	return w.putState(stream, s)
}

// markBounded records for the scavenger whether a stream loses events without a deletion.
func (w *writer) markBounded(stream string, bounded bool) error {
	set := func() error { return w.batch.Set(boundedKey(stream), nil, nil) }
	if !bounded {
		set = func() error { return w.batch.Delete(boundedKey(stream), nil) }
	}
	if err := set(); err != nil {
		return fmt.Errorf("write the log: %w", err)
	}
	return nil
}

// scheduleRemoval records that the scavenger must remove, after a grace period, what the newest
// event of the log hid from the readers of a stream.
func (w *writer) scheduleRemoval(stream string, grace time.Duration) error {
	w.removals = true
	p := pending{cause: w.head, stream: stream, due: time.Unix(0, 0)}
	if grace > 0 {
		p.due = w.now().Add(grace)
	}
	if err := w.batch.Set(p.key(), p.encode(), nil); err != nil {
		return fmt.Errorf("write the log: %w", err)
	}
	return nil
}

// putState adds the state of a stream to the batch.
func (w *writer) putState(stream string, s *streamState) error {
	s.group = w.group
	if err := w.batch.Set(streamKey(stream), s.encode(), nil); err != nil {
		return fmt.Errorf("write the log: %w", err)
	}
	return nil
}

// state returns the state of a stream, including what the current group wrote.
func (w *writer) state(stream string) (*streamState, error) {
	if s, ok := w.young[stream]; ok {
		return s, nil
	}
	s, ok := w.old[stream]
	if !ok {
		var err error
		if s, err = loadState(w.store.db, stream); err != nil {
			return nil, err
		}
	}
	w.young[stream] = s
	return s, nil
}

// loadState reads the state of a stream.
func loadState(from pebble.Reader, stream string) (*streamState, error) {
	value, found, err := get(from, streamKey(stream))
	if err != nil {
		return nil, err
	}
	s := &streamState{last: NoStream}
	if found {
		if s, err = decodeState(value); err != nil {
			return nil, fmt.Errorf("stream %s: %w", strconv.Quote(stream), err)
		}
	}
	if IsMeta(stream) {
		s.meta = metaMeta
	}
	return s, nil
}

func encodePosition(position uint64) []byte { return binary.BigEndian.AppendUint64(nil, position) }

func decodePosition(b []byte) (uint64, error) {
	if len(b) != 8 {
		return 0, ErrDamagedRecord
	}
	return binary.BigEndian.Uint64(b), nil
}
