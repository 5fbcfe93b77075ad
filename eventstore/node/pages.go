package node

import (
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// The bounds of one page: what is read under one view before anything is sent.
const (
	pageEvents = 512
	pageBytes  = 256 << 10
)

// page is what one look at the log found, in the order asked for.
type page struct {
	events []entry
	// end says that nothing lies behind the page as of its view.
	end   bool
	arena []byte
	bytes int
}

// full says that the page takes no more.
func (p *page) full(limit int) bool {
	return len(p.events) >= min(limit, pageEvents) || p.bytes >= pageBytes
}

// keep copies a record; the copy lives as long as a message that is being sent needs it.
func (p *page) keep(record []byte) []byte {
	if cap(p.arena)-len(p.arena) < len(record) {
		p.arena = make([]byte, 0, max(len(record), min(2*cap(p.arena), pageBytes), 4<<10))
	}
	start := len(p.arena)
	p.arena = append(p.arena, record...)
	p.bytes += len(record)
	return p.arena[start:len(p.arena):len(p.arena)]
}

// all reads the whole log: forwards from a position on (inclusive), backwards from below it.
func (v *view) all(from uint64, backwards bool, limit int) (p page, err error) {
	iter, err := v.snapshot.NewIter(&pebble.IterOptions{LowerBound: []byte{spaceEvent}, UpperBound: []byte{spaceEvent + 1}})
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
		p.events = append(p.events, entry{position: positionOf(iter.Key()), record: p.keep(value)})
	}
	p.end = !valid
	if err := iter.Error(); err != nil {
		return p, fmt.Errorf("read the log: %w", err)
	}
	return p, nil
}

// stream reads the events of one stream that its metadata leaves: from a revision on (inclusive), in either direction.
func (v *view) stream(s *streamState, from int64, backwards bool, limit int, now time.Time) (p page, err error) {
	first := s.firstReadable()
	if !s.exists() || first > s.last {
		return page{end: true}, nil
	}
	if !backwards {
		first = max(first, from)
	}
	last := s.last
	if backwards {
		last = min(last, from)
	}
	if first > last {
		return page{end: true}, nil
	}
	index, err := v.snapshot.NewIter(&pebble.IterOptions{LowerBound: revisionKey(s.id, first), UpperBound: append(revisionKey(s.id, last), 0)})
	if err != nil {
		return p, fmt.Errorf("read the log: %w", err)
	}
	defer func() { err = errors.Join(err, index.Close()) }()
	events, err := v.snapshot.NewIter(&pebble.IterOptions{LowerBound: []byte{spaceEvent}, UpperBound: []byte{spaceEvent + 1}})
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
			r, err := parseRecord(e.record)
			if err != nil {
				return p, fmt.Errorf("event at position %d: %w", e.position, err)
			}
			if r.created.Before(now.Add(-s.meta.maxAge)) {
				continue
			}
		}
		e.record = p.keep(e.record)
		p.events = append(p.events, e)
	}
	p.end = !valid
	if err := index.Error(); err != nil {
		return p, fmt.Errorf("read the log: %w", err)
	}
	return p, nil
}

// resolve reads the event that the index stands at. The record is good until the next call.
func resolve(index, events *pebble.Iterator) (entry, error) {
	value, err := index.ValueAndErr()
	if err != nil {
		return entry{}, fmt.Errorf("read the log: %w", err)
	}
	position, err := decodePosition(value)
	if err != nil {
		return entry{}, err
	}
	if !events.SeekGE(eventKey(position)) || positionOf(events.Key()) != position {
		return entry{}, errors.Join(fmt.Errorf("position %d: the index names an event that is not there", position), events.Error())
	}
	record, err := events.ValueAndErr()
	if err != nil {
		return entry{}, fmt.Errorf("read the log: %w", err)
	}
	return entry{position: position, revision: revisionOf(index.Key()), record: record}, nil
}
