package storage

import (
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// The bounds of one page, which is read from one view.
const (
	PageEvents = 512
	pageBytes  = 256 << 10
)

// Page is a series of events, in the order of the read.
type Page struct {
	Events []Entry
	// End is true if the log has no events after the page, as of its view.
	End   bool
	arena []byte
	bytes int
}

// full reports whether the page is complete.
func (p *Page) full(limit int) bool {
	return len(p.Events) >= min(limit, PageEvents) || p.bytes >= pageBytes
}

// copyRecord copies a record. The copy stays valid while a message that contains it is sent.
func (p *Page) copyRecord(record []byte) []byte {
	if cap(p.arena)-len(p.arena) < len(record) {
		p.arena = make([]byte, 0, max(len(record), min(2*cap(p.arena), pageBytes), 4<<10))
	}
	start := len(p.arena)
	p.arena = append(p.arena, record...)
	p.bytes += len(record)
	return p.arena[start:len(p.arena):len(p.arena)]
}

// all reads the whole log: forwards from a position (inclusive), backwards from below it.
func (v *view) all(from uint64, backwards bool, limit int) (p Page, err error) {
	iter, err := v.snapshot.NewIter(
		&pebble.IterOptions{LowerBound: []byte{spaceEvent}, UpperBound: []byte{spaceEvent + 1}},
	)
	if err != nil {
		return p, fmt.Errorf("read the log: %w", err)
	}
	defer func() { err = errors.Join(err, iter.Close()) }()
	step, valid := iter.Next, false
	if backwards {
		step, valid = iter.Prev, iter.SeekLT(eventKey(from))
	} else {
		valid = iter.SeekGE(eventKey(from))
	}
	for ; valid && !p.full(limit); valid = step() {
		value, err := iter.ValueAndErr()
		if err != nil {
			return p, fmt.Errorf("read the log: %w", err)
		}
		p.Events = append(p.Events, Entry{Position: positionOf(iter.Key()), Record: p.copyRecord(value)})
	}
	p.End = !valid
	if err := iter.Error(); err != nil {
		return p, fmt.Errorf("read the log: %w", err)
	}
	return p, nil
}

// stream reads the events of one stream that its metadata shows, from a revision (inclusive) in
// either direction.
func (v *view) stream(s *streamState, from int64, backwards bool, limit int, now time.Time) (p Page, err error) {
	first := s.firstReadable()
	if !s.exists() || first > s.last {
		return Page{End: true}, nil
	}
	if !backwards {
		first = max(first, from)
	}
	last := s.last
	if backwards {
		last = min(last, from)
	}
	if first > last {
		return Page{End: true}, nil
	}
	index, err := v.snapshot.NewIter(&pebble.IterOptions{
		LowerBound: revisionKey(s.id, first), UpperBound: append(revisionKey(s.id, last), 0),
	})
	if err != nil {
		return p, fmt.Errorf("read the log: %w", err)
	}
	defer func() { err = errors.Join(err, index.Close()) }()
	events, err := v.snapshot.NewIter(&pebble.IterOptions{
		LowerBound: []byte{spaceEvent}, UpperBound: []byte{spaceEvent + 1},
	})
	if err != nil {
		return p, fmt.Errorf("read the log: %w", err)
	}
	defer func() { err = errors.Join(err, events.Close()) }()

	step, valid := index.Next, false
	if backwards {
		step, valid = index.Prev, index.Last()
	} else {
		valid = index.First()
	}
	for ; valid && !p.full(limit); valid = step() {
		e, err := resolve(index, events)
		if err != nil {
			return p, err
		}
		if s.meta.maxAge > 0 {
			r, err := ParseRecord(e.Record)
			if err != nil {
				return p, fmt.Errorf("event at position %d: %w", e.Position, err)
			}
			if r.Created.Before(now.Add(-s.meta.maxAge)) {
				continue
			}
		}
		e.Record = p.copyRecord(e.Record)
		p.Events = append(p.Events, e)
	}
	p.End = !valid
	if err := index.Error(); err != nil {
		return p, fmt.Errorf("read the log: %w", err)
	}
	return p, nil
}

// resolve reads the event that the index iterator points to. The record is valid until the next
// call.
func resolve(index, events *pebble.Iterator) (Entry, error) {
	value, err := index.ValueAndErr()
	if err != nil {
		return Entry{}, fmt.Errorf("read the log: %w", err)
	}
	position, err := decodePosition(value)
	if err != nil {
		return Entry{}, err
	}
	if !events.SeekGE(eventKey(position)) || positionOf(events.Key()) != position {
		return Entry{}, errors.Join(fmt.Errorf("position %d: event of the index not found", position), events.Error())
	}
	record, err := events.ValueAndErr()
	if err != nil {
		return Entry{}, fmt.Errorf("read the log: %w", err)
	}
	return Entry{Position: position, Revision: revisionOf(index.Key()), Record: record}, nil
}

// state returns the state of a stream as readers see it: a tombstone ends the metadata of its
// stream too.
func (v *view) state(stream string) (*streamState, error) {
	s, err := loadState(v.snapshot, stream)
	for range metaLevels {
		if err != nil || s.deleted() || !IsMeta(stream) {
			break
		}
		stream = stream[len(MetaPrefix):]
		var original *streamState
		if original, err = loadState(v.snapshot, stream); err == nil {
			s.tombstone = original.tombstone
		}
	}
	return s, err
}

// event returns one event of a stream, nil if readers do not see it.
func (v *view) event(stream string, revision int64) ([]byte, error) {
	state, err := v.state(stream)
	if err != nil || state.deleted() || !state.exists() || revision < state.firstReadable() || revision > state.last {
		return nil, err
	}
	index, found, err := get(v.snapshot, revisionKey(state.id, revision))
	if err != nil || !found {
		return nil, err
	}
	position, err := decodePosition(index)
	if err != nil {
		return nil, err
	}
	record, _, err := get(v.snapshot, eventKey(position))
	return record, err
}
