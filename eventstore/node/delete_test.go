package node

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/annals-project/annals/eventstore/node/storage"
	"github.com/annals-project/annals/internal/runtest"
)

// Readers of a soft-deleted stream find none, and later only the events that are written after the
// deletion. The numbering of its events continues.
func TestDelete_Soft(t *testing.T) {
	c := dial(t, startNode(t, memoryConfig()))
	c.append("s", none, newEvents(3)...)
	c.append("$$s", none, metadataEvent(`{"$maxCount":2,"owner":"x"}`))
	position := c.delete("s", at(2))

	if _, found, _, err := c.tryRead(ofStream("s")); found || err != nil {
		t.Errorf("read of a deleted stream: found %v, %v", found, err)
	}
	c.wantCount(ofAll(), 3+1+1)
	if got := c.read(ofStream("$$s")); len(got) != 1 || got[0].data != `{"$tb":9223372036854775807}` ||
		got[0].typ != "$metadata" ||
		got[0].position != position {
		t.Errorf("metadata after the delete: %v", got)
	}
	again := newEvents(2)
	c.append("s", none, again...)
	want := []recordedEvent{{stream: "s", revision: 3, id: again[0].id}, {stream: "s", revision: 4, id: again[1].id}}
	same(t, "events", want, c.read(ofStream("s")), places)
	if got := c.read(ofStream("$$s")); len(got) != 1 || got[0].data != `{"$tb":3}` {
		t.Errorf("metadata after the next append: %v", got)
	}
}

// Metadata that is written to a soft-deleted stream restores the stream, and keeps its content.
func TestSoftDelete_EndedByMetadata(t *testing.T) {
	c := dial(t, startNode(t, memoryConfig()))
	c.append("s", none, newEvents(2)...)
	c.delete("s", anyRevision)
	revision, _ := c.append("$$s", anyRevision, metadataEvent(`{"owner":"x"}`))
	if revision != 1 {
		t.Errorf("answered revision %d, want that of the client's event", revision)
	}
	if got := c.read(ofStream("$$s")); len(got) != 1 || got[0].data != `{"owner":"x","$tb":2}` {
		t.Errorf("metadata: %v", got)
	}
	events, found, _, err := c.tryRead(ofStream("s"))
	if len(events) != 0 || !found || err != nil {
		t.Errorf("got %v, found %v, %v", events, found, err)
	}
}

// Deletes check the revision as appends do, and report a conflict in trailers.
func TestDelete_ExpectedRevision(t *testing.T) {
	c := dial(t, startNode(t, memoryConfig()))
	c.append("s", none, newEvents(2)...)
	tests := []struct {
		name     string
		stream   string
		expected storage.Expectation
		trailers metadata.MD
	}{
		{"an old revision", "s", at(0), wrongTrailers("s", "0", "1")},
		{"beyond the last", "s", at(5), wrongTrailers("s", "5", "1")},
		{"no stream", "s", none, wrongTrailers("s", "-1", "1")},
		{"exists, on nothing", "x", existing, wrongTrailers("x", "-4", "-1")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, end := range []func(string, storage.Expectation) (uint64, metadata.MD, error){c.tryDelete, c.tryTombstone} {
				_, trailer, err := end(tt.stream, tt.expected)
				wantCode(t, "the answer", err, codes.FailedPrecondition)
				same(t, "trailers", tt.trailers, exceptionTrailers(trailer))
			}
		})
	}
	if _, trailer, err := c.tryDelete("x", anyRevision); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("delete of what never was: %v, %v", err, trailer)
	}
	if _, _, err := c.tryDelete("$$$$s", anyRevision); status.Code(err) != codes.InvalidArgument {
		t.Errorf("delete of metadata of metadata: %v", err)
	}
	c.wantCount(ofStream("s"), 2)
}

// A tombstone ends a stream permanently, for readers and writers, and its metadata for readers,
// also after a restart.
func TestDelete_Tombstone(t *testing.T) {
	cfg := memoryConfig()
	n := startNode(t, cfg)
	c := dial(t, n)
	c.append("s", none, newEvents(2)...)
	c.append("$$s", none, metadataEvent(`{"$maxCount":2}`))
	position := c.tombstone("s", at(1))
	c.tombstone("never written", none)
	deleted := metadata.Pairs("exception", "stream-deleted", "stream-name", "s")

	for range 2 {
		for _, stream := range []string{"s", "$$s"} {
			want := deleted
			if stream == "$$s" {
				want = metadata.Pairs("exception", "stream-deleted", "stream-name", "$$s")
			}
			_, _, trailer, err := c.tryRead(ofStream(stream))
			wantCode(t, "read of "+stream, err, codes.FailedPrecondition)
			same(t, "trailers", want, exceptionTrailers(trailer))
		}
		_, err := c.tryAppend(runtest.Context(t), "s", anyRevision, newEvents(1)...)
		wantCode(t, "append to s", err, codes.FailedPrecondition)
		_, trailer, err := c.tryTombstone("s", anyRevision)
		if diff := cmp.Diff(deleted, exceptionTrailers(trailer)); diff != "" || status.Code(err) != codes.FailedPrecondition {
			t.Errorf("second tombstone: %v %s", err, diff)
		}
		if got := last(c.read(limited(from(ofAll(), position), 1))); got.typ != "$streamDeleted" || got.revision != 1<<63-1 ||
			got.stream != "s" {
			t.Errorf("the tombstone is %+v", got)
		}
		runtest.Must(t, n.Close())
		n = startNode(t, cfg)
		c = dial(t, n)
	}
}

// Metadata of a tombstoned stream is accepted at its revision if it had some before, as on the
// server, whose cache holds that revision. It does not restore the stream, nobody can read it, and
// the next scavenge that finds a later event removes it.
func TestTombstone_LaterMetadata(t *testing.T) {
	n := startNode(t, asleep(memoryConfig()))
	c := dial(t, n)
	c.append("s", none, newEvents(2)...)
	c.append("$$s", none, metadataEvent(`{"owner":"x"}`))
	c.delete("s", anyRevision) // sets $tb, which other metadata would undo
	c.tombstone("s", anyRevision)
	w, err := c.tryAppend(runtest.Context(t), "$$s", at(7), metadataEvent(`{}`))
	if err != nil || w.GetWrongExpectedVersion() == nil {
		t.Errorf("at a revision that it does not have: %v, %v", w, err)
	}
	if revision, _ := c.append("$$s", at(1), metadataEvent(`{"owner":"y"}`)); revision != 2 {
		t.Errorf("written as revision %d", revision)
	}
	_, position := c.append("$$s", anyRevision, metadataEvent(`{"$maxAge":1}`))
	for _, stream := range []string{"s", "$$s"} {
		if _, _, _, err := c.tryRead(ofStream(stream)); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("read of %s: %v", stream, err)
		}
	}
	if got := c.read(ofAll()); len(got) != 7 || last(got).position != position || last(got).data != `{"$maxAge":1}` {
		t.Errorf("the log: %v", got)
	}
	runtest.Must(t, n.Scavenge(runtest.Context(t)))
	same(t, "after a scavenge", []string{"s/$streamDeleted", "$$s/$metadata"}, streamsOf(c.read(ofAll())))
	if _, next := c.append("other", none, newEvents(1)...); next != position+1 {
		t.Errorf("the next event has position %d, want %d", next, position+1)
	}
	runtest.Must(t, n.Scavenge(runtest.Context(t)))
	same(t, "after another scavenge", []string{"s/$streamDeleted", "other/tested"}, streamsOf(c.read(ofAll())))
}

// A stream whose metastream is tombstoned is no longer hidden by it. A delete would need to write
// there, and is refused; the stream can be tombstoned. All that holds after a restart.
func TestTombstone_OfMetastream(t *testing.T) {
	cfg := asleep(memoryConfig())
	n := startNode(t, cfg)
	c := dial(t, n)
	c.append("s", none, newEvents(2)...)
	c.delete("s", anyRevision)
	c.tombstone("$$s", at(0))
	for range 2 {
		c.wantCount(ofStream("s"), 2)
		_, trailer, err := c.tryDelete("s", anyRevision)
		checkDeleted(t, "delete", "$$s", trailer, err)
		_, _, trailer, err = c.tryRead(ofStream("$$s"))
		checkDeleted(t, "read", "$$s", trailer, err)
		runtest.Must(t, n.Close())
		n = startNode(t, cfg)
		c = dial(t, n)
	}
	c.append("s", at(1), newEvents(1)...)
	c.tombstone("s", at(2))
	runtest.Must(t, n.Scavenge(runtest.Context(t)))
	want := []string{"$$s/$streamDeleted", "s/$streamDeleted"}
	same(t, "streams", want, streamsOf(c.read(ofAll())))
}

// What deletes of a metastream wrote is removed with the stream.
func TestTombstone_AfterDeleteOfMetastream(t *testing.T) {
	n := startNode(t, asleep(memoryConfig()))
	c := dial(t, n)
	c.append("s", none, newEvents(1)...)
	c.append("$$s", none, metadataEvent(`{"owner":"x"}`))
	c.delete("$$s", at(0))
	c.delete("$$s", at(0))
	c.tombstone("s", at(0))
	for _, stream := range []string{"$$s", "$$$$s"} {
		_, _, trailer, err := c.tryRead(ofStream(stream))
		checkDeleted(t, "read", stream, trailer, err)
	}
	runtest.Must(t, n.Scavenge(runtest.Context(t)))
	same(t, "after a scavenge", []string{"s/$streamDeleted"}, streamsOf(c.read(ofAll())))
}

// asleep returns a node that removes nothing unless a scavenge is requested.
func asleep(cfg Config) Config {
	cfg.manualScavenge = true
	return cfg
}

// places compares what is stored where, and leaves out what a test does not set.
var places = cmp.Options{
	cmp.AllowUnexported(recordedEvent{}),
	cmpopts.IgnoreFields(recordedEvent{}, "position", "typ", "data", "meta"),
}

func wrongTrailers(stream, expected, actual string) metadata.MD {
	return metadata.Pairs("exception", "wrong-expected-version", "stream-name", stream, "expected-version", expected,
		"actual-version", actual)
}
