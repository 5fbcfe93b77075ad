package node

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/cockroachdb/pebble/v2"
)

// expectedKind is what a client expects of a stream when it writes.
type expectedKind int

const (
	expectExact expectedKind = iota // a revision, or -1 for no stream
	expectAny
	expectExists
)

type expectation struct {
	kind     expectedKind
	revision int64
}

const noStream = -1

// String is the number by which the protocol says the expectation in trailers.
func (e expectation) String() string {
	switch e.kind {
	case expectAny:
		return "-2"
	case expectExists:
		return "-4"
	default:
		return strconv.FormatInt(e.revision, 10)
	}
}

// verdict is the outcome of a check.
type verdict int

const (
	write verdict = iota
	already
	wrongVersion
	streamDeleted
	// notYet means that the answer rests on events of the group that is being written; ask again after its commit.
	notYet
)

// decision is a verdict with what an answer says about it.
type decision struct {
	verdict  verdict
	revision int64  // already: of the last original event; wrongVersion: current
	position uint64 // already: of the last original event
	// failure is why there is no verdict: what it would rest on could not be read. It concerns this request only.
	failure error
}

// check decides an append by the rules of the server, in their order.
func (w *writer) check(stream string, s *streamState, expected expectation, events []proposed) (decision, error) {
	switch {
	case s.deleted():
		return decision{verdict: streamDeleted}, nil
	case expected.kind == expectExists && s.softDeleted():
		return decision{verdict: streamDeleted}, nil
	case expected.kind == expectExists && s.last < 0 && !s.hasMeta:
		return w.wrong(s), nil
	case expected.kind != expectExact:
		return w.checkIDs(stream, s, events), nil
	case expected.revision > s.last:
		return w.wrong(s), nil
	case expected.revision == s.last:
		return decision{verdict: write}, nil
	case s.group == w.group:
		return decision{verdict: notYet}, nil
	}
	return w.checkStored(s, expected, events)
}

func (w *writer) wrong(s *streamState) decision {
	return decision{verdict: wrongVersion, revision: s.last}
}

// checkIDs looks for the events among those written lately: a repeated append without an exact revision is recognised as far as they reach.
func (w *writer) checkIDs(stream string, s *streamState, events []proposed) decision {
	var last written
	for i, e := range events {
		found, ok := w.lately.find(e.id)
		switch {
		case ok && found.stream == stream:
			last = found
		case i == 0:
			return decision{verdict: write}
		default:
			return w.wrong(s)
		}
	}
	if len(events) == 0 {
		return decision{verdict: write}
	}
	return decision{verdict: already, revision: last.revision, position: last.position}
}

// checkStored compares an append at an old revision with the events that stand behind that revision.
func (w *writer) checkStored(s *streamState, expected expectation, events []proposed) (decision, error) {
	var position uint64
	for i, e := range events {
		stored, at, err := w.stored(s, expected.revision+1+int64(i))
		if err != nil {
			return decision{}, err
		}
		if at != 0 && stored.id == e.id {
			position = at
			continue
		}
		if i == 0 && expected.revision == noStream && s.softDeleted() {
			return decision{verdict: write}, nil
		}
		return w.wrong(s), nil
	}
	if len(events) == 0 {
		if expected.revision == noStream && s.softDeleted() {
			return decision{verdict: write}, nil
		}
		return w.wrong(s), nil
	}
	return decision{verdict: already, revision: expected.revision + int64(len(events)), position: position}, nil
}

// stored reads one event of a stream; its position is 0 where there is none.
func (w *writer) stored(s *streamState, revision int64) (recorded, uint64, error) {
	if revision > s.last {
		return recorded{}, 0, nil
	}
	index, found, err := get(w.db, revisionKey(s.id, revision))
	if err != nil || !found {
		return recorded{}, 0, err
	}
	position, err := decodePosition(index)
	if err != nil {
		return recorded{}, 0, err
	}
	value, found, err := get(w.db, eventKey(position))
	if err != nil || !found {
		return recorded{}, 0, err
	}
	r, err := parseRecord(value)
	if err != nil {
		return recorded{}, 0, fmt.Errorf("event at position %d: %w", position, err)
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
