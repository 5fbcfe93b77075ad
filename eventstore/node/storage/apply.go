package storage

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"strconv"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore/node/wire"
)

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
