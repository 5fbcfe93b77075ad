package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
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

// TestProtocol_FilterWithoutCheckpointInterval: a filtered read of the whole log is served with a checkpoint interval
// of 0. A subscription is refused: the real server ends the call with Unknown, the node with InvalidArgument.
func TestProtocol_FilterWithoutCheckpointInterval(t *testing.T) {
	s := protocolServer(t, Config{})
	c := s.dial(t)
	stream := unused("filtered")
	c.append(stream, none, newEvents(3)...)
	uncheckpointed := func() *filterOptions {
		f := every(byStream(expression("", stream)), 500)
		f.CheckpointIntervalMultiplier = 0
		return f
	}
	for _, tt := range []struct {
		name string
		read *readOptions
		want []uint64
	}{
		{"forwards", filtered(ofAll(), uncheckpointed()), []uint64{0, 1, 2}},
		{"backwards", filtered(backwards(atEnd(ofAll())), uncheckpointed()), []uint64{2, 1, 0}},
		{"limited", limited(filtered(ofAll(), uncheckpointed()), 2), []uint64{0, 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			same(t, "revisions", tt.want, revisions(c.read(tt.read)))
		})
	}
	call, err := c.Read(runtest.Context(t), readOf(subscribed(filtered(ofAll(), uncheckpointed()))))
	for err == nil {
		_, err = call.Recv()
	}
	want := codes.Unknown
	if s.own != nil {
		want = codes.InvalidArgument
	}
	wantCode(t, "subscription", err, want)
}

// compatible requests the answers of a version of the protocol: from 1 on, where a stream begins and ends.
func compatible(o *readOptions, version uint32) *readOptions {
	o.ControlOption = &streams.ReadReq_Options_ControlOption{Compatibility: version}
	return o
}

// contents lists what a read brought, in short: the revision of an event, and the positions.
func (c client) contents(o *readOptions) (all []string) {
	c.t.Helper()
	call, err := c.Read(runtest.Context(c.t), readOf(o))
	for err == nil {
		var resp *streams.ReadResp
		if resp, err = call.Recv(); err != nil {
			break
		}
		switch content := resp.GetContent().(type) {
		case *streams.ReadResp_Event:
			all = append(all, fmt.Sprint(content.Event.GetEvent().GetStreamRevision()))
		case *streams.ReadResp_FirstStreamPosition:
			all = append(all, fmt.Sprint("first ", content.FirstStreamPosition))
		case *streams.ReadResp_LastStreamPosition:
			all = append(all, fmt.Sprint("last ", content.LastStreamPosition))
		default:
			all = append(all, fmt.Sprintf("%T", content))
		}
	}
	if !errors.Is(err, io.EOF) {
		c.t.Fatal(err)
	}
	return all
}

// TestProtocol_StreamPositions: a client that requests compatibility 1 receives the last revision of a stream after its
// events. Forwards, it also receives where the events begin if the first page of the read held none: a server reads
// pages of 32 events, or of the count if that is smaller.
func TestProtocol_StreamPositions(t *testing.T) {
	c := protocolServer(t, Config{}).dial(t)
	stream := func(metadata string, events int) string {
		name := unused("positions")
		c.append(name, none, newEvents(events)...)
		if metadata != "" {
			c.append("$$"+name, none, metadataEvent(metadata))
		}
		return name
	}
	whole, cut, far := stream("", 5), stream(`{"$tb":3}`, 5), stream(`{"$tb":40}`, 42)
	newest, hidden := stream(`{"$maxCount":2}`, 5), stream(`{"$tb":5}`, 5)
	gone := stream("", 2)
	c.delete(gone, anyRevision)
	notFound := "*streams.ReadResp_StreamNotFound_"
	for _, tt := range []struct {
		name string
		read *readOptions
		want []string
	}{
		{"all", ofStream(whole), []string{"0", "1", "2", "3", "4", "last 4"}},
		{"limited", limited(ofStream(whole), 2), []string{"0", "1", "last 4"}},
		{"the last one", from(ofStream(whole), 4), []string{"4", "last 4"}},
		{"next to the end", from(ofStream(whole), 5), []string{"last 4"}},
		{"after the end", from(ofStream(whole), 9), []string{"first 5", "last 4"}},
		{"far after the end", from(ofStream(whole), 1000), []string{"first 5", "last 4"}},
		{"backwards", backwards(atEnd(ofStream(whole))), []string{"4", "3", "2", "1", "0", "last 4"}},
		{"backwards, limited", limited(backwards(from(ofStream(whole), 2)), 2), []string{"2", "1", "last 4"}},
		{"backwards from the start", backwards(ofStream(whole)), []string{"0", "last 4"}},
		{"backwards from after the end", limited(backwards(from(ofStream(whole), 5)), 2), []string{"4", "3", "last 4"}},
		{"truncated in the first page", ofStream(cut), []string{"3", "4", "last 4"}},
		{"truncated, the count is the page", limited(ofStream(cut), 3), []string{"first 3", "3", "4", "last 4"}},
		{"truncated, with one event in the page", limited(ofStream(cut), 4), []string{"3", "4", "last 4"}},
		{"truncated, from the first event", limited(from(ofStream(cut), 3), 1), []string{"3", "last 4"}},
		{"truncated after the first page", ofStream(far), []string{"first 40", "40", "41", "last 41"}},
		{"truncated, from a page before", from(ofStream(far), 8), []string{"first 40", "40", "41", "last 41"}},
		{"truncated, within a page", from(ofStream(far), 9), []string{"40", "41", "last 41"}},
		{"truncated, backwards", backwards(atEnd(ofStream(far))), []string{"41", "40", "last 41"}},
		{"the newest two", ofStream(newest), []string{"3", "4", "last 4"}},
		{"the newest two, limited", limited(ofStream(newest), 1), []string{"first 3", "3", "last 4"}},
		{"all truncated", ofStream(hidden), []string{"first 5", "last 4"}},
		{"all truncated, limited", limited(ofStream(hidden), 1), []string{"first 5", "last 4"}},
		{"all truncated, backwards", backwards(atEnd(ofStream(hidden))), []string{"last 4"}},
		{"missing", ofStream(unused("missing")), []string{notFound}},
		{"deleted", ofStream(gone), []string{notFound}},
		{"the metadata", ofStream("$$" + cut), []string{"0", "last 0"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			same(t, "contents", tt.want, c.contents(compatible(tt.read, 1)))
			for _, content := range c.contents(compatible(tt.read, 0)) { // as clients who would not know the message
				if content[0] == 'f' || content[0] == 'l' {
					t.Errorf("without compatibility: %s", content)
				}
			}
		})
	}
	whileAll := limited(filtered(ofAll(), every(byStream(expression("", whole)), 500)), 1)
	same(t, "the whole log", []string{"0"}, c.contents(compatible(whileAll, 1)))
}

// TestProtocol_RefusedReads: a stream cannot be read without a count, and forwards not from its end. The real server
// ends such a call with Unknown and "Unexpected ReadStreamResult: Error", the node with InvalidArgument and the reason;
// so too a revision or a position that no event can have, at which the handler of the real server throws.
func TestProtocol_RefusedReads(t *testing.T) {
	s := protocolServer(t, Config{})
	c := s.dial(t)
	stream := unused("refused")
	c.append(stream, none, newEvents(2)...)
	apart := ofAll()
	apart.GetAll().AllOption = &streams.ReadReq_Options_AllOptions_Position{
		Position: &streams.ReadReq_Options_Position{CommitPosition: 1, PreparePosition: 2},
	}
	want := codes.Unknown
	if s.own != nil {
		want = codes.InvalidArgument
	}
	for name, o := range map[string]*readOptions{
		"no count":                     limited(ofStream(stream), 0),
		"no count, backwards":          limited(backwards(atEnd(ofStream(stream))), 0),
		"no count, a missing stream":   limited(ofStream(unused("missing")), 0),
		"from the end":                 atEnd(ofStream(stream)),
		"from the revision of the end": from(ofStream(stream), math.MaxUint64),
		"an impossible revision":       from(ofStream(stream), 1<<63),
		"the greatest impossible one":  backwards(from(ofStream(stream), math.MaxUint64-1)),
		"a subscription from it":       subscribed(from(ofStream(stream), math.MaxUint64-1)),
		"prepared after the commit":    limited(apart, 1),
	} {
		if events, _, _, err := c.tryRead(o); status.Code(err) != want || len(events) > 0 {
			t.Errorf("%s: %d events, %v", name, len(events), err)
		}
	}
	if diff := cmp.Diff([]uint64{1, 0}, revisions(c.read(backwards(from(ofStream(stream), math.MaxUint64))))); diff != "" {
		t.Errorf("backwards from the revision of the end: %s", diff)
	}
}

// TestProtocol_SubscriptionFromEnd: the revision 2^64-1 is the end of a stream for a subscription too.
func TestProtocol_SubscriptionFromEnd(t *testing.T) {
	c := protocolServer(t, Config{}).dial(t)
	stream := unused("followed")
	c.append(stream, none, newEvents(2)...)
	s := c.subscribe(from(ofStream(stream), math.MaxUint64))
	s.caughtUp()
	c.append(stream, at(1), newEvents(1)...)
	if got := s.event(); got.revision != 2 {
		t.Errorf("received revision %d", got.revision)
	}
}

// TestProtocol_WholeLogFromAfterEnd: a read of the whole log forwards from its end or from after it is empty.
func TestProtocol_WholeLogFromAfterEnd(t *testing.T) {
	c := protocolServer(t, Config{}).dial(t)
	c.append(unused("newest"), none, newEvents(1)...)
	for name, o := range map[string]*readOptions{
		"the end": atEnd(ofAll()), "after it": from(ofAll(), math.MaxInt64), "the greatest": from(ofAll(), math.MaxUint64),
	} {
		if got := c.read(limited(o, 5)); len(got) != 0 {
			t.Errorf("%s: %v", name, got)
		}
	}
}

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
	c.wantCount(ofStream(stream), 2)
	if revision, _ := c.append(meta, at(0), metadataEvent(`{"$maxCount":1}`)); revision != 1 {
		t.Errorf("metadata after the delete has revision %d", revision)
	}
	c.wantCount(ofStream(stream), 1)

	_, trailer, err := c.tryDelete(meta, at(0))
	same(t, fmt.Sprint("at an old revision: ", err), wrongTrailers(meta, "0", "1"), exceptionTrailers(trailer))
	missing := "$$" + unused("missing")
	_, trailer, err = c.tryDelete(missing, anyRevision)
	same(t, fmt.Sprint("of what was never written: ", err), wrongTrailers(missing, "-2", "-1"), exceptionTrailers(trailer))
}

// TestProtocol_TombstoneOfMetastream: a tombstone of a metastream is served. The stream that it described is without
// metadata from then on: it shows all its events, and is written as before.
func TestProtocol_TombstoneOfMetastream(t *testing.T) {
	c := protocolServer(t, Config{}).dial(t)
	stream := unused("described")
	meta := "$$" + stream
	c.append(stream, none, newEvents(3)...)
	c.append(meta, none, metadataEvent(`{"$maxCount":1}`))
	c.wantCount(ofStream(stream), 1)
	c.tombstone(meta, at(0))
	_, _, trailer, err := c.tryRead(ofStream(meta))
	checkDeleted(t, "read", meta, trailer, err)
	trailer, err = c.appendTrailer(meta, anyRevision, metadataEvent(`{}`))
	checkDeleted(t, "append", meta, trailer, err)
	c.wantCount(ofStream(stream), 3)
	if revision, _ := c.append(stream, existing, newEvents(1)...); revision != 3 {
		t.Errorf("written as revision %d", revision)
	}
}

// hidingMeta is metadata of a client that hides a stream, with keys of all kinds. %s is the value of $tb.
const hidingMeta = `{"first":{"b":1,"a":[null,true]},"$maxCount":3,"$tb":%s,"$acl":{"$r":["$all"]},` +
	`"big":123456789012345678901234567890,"price":1.5}`

// hidden is the value of $tb that hides a stream.
const hidden = "9223372036854775807"

func metaWithCut(cut any) string {
	return strings.Replace(hidingMeta, "%s", fmt.Sprint(cut), 1)
}

// checkMeta compares the metadata of a stream with JSON, and returns its event.
func (c client) checkMeta(t *testing.T, stream, want string) recordedEvent {
	t.Helper()
	got := c.read(ofStream("$$" + stream))
	if len(got) != 1 {
		t.Fatalf("the metadata is %v", got)
	}
	same(t, "metadata "+got[0].data, fieldsOf(t, want), fieldsOf(t, got[0].data))
	return got[0]
}

// fieldsOf decodes JSON with its numbers as they are written.
func fieldsOf(t *testing.T, text string) (fields map[string]any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	runtest.Must(t, d.Decode(&fields))
	return fields
}

// TestProtocol_WrittenWhileHidden: an append to a stream that its metadata hides keeps that metadata and sets $tb to
// the first revision of the append. In the log the metadata follows the events, and the answer is about the events.
func TestProtocol_WrittenWhileHidden(t *testing.T) {
	c := protocolServer(t, Config{}).dial(t)
	b := c.batchAppend()
	appended := func(stream string, expected storage.Expectation, events ...event) (uint64, uint64) {
		return c.append(stream, expected, events...)
	}
	batched := func(stream string, expected storage.Expectation, events ...event) (uint64, uint64) {
		s := b.one(part(stream, expected, events...)).GetSuccess()
		return s.GetCurrentRevision(), s.GetPosition().GetCommitPosition()
	}
	for _, tt := range []struct {
		name     string
		expected storage.Expectation
		send     func(string, storage.Expectation, ...event) (uint64, uint64)
	}{
		{"append at any revision", anyRevision, appended},
		{"append to no stream", none, appended},
		{"append at the last revision", at(1), appended},
		{"batch append at any revision", anyRevision, batched},
	} {
		t.Run(tt.name, func(t *testing.T) {
			stream, events := unused("hidden"), newEvents(2)
			c.append(stream, none, newEvents(2)...)
			c.append("$$"+stream, none, metadataEvent(metaWithCut(hidden)))
			if _, found, _, err := c.tryRead(ofStream(stream)); found || err != nil {
				t.Errorf("before: found %v, %v", found, err)
			}
			revision, position := tt.send(stream, tt.expected, events...)
			want := []recordedEvent{
				{stream: stream, revision: 2, id: events[0].id}, {stream: stream, revision: 3, id: events[1].id},
			}
			got := c.read(ofStream(stream))
			same(t, "events", want, got, places)
			meta := c.checkMeta(t, stream, metaWithCut(2))
			if revision != 3 || position != last(got).position || meta.position <= position || meta.revision != 1 {
				t.Errorf("answer: revision %d at %d, the metadata: revision %d at %d", revision, position, meta.revision,
					meta.position)
			}
		})
	}
	b.stop()
}

// TestProtocol_HiddenMustExist: an append that expects the stream to exist is refused while its metadata hides it.
func TestProtocol_HiddenMustExist(t *testing.T) {
	c := protocolServer(t, Config{}).dial(t)
	stream := unused("hidden")
	c.append(stream, none, newEvents(1)...)
	c.append("$$"+stream, none, metadataEvent(metaWithCut(hidden)))
	if resp, err := c.tryAppend(runtest.Context(t), stream, existing, newEvents(1)...); status.Code(err) !=
		codes.FailedPrecondition {
		t.Errorf("%v, %v", resp, err)
	}
	c.checkMeta(t, stream, metaWithCut(hidden))
}

// TestProtocol_DeleteForgetsMetadata: a delete replaces the metadata by $tb alone; so does the next append.
func TestProtocol_DeleteForgetsMetadata(t *testing.T) {
	c := protocolServer(t, Config{}).dial(t)
	stream := unused("deleted")
	c.append(stream, none, newEvents(2)...)
	c.append("$$"+stream, none, metadataEvent(metaWithCut(1)))
	c.delete(stream, anyRevision)
	c.checkMeta(t, stream, `{"$tb":`+hidden+`}`)
	_, position := c.append(stream, anyRevision, newEvents(3)...)
	if meta := c.checkMeta(t, stream, `{"$tb":2}`); meta.position <= position {
		t.Errorf("the metadata is at %d, the events end at %d", meta.position, position)
	}
	if got := c.read(ofStream(stream)); len(got) != 3 || got[0].revision != 2 {
		t.Errorf("the stream shows %v", got)
	}
}

// TestProtocol_HiddenGetsMetadata: metadata that a client writes to a deleted stream shows the stream again, without
// its old events; its content stays, even if it hides the stream itself.
func TestProtocol_HiddenGetsMetadata(t *testing.T) {
	c := protocolServer(t, Config{}).dial(t)
	for _, cut := range []string{"0", hidden} {
		stream := unused("deleted")
		c.append(stream, none, newEvents(2)...)
		c.delete(stream, anyRevision)
		if revision, _ := c.append("$$"+stream, anyRevision, metadataEvent(metaWithCut(cut))); revision != 1 {
			t.Errorf("answered revision %d, want that of the client's event", revision)
		}
		if meta := c.checkMeta(t, stream, metaWithCut(2)); meta.revision != 2 {
			t.Errorf("the newest metadata has revision %d", meta.revision)
		}
		if events, found, _, err := c.tryRead(ofStream(stream)); !found || len(events) != 0 || err != nil {
			t.Errorf("the stream: %v, found %v, %v", events, found, err)
		}
	}
}
