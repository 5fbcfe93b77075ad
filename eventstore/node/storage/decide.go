package storage

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/cockroachdb/pebble/v2"
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
