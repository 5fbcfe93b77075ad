package node

import (
	"testing"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/google/go-cmp/cmp"

	"github.com/annals-project/annals/eventstore/node/storage"
	"github.com/annals-project/annals/internal/runtest"
)

// repeatedAppend is an append to a stream whose events a, b, c are one append, and the answer to it.
type repeatedAppend struct {
	name     string
	expected storage.Expectation
	events   string // by their names: those of the stream, and n, which is new
	conflict bool
	revision uint64 // that is answered
	written  int    // how many events are added
}

// repeatedAppends are the rules. An append at any revision, or to a stream that exists, is known by the first places
// that its ids have in the stream; the answer is the place of its last id. At a revision, its ids are compared with the
// events that follow the revision.
func repeatedAppends() []repeatedAppend {
	var out []repeatedAppend
	for kind, expected := range map[string]storage.Expectation{"any": anyRevision, "exists": existing} {
		out = append(out, []repeatedAppend{
			{name: "all again, " + kind, expected: expected, events: "abc", revision: 2},
			{name: "the first of them, " + kind, expected: expected, events: "a", revision: 0},
			{name: "in another order, " + kind, expected: expected, events: "ba", revision: 0},
			{name: "one of them several times, " + kind, expected: expected, events: "bbbb", revision: 1},
			{name: "a known id before a new one, " + kind, expected: expected, events: "abcn", conflict: true},
			{name: "a new id before a known one, " + kind, expected: expected, events: "na", revision: 4, written: 2},
		}...)
	}
	return append(out, []repeatedAppend{
		{name: "all again, no stream", expected: none, events: "abc", revision: 2},
		{name: "the rest again, at its revision", expected: at(0), events: "bc", revision: 2},
		{name: "another order, no stream", expected: none, events: "acb", conflict: true},
		{name: "one more than there are, no stream", expected: none, events: "abcn", conflict: true},
		{name: "a known id at the last revision", expected: at(2), events: "a", revision: 3, written: 1},
	}...)
}

// TestProtocol_RepeatedAppend: what the server answers to an append of ids that it knows.
func TestProtocol_RepeatedAppend(t *testing.T) {
	c := protocolServer(t, Config{}).dial(t)
	b := c.batchAppend()
	for _, tt := range repeatedAppends() {
		t.Run(tt.name, func(t *testing.T) {
			for how, again := range map[string]func(string, ...event) (uint64, uint64, bool){
				"append": func(stream string, events ...event) (uint64, uint64, bool) {
					resp, err := c.tryAppend(runtest.Context(t), stream, tt.expected, events...)
					runtest.Must(t, err)
					return placeOf(resp)
				},
				"batch append": func(stream string, events ...event) (uint64, uint64, bool) {
					s := b.one(part(stream, tt.expected, events...)).GetSuccess()
					return s.GetCurrentRevision(), s.GetPosition().GetCommitPosition(), s != nil
				},
			} {
				stream := unused("repeated")
				known := newEvents(3)
				c.append(stream, none, known...)
				byName := map[rune]event{'a': known[0], 'b': known[1], 'c': known[2], 'n': newEvent("{}")}
				var sent []event
				for _, name := range tt.events {
					sent = append(sent, byName[name])
				}
				revision, position, success := again(stream, sent...)
				if success == tt.conflict || revision != tt.revision {
					t.Errorf("%s: success %v at revision %d", how, success, revision)
				}
				got := c.read(ofStream(stream))
				if len(got) != 3+tt.written {
					t.Fatalf("%s: the stream holds %d events", how, len(got))
				}
				if success && position != got[revision].position {
					t.Errorf("%s: position %d, the event has %d", how, position, got[revision].position)
				}
			}
		})
	}
	b.stop()
}

// placeOf returns revision and position of an answer, and whether it is a success.
func placeOf(resp *streams.AppendResp) (revision, position uint64, success bool) {
	s := resp.GetSuccess()
	return s.GetCurrentRevision(), s.GetPosition().GetCommitPosition(), s != nil
}

// TestProtocol_OneIDThrice: an append of one id three times writes three events. The same append again is answered with
// the first of them, and at no stream with the last.
func TestProtocol_OneIDThrice(t *testing.T) {
	c := protocolServer(t, Config{}).dial(t)
	for _, tt := range []struct {
		name     string
		expected storage.Expectation
		again    uint64
	}{{"any", anyRevision, 0}, {"no stream", none, 2}} {
		t.Run(tt.name, func(t *testing.T) {
			stream, e := unused("thrice"), newEvent("{}")
			if revision, _ := c.append(stream, tt.expected, e, e, e); revision != 2 {
				t.Errorf("written up to revision %d", revision)
			}
			revision, position := c.append(stream, tt.expected, e, e, e)
			got := c.read(ofStream(stream))
			if len(got) != 3 || revision != tt.again || position != got[tt.again].position {
				t.Errorf("again: revision %d, position %d, the stream: %v", revision, position, got)
			}
		})
	}
}

// TestProtocol_OneIDInTwoStreams: an id keeps its first place in each stream. The server keeps one place of an id, in
// the stream that had it first: repeated to the second stream, it is written again. The node answers with its place
// there.
func TestProtocol_OneIDInTwoStreams(t *testing.T) {
	s := protocolServer(t, Config{})
	c := s.dial(t)
	first, second, e := unused("first"), unused("second"), newEvent("{}")
	type place struct{ revision, position uint64 }
	send := func(stream string) (p place) {
		p.revision, p.position = c.append(stream, anyRevision, e)
		return p
	}
	inFirst, inSecond := send(first), send(second)
	if diff := cmp.Diff(inFirst, send(first), cmp.AllowUnexported(place{})); diff != "" {
		t.Errorf("again to the first stream: %s", diff)
	}
	again, events := send(second), 2
	if s.own != nil {
		events = 1
	}
	if (again == inSecond) != (events == 1) {
		t.Errorf("again to the second stream: %v, first %v", again, inSecond)
	}
	if a, b := len(c.read(ofStream(first))), len(c.read(ofStream(second))); a != 1 || b != events {
		t.Errorf("the streams hold %d and %d events", a, b)
	}
}
