package node

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/annals-project/annals/eventstore/node/storage"
	"github.com/annals-project/annals/eventstore/node/wire"
	"github.com/annals-project/annals/internal/runtest"
)

// outcome is what a client learns of an append.
type outcome struct {
	kind     string // written, again, wrong, deleted
	revision int64  // of the last event, or the current one where the expectation was wrong
}

// revisionRule is a rule of expected revisions or repeated appends, for a stream that holds the
// events a0, a1 and a2.
type revisionRule struct {
	name     string
	empty    bool // the stream was never written
	onlyMeta bool // it has metadata, but no events
	soft     bool // it was deleted softly
	gone     bool // it was tombstoned
	restart  bool // the node forgot what it wrote lately
	expected storage.Expectation
	events   []event
	want     outcome
}

func TestAppend_ExpectedRevision(t *testing.T) {
	a := newEvents(3)
	for _, tt := range revisionRules(a, newEvents(3)) {
		t.Run(tt.name, func(t *testing.T) {
			c, last := tt.given(t, a)
			head := lastPosition(c)
			got := tt.when(c, head, last)
			same(t, "outcome", tt.want, got, cmp.AllowUnexported(outcome{}))
			if moved := lastPosition(c) > head; moved != (tt.want.kind == "written") {
				t.Errorf("the log moved: %v", moved)
			}
		})
	}
}

// revisionRules are the rules, for the stream's events and for events that it does not hold.
func revisionRules(a, fresh []event) []revisionRule {
	one := func(e event) []event { return []event{e} }
	return []revisionRule{
		{name: "any on an empty stream", empty: true, expected: anyRevision, events: one(fresh[0]), want: outcome{"written", 0}},
		{name: "no stream on an empty stream", empty: true, expected: none, events: fresh, want: outcome{"written", 2}},
		{name: "exists on an empty stream", empty: true, expected: existing, events: fresh, want: outcome{"wrong", -1}},
		{name: "a revision on an empty stream", empty: true, expected: at(0), events: fresh, want: outcome{"wrong", -1}},
		{name: "exists on a stream with only metadata", onlyMeta: true, expected: existing, events: fresh, want: outcome{"written", 2}},
		{name: "no stream on a stream with only metadata", onlyMeta: true, expected: none, events: fresh, want: outcome{"written", 2}},

		{name: "any", expected: anyRevision, events: fresh, want: outcome{"written", 5}},
		{name: "exists", expected: existing, events: fresh, want: outcome{"written", 5}},
		{name: "the last revision", expected: at(2), events: fresh, want: outcome{"written", 5}},
		{name: "beyond the last revision", expected: at(3), events: fresh, want: outcome{"wrong", 2}},
		{name: "the greatest revision", expected: at(1<<63 - 1), events: fresh, want: outcome{"wrong", 2}},
		{name: "below the last revision, other events", expected: at(1), events: fresh, want: outcome{"wrong", 2}},
		{name: "no stream, other events", expected: none, events: fresh, want: outcome{"wrong", 2}},

		{name: "all again at no stream", expected: none, events: a, want: outcome{"again", 2}},
		{name: "all again at no stream after a restart", restart: true, expected: none, events: a, want: outcome{"again", 2}},
		{name: "the first two again", expected: none, events: a[:2], want: outcome{"again", 1}},
		{name: "the middle one again", expected: at(0), events: one(a[1]), want: outcome{"again", 1}},
		{name: "the last two again", expected: at(0), events: a[1:], want: outcome{"again", 2}},
		{name: "the last one again, at the revision behind it", expected: at(2), events: one(a[2]), want: outcome{"written", 3}},
		{name: "again, at the wrong old revision", expected: at(0), events: one(a[2]), want: outcome{"wrong", 2}},
		{name: "again, then something else", expected: at(0), events: []event{a[1], fresh[0]}, want: outcome{"wrong", 2}},
		{name: "again, then more than there is", expected: at(1), events: []event{a[2], fresh[0]}, want: outcome{"wrong", 2}},
		{name: "something else, then again", expected: at(0), events: []event{fresh[0], a[2]}, want: outcome{"wrong", 2}},
		{name: "nothing at an old revision", expected: at(0), want: outcome{"wrong", 2}},
		{name: "nothing at the last revision", expected: at(2), want: outcome{"nothing", 2}},
		{name: "nothing at any revision", expected: anyRevision, want: outcome{"nothing", 2}},

		{name: "any, all again", expected: anyRevision, events: a, want: outcome{"again", 2}},
		{name: "any, the first again", expected: anyRevision, events: one(a[0]), want: outcome{"again", 0}},
		{name: "any, again in another order", expected: anyRevision, events: []event{a[1], a[0]}, want: outcome{"again", 0}},
		{name: "any, again after a restart", restart: true, expected: anyRevision, events: a, want: outcome{"written", 5}},
		{name: "any, again, then something else", expected: anyRevision, events: []event{a[0], fresh[0]}, want: outcome{"wrong", 2}},
		{name: "any, something else, then again", expected: anyRevision, events: []event{fresh[0], a[0]}, want: outcome{"written", 4}},
		{name: "exists, all again", expected: existing, events: a, want: outcome{"again", 2}},

		{name: "any on a deleted stream", soft: true, expected: anyRevision, events: fresh, want: outcome{"written", 5}},
		{name: "no stream on a deleted stream", soft: true, expected: none, events: fresh, want: outcome{"written", 5}},
		{name: "no stream on a deleted stream, again", soft: true, expected: none, events: a, want: outcome{"again", 2}},
		{name: "the last revision of a deleted stream", soft: true, expected: at(2), events: fresh, want: outcome{"written", 5}},
		{name: "an old revision of a deleted stream", soft: true, expected: at(1), events: fresh, want: outcome{"wrong", 2}},
		{name: "exists on a deleted stream", soft: true, expected: existing, events: fresh, want: outcome{kind: "deleted"}},

		{name: "any on a tombstoned stream", gone: true, expected: anyRevision, events: fresh, want: outcome{kind: "deleted"}},
		{name: "no stream on a tombstoned stream", gone: true, expected: none, events: fresh, want: outcome{kind: "deleted"}},
		{name: "again on a tombstoned stream", gone: true, expected: none, events: a, want: outcome{kind: "deleted"}},
		{name: "exists on a tombstoned stream", gone: true, expected: existing, events: fresh, want: outcome{kind: "deleted"}},
	}
}

// given makes the stream, and returns the position of its last event.
func (tt revisionRule) given(t *testing.T, a []event) (c client, last uint64) {
	t.Helper()
	cfg := memoryConfig()
	n := startNode(t, cfg)
	c = dial(t, n)
	if tt.onlyMeta {
		c.append("$$s", none, metadataEvent(`{"$maxCount":10}`))
	} else if !tt.empty {
		_, last = c.append("s", none, a...)
	}
	if tt.soft {
		c.delete("s", at(2))
	}
	if tt.gone {
		c.tombstone("s", at(2))
	}
	if tt.restart {
		runtest.Must(t, n.Close())
		n = startNode(t, cfg)
		c = dial(t, n)
	}
	return c, last
}

// when makes the append, and returns what the client learns of it. The log ended at head, the stream
// at last.
func (tt revisionRule) when(c client, head, last uint64) (got outcome) {
	c.t.Helper()
	resp, err := c.tryAppend(runtest.Context(c.t), "s", tt.expected, tt.events...)
	switch {
	case status.Code(err) == codes.FailedPrecondition && strings.Contains(message(err), "deleted"):
		got.kind = "deleted"
	case err != nil:
		c.t.Fatal(err)
	case resp.GetWrongExpectedVersion() != nil:
		got = outcome{"wrong", int64(resp.GetWrongExpectedVersion().GetCurrentRevision())}
		if resp.GetWrongExpectedVersion().GetCurrentNoStream() != nil {
			got.revision = storage.NoStream
		}
	case resp.GetSuccess().GetNoPosition() != nil:
		got = outcome{"nothing", int64(resp.GetSuccess().GetCurrentRevision())}
	case resp.GetSuccess().GetPosition().GetCommitPosition() > head:
		got = outcome{"written", int64(resp.GetSuccess().GetCurrentRevision())}
	default:
		got = outcome{"again", int64(resp.GetSuccess().GetCurrentRevision())}
		if want := last - 2 + uint64(got.revision); resp.GetSuccess().GetPosition().GetCommitPosition() != want {
			c.t.Errorf("again: position %d, want that of the original, %d", resp.GetSuccess().GetPosition().GetCommitPosition(),
				want)
		}
	}
	return got
}

// An append beyond the limit is refused as a whole, and only after its last message, so that the
// client reads the reason.
func TestAppend_Limit(t *testing.T) {
	c := dial(t, startNode(t, memoryConfig()))
	exactly := event{id: uuid.New(), typ: "ab", data: strings.Repeat("x", maxAppend-8), meta: "meta"}
	c.append("s", none, exactly)

	over := exactly
	over.id, over.meta = uuid.New(), "meta!"
	call, err := c.Append(runtest.Context(t))
	runtest.Must(t, err)
	runtest.Must(t, call.Send(appendOptions("s", at(0))))
	for _, e := range append([]event{over}, newEvents(20)...) {
		if err := call.Send(e.message()); err != nil {
			t.Fatalf("the node answered before the last message: %v", err)
		}
	}
	_, err = call.CloseAndRecv()
	if status.Code(err) != codes.InvalidArgument ||
		!strings.Contains(message(err), "Maximum Append Size of 1048576 Exceeded") {
		t.Errorf("got %v", err)
	}
	want := metadata.Pairs("exception", "maximum-append-size-exceeded", "maximum-append-size", "1048576")
	same(t, "trailers", want, exceptionTrailers(call.Trailer()))
	if got := c.read(ofStream("s")); len(got) != 1 || got[0].id != exactly.id {
		t.Errorf("the stream holds %d events", len(got))
	}
}

// An incomplete event is refused, and the refusal names what is missing.
func TestAppend_InvalidEvent(t *testing.T) {
	c := dial(t, startNode(t, memoryConfig()))
	noType := newEvent("{}").message()
	delete(noType.GetProposedMessage().Metadata, wire.KeyType)
	noContentType := newEvent("{}").message()
	delete(noContentType.GetProposedMessage().Metadata, wire.KeyContentType)
	emptyType := newEvent("{}")
	emptyType.typ = ""
	noID := newEvent("{}")
	noID.id = uuid.Nil
	badID := newEvent("{}").message()
	badID.GetProposedMessage().Id = textID("not a uuid")

	tests := []struct {
		name   string
		stream string
		msg    any
		code   codes.Code
	}{
		{"no type", "s", noType, codes.InvalidArgument},
		{"no content type", "s", noContentType, codes.InvalidArgument},
		{"empty type", "s", emptyType.message(), codes.Unknown},
		{"no id", "s", noID.message(), codes.Unknown},
		{"an id that is none", "s", badID, codes.InvalidArgument},
		{"options twice", "s", appendOptions("s", none), codes.InvalidArgument},
		{"no name", "", newEvent("{}").message(), codes.InvalidArgument},
		{"metadata of nothing", "$$", newEvent("{}").message(), codes.InvalidArgument},
		{"metadata of metadata", "$$$$s", newEvent("{}").message(), codes.InvalidArgument},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			call, err := c.Append(runtest.Context(t))
			runtest.Must(t, err)
			runtest.Must(t, call.Send(appendOptions(tt.stream, none)))
			runtest.Must(t, call.SendMsg(tt.msg))
			wantCode(t, "the answer", errorOf(call.CloseAndRecv()), tt.code)
		})
	}
	c.wantCount(ofAll(), 0)
}

// An id may be sent as text.
func TestAppend_TextIDs(t *testing.T) {
	c := dial(t, startNode(t, memoryConfig()))
	id := uuid.New()
	msg := newEvent("{}").message()
	msg.GetProposedMessage().Id = textID(id.String())
	call, err := c.Append(runtest.Context(t))
	runtest.Must(t, err)
	runtest.Must(t, call.Send(appendOptions("s", none)))
	runtest.Must(t, call.Send(msg))
	if _, err := call.CloseAndRecv(); err != nil {
		t.Fatal(err)
	}
	if got := c.read(ofStream("s")); len(got) != 1 || got[0].id != id {
		t.Errorf("got %v", got)
	}
}

// More large appends at once than there are places all succeed, without a deadlock.
func TestAppend_LargeOnesQueue(t *testing.T) {
	n := startNode(t, memoryConfig())
	c := dial(t, n)
	var wg sync.WaitGroup
	for i := range largeAppends + 16 {
		wg.Go(func() {
			half := strings.Repeat("x", smallAppend+1)
			resp, err := c.tryAppend(runtest.Context(t), fmt.Sprintf("s%d", i), none, newEvent(half), newEvent(half))
			if err != nil || resp.GetSuccess().GetCurrentRevision() != 1 {
				t.Errorf("append: %v, %v", resp, err)
			}
		})
	}
	wg.Wait()
	if got := n.Stats().Appends; got != largeAppends+16 {
		t.Errorf("%d appends", got)
	}
}
