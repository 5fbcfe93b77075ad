package node

import (
	"testing"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/annals-project/annals/eventstore/node/storage"
	"github.com/annals-project/annals/internal/runtest"
)

// checkDeleted checks that a call was refused because a stream is tombstoned.
func checkDeleted(t *testing.T, what, stream string, trailer metadata.MD, err error) {
	t.Helper()
	want := metadata.Pairs("exception", "stream-deleted", "stream-name", stream)
	if diff := cmp.Diff(want, exceptionTrailers(trailer)); diff != "" || status.Code(err) != codes.FailedPrecondition {
		t.Errorf("%s: %v, %s", what, err, diff)
	}
}

// appendTrailer makes an append that must be refused, and returns its trailer.
func (c client) appendTrailer(stream string, expected storage.Expectation, e event) (metadata.MD, error) {
	call, err := c.Append(runtest.Context(c.t))
	if err != nil {
		return nil, err
	}
	for _, m := range []*streams.AppendReq{appendOptions(stream, expected), e.message()} {
		if err := call.Send(m); err != nil {
			return nil, err
		}
	}
	_, err = call.CloseAndRecv()
	return call.Trailer(), err
}

// TestProtocol_MetadataAfterTombstone: a tombstone ends the metadata of its stream too. If there was none, every call
// that writes or reads it is answered that the metastream is deleted, whatever the expected revision.
func TestProtocol_MetadataAfterTombstone(t *testing.T) {
	c := protocolServer(t, Config{}).dial(t)
	stream := unused("tombstoned")
	c.append(stream, none, newEvents(1)...)
	c.tombstone(stream, at(0))
	meta := "$$" + stream
	b := c.batchAppend()
	for _, expected := range []storage.Expectation{anyRevision, existing, none, at(0), at(7)} {
		trailer, err := c.appendTrailer(meta, expected, metadataEvent(`{"$maxCount":1}`))
		checkDeleted(t, "append", meta, trailer, err)
		code, got := detail(t, b.one(part(meta, expected, metadataEvent(`{}`))))
		want := proto.Message(&shared.StreamDeleted{StreamIdentifier: nameOf(meta)})
		if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" || code != codes.NotFound {
			t.Errorf("batch append: %v, %s", code, diff)
		}
		_, trailer, err = c.tryDelete(meta, expected)
		checkDeleted(t, "delete", meta, trailer, err)
		_, trailer, err = c.tryTombstone(meta, expected)
		checkDeleted(t, "tombstone", meta, trailer, err)
	}
	b.stop()
	_, _, trailer, err := c.tryRead(ofStream(meta))
	checkDeleted(t, "read", meta, trailer, err)
}

// TestProtocol_MoreMetadataAfterTombstone: if a tombstoned stream has metadata, more is accepted at its revision, and
// none is read. The server does so while it has that revision in its cache, which a restart empties; the node always.
func TestProtocol_MoreMetadataAfterTombstone(t *testing.T) {
	c := protocolServer(t, Config{}).dial(t)
	stream := unused("tombstoned")
	meta := "$$" + stream
	c.append(stream, none, newEvents(1)...)
	c.append(meta, none, metadataEvent(`{"$maxCount":5}`))
	c.tombstone(stream, at(0))
	for i, expected := range []storage.Expectation{at(0), anyRevision, existing} {
		if revision, _ := c.append(meta, expected, metadataEvent(`{"$maxCount":1}`)); revision != uint64(i+1) {
			t.Errorf("at %v: revision %d", expected, revision)
		}
	}
	resp, err := c.tryAppend(runtest.Context(t), meta, at(0), metadataEvent(`{}`))
	if err != nil || resp.GetWrongExpectedVersion().GetCurrentRevision() != 3 {
		t.Errorf("at an old revision: %v, %v", resp, err)
	}
	for _, name := range []string{stream, meta} {
		_, _, trailer, err := c.tryRead(ofStream(name))
		checkDeleted(t, "read", name, trailer, err)
	}
}

// TestProtocol_DeleteOfMetastream: a delete of a metastream is served and has no effect besides its own event, which is
// metadata of the metastream: the metastream and its effect stay as they are.
func TestProtocol_DeleteOfMetastream(t *testing.T) {
	c := protocolServer(t, Config{}).dial(t)
	stream := unused("described")
	meta := "$$" + stream
	c.append(stream, none, newEvents(3)...)
	c.append(meta, none, metadataEvent(`{"$maxCount":2}`))
	for i, expected := range []storage.Expectation{at(0), anyRevision} {
		position := c.delete(meta, expected)
		got := c.read(ofStream("$$" + meta))
		if len(got) != 1 || got[0].revision != uint64(i) || got[0].position != position ||
			got[0].data != `{"$tb":`+hidden+`}` {
			t.Errorf("delete %d at %d: %v", i, position, got)
		}
	}
	c.checkMeta(t, stream, `{"$maxCount":2}`)
	if got := c.read(ofStream(stream)); len(got) != 2 {
		t.Errorf("the stream shows %v", got)
	}
	if revision, _ := c.append(meta, at(0), metadataEvent(`{"$maxCount":1}`)); revision != 1 {
		t.Errorf("metadata after the delete has revision %d", revision)
	}
	if got := c.read(ofStream(stream)); len(got) != 1 {
		t.Errorf("the stream shows %v", got)
	}

	_, trailer, err := c.tryDelete(meta, at(0))
	if diff := cmp.Diff(wrongTrailers(meta, "0", "1"), exceptionTrailers(trailer)); diff != "" {
		t.Errorf("at an old revision: %v, %s", err, diff)
	}
	missing := "$$" + unused("missing")
	_, trailer, err = c.tryDelete(missing, anyRevision)
	if diff := cmp.Diff(wrongTrailers(missing, "-2", "-1"), exceptionTrailers(trailer)); diff != "" {
		t.Errorf("of what was never written: %v, %s", err, diff)
	}
}

// TestProtocol_TombstoneOfMetastream: a tombstone of a metastream is served. The stream that it described is without
// metadata from then on: it shows all its events, and is written as before.
func TestProtocol_TombstoneOfMetastream(t *testing.T) {
	c := protocolServer(t, Config{}).dial(t)
	stream := unused("described")
	meta := "$$" + stream
	c.append(stream, none, newEvents(3)...)
	c.append(meta, none, metadataEvent(`{"$maxCount":1}`))
	if got := c.read(ofStream(stream)); len(got) != 1 {
		t.Errorf("before: %v", got)
	}
	c.tombstone(meta, at(0))
	_, _, trailer, err := c.tryRead(ofStream(meta))
	checkDeleted(t, "read", meta, trailer, err)
	trailer, err = c.appendTrailer(meta, anyRevision, metadataEvent(`{}`))
	checkDeleted(t, "append", meta, trailer, err)
	if got := c.read(ofStream(stream)); len(got) != 3 {
		t.Errorf("the stream shows %v", got)
	}
	if revision, _ := c.append(stream, existing, newEvents(1)...); revision != 3 {
		t.Errorf("written as revision %d", revision)
	}
}
