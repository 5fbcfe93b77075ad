package node

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/google/uuid"
)

// decide checks one request and puts what it writes into the batch. An error leaves the batch half written.
func (w *writer) decide(r *request) (decision, error) {
	s, d, err := w.examine(r)
	if err != nil {
		return decision{failure: err}, nil
	}
	if d.verdict != write {
		return d, nil
	}
	if r.kind == kindAppend && len(r.events) > 0 && w.isShort() {
		return decision{failure: errFull()}, nil
	}
	switch r.kind {
	case kindDelete:
		err = w.writeMeta(r.stream, []byte(fmt.Sprintf(`{"$tb":%d}`, int64(softDeleted))))
		d.position = w.head
	case kindTombstone:
		err = w.writeTombstone(r.stream, s)
		d.position = w.head
	default:
		d, err = w.append(r, s)
	}
	return d, err
}

// isShort says whether appends are to be refused for want of space; deletions are not, since they make some. It asks the
// disk once for a group, and only after the log was looked at: what is in it already is answered as ever.
func (w *writer) isShort() bool {
	if w.full == nil {
		short := w.short()
		w.full = &short
	}
	return *w.full
}

// examine checks one request and writes nothing. All states that writing it needs are read here.
func (w *writer) examine(r *request) (*streamState, decision, error) {
	s, err := w.state(r.stream)
	if err != nil {
		return nil, decision{}, err
	}
	if isMeta(r.stream) {
		if _, err := w.state(r.stream[len(metaPrefix):]); err != nil {
			return nil, decision{}, err
		}
	} else if r.kind == kindDelete || s.softDeleted() { // writes metadata
		if _, err := w.state(metaPrefix + r.stream); err != nil {
			return nil, decision{}, err
		}
	}
	check := r.events
	if r.kind != kindAppend {
		check = []proposed{{id: uuid.New()}}
	}
	d, err := w.check(r.stream, s, r.expected, check)
	if err == nil && d.verdict == write && r.kind == kindDelete && s.last < 0 && !s.hasMeta {
		d = w.wrong(s)
	}
	return s, d, err
}

// append writes the events of a request and, where the stream was soft-deleted, the metadata that shows it again.
func (w *writer) append(r *request, s *streamState) (decision, error) {
	if len(r.events) == 0 {
		return decision{verdict: write, revision: s.last}, nil
	}
	w.stats.appends.Add(1)
	if s.softDeleted() {
		if err := w.writeMeta(r.stream, truncatedJSON(nil, s.last+1)); err != nil {
			return decision{}, err
		}
	}
	undelete := false
	if isMeta(r.stream) {
		original, err := w.state(r.stream[len(metaPrefix):])
		if err != nil {
			return decision{}, err
		}
		undelete = original.softDeleted() && !original.deleted()
	}
	if err := w.write(r.stream, s, r.events); err != nil {
		return decision{}, err
	}
	d := decision{verdict: write, revision: s.last, position: w.head}
	if newest := r.events[len(r.events)-1].metadata; undelete && validMeta(newest) {
		name := r.stream[len(metaPrefix):]
		original, err := w.state(name)
		if err != nil {
			return decision{}, err
		}
		return d, w.writeMeta(name, truncatedJSON(newest, original.last+1))
	}
	return d, nil
}

// writeMeta appends metadata of the node's own to the metastream of a stream.
func (w *writer) writeMeta(stream string, metadata []byte) error {
	name := metaPrefix + stream
	s, err := w.state(name)
	if err != nil {
		return err
	}
	return w.write(name, s, []proposed{propose(name, uuid.New(), metadataType, true, metadata, nil)})
}

// writeTombstone ends a stream for ever.
func (w *writer) writeTombstone(stream string, s *streamState) error {
	p := propose(stream, uuid.New(), tombstoneType, false, nil, nil)
	if err := w.place(stream, s, p, tombstoneRevision); err != nil {
		return err
	}
	s.tombstone = w.head
	if err := w.remove(stream, 0); err != nil {
		return err
	}
	return w.store(stream, s)
}

// write puts events at the end of a stream.
func (w *writer) write(stream string, s *streamState, events []proposed) error {
	before := s.last
	for _, p := range events {
		if err := w.place(stream, s, p, s.last+1); err != nil {
			return err
		}
		s.last++
		w.lately.add(p.id, written{stream: stream, revision: s.last, position: w.head})
	}
	if isMeta(stream) {
		if err := w.applyMeta(stream[len(metaPrefix):], events[len(events)-1].metadata); err != nil {
			return err
		}
		if s.last > 0 { // readers see the newest metadata only
			if err := w.remove(stream, supersededGrace); err != nil {
				return err
			}
		}
	}
	// What was the last event is that no longer, and $tb may lie ahead of what is written.
	if !isMeta(stream) && s.last > 0 && s.meta.truncateBefore > max(before, 0) {
		if err := w.remove(stream, 0); err != nil {
			return err
		}
	}
	return w.store(stream, s)
}

// place gives one event the next position and puts it into the batch.
func (w *writer) place(stream string, s *streamState, p proposed, revision int64) error {
	w.head++
	if s.id == 0 {
		s.id = w.head
	}
	record := p.record(revision, w.head, ticks(w.now()))
	if err := w.batch.Set(eventKey(w.head), record, nil); err != nil {
		return fmt.Errorf("write the log: %w", err)
	}
	if err := w.batch.Set(revisionKey(s.id, revision), encodePosition(w.head), nil); err != nil {
		return fmt.Errorf("write the log: %w", err)
	}
	w.entries = append(w.entries, entry{position: w.head, revision: revision, stream: stream, record: record})
	return nil
}

// applyMeta updates the state of a stream from its newest metadata. Metadata of a tombstoned stream
// is accepted, as the server does, but it has no effect and is removed.
func (w *writer) applyMeta(stream string, metadata []byte) error {
	s, err := w.state(stream)
	if err != nil {
		return err
	}
	if s.deleted() {
		return w.remove(stream, 0)
	}
	before, bounded := s.meta.truncateBefore, s.meta.bounded()
	s.hasMeta, s.meta = true, parseMeta(metadata)
	if s.meta.bounded() != bounded {
		if err := w.bound(stream, s.meta.bounded()); err != nil {
			return err
		}
	}
	if s.last >= 0 && s.meta.truncateBefore > before || before == softDeleted {
		grace := time.Duration(0)
		if s.softDeleted() {
			grace = softDeleteGrace
		}
		if err := w.remove(stream, grace); err != nil {
			return err
		}
	}
	return w.store(stream, s)
}

// bound tells the scavenger that a stream loses events without anybody deleting them, or does so no more.
func (w *writer) bound(stream string, bounded bool) error {
	set := func() error { return w.batch.Set(boundedKey(stream), nil, nil) }
	if !bounded {
		set = func() error { return w.batch.Delete(boundedKey(stream), nil) }
	}
	if err := set(); err != nil {
		return fmt.Errorf("write the log: %w", err)
	}
	return nil
}

// remove lets the scavenger remove, after a time, what the newest event of the log took from the readers of a stream.
func (w *writer) remove(stream string, grace time.Duration) error {
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

// store puts the state of a stream into the batch.
func (w *writer) store(stream string, s *streamState) error {
	s.group = w.group
	if err := w.batch.Set(streamKey(stream), s.encode(), nil); err != nil {
		return fmt.Errorf("write the log: %w", err)
	}
	return nil
}

// state returns the state of a stream as the group so far leaves it.
func (w *writer) state(stream string) (*streamState, error) {
	if s, ok := w.young[stream]; ok {
		return s, nil
	}
	s, ok := w.old[stream]
	if !ok {
		var err error
		if s, err = loadState(w.db, stream); err != nil {
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
	s := &streamState{last: noStream}
	if found {
		if s, err = decodeState(value); err != nil {
			return nil, fmt.Errorf("stream %s: %w", strconv.Quote(stream), err)
		}
	}
	if isMeta(stream) {
		s.meta = metaMeta
	}
	return s, nil
}

func encodePosition(position uint64) []byte { return binary.BigEndian.AppendUint64(nil, position) }

func decodePosition(b []byte) (uint64, error) {
	if len(b) != 8 {
		return 0, errRecord
	}
	return binary.BigEndian.Uint64(b), nil
}
