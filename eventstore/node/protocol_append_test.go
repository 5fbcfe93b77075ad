package node

import (
	"errors"
	"io"
	"math"
	"testing"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/annals-project/annals/internal/runtest"
)

// appendWith makes one append with options of any form.
func (c client) appendWith(o *streams.AppendReq, events ...event) (*streams.AppendResp, error) {
	call, err := c.Append(runtest.Context(c.t))
	if err != nil {
		return nil, err
	}
	for _, m := range append([]*streams.AppendReq{o}, messagesOf(events)...) {
		if err := call.Send(m); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
	}
	return call.CloseAndRecv()
}

func messagesOf(events []event) []*streams.AppendReq {
	var out []*streams.AppendReq
	for _, e := range events {
		out = append(out, e.message())
	}
	return out
}

// The requests below name the expected revision by its number, which may be any.

func appendAt(stream string, revision uint64) *streams.AppendReq {
	o := appendOptions(stream, none)
	o.GetOptions().ExpectedStreamRevision = &streams.AppendReq_Options_Revision{Revision: revision}
	return o
}

func partAt(stream string, revision uint64, events ...event) *streams.BatchAppendReq {
	p := part(stream, none, events...)
	p.Options.ExpectedStreamPosition = &streams.BatchAppendReq_Options_StreamPosition{StreamPosition: revision}
	return p
}

func (c client) deleteAt(stream string, revision uint64) (metadata.MD, error) {
	var trailer metadata.MD
	_, err := c.Delete(runtest.Context(c.t), &streams.DeleteReq{Options: &streams.DeleteReq_Options{
		StreamIdentifier:       nameOf(stream),
		ExpectedStreamRevision: &streams.DeleteReq_Options_Revision{Revision: revision},
	}}, grpc.Trailer(&trailer))
	return trailer, err
}

func (c client) tombstoneAt(stream string, revision uint64) (metadata.MD, error) {
	var trailer metadata.MD
	_, err := c.Tombstone(runtest.Context(c.t), &streams.TombstoneReq{Options: &streams.TombstoneReq_Options{
		StreamIdentifier:       nameOf(stream),
		ExpectedStreamRevision: &streams.TombstoneReq_Options_Revision{Revision: revision},
	}}, grpc.Trailer(&trailer))
	return trailer, err
}

// TestProtocol_RevisionOfNoStream: 2^64-1 as the expected revision means "no stream" in every call that has one.
func TestProtocol_RevisionOfNoStream(t *testing.T) {
	c := protocolServer(t, Config{}).dial(t)
	written := unused("written")
	c.append(written, none, newEvents(1)...)
	const noStream = math.MaxUint64

	t.Run("append to a new stream: written", func(t *testing.T) {
		resp, err := c.appendWith(appendAt(unused("new"), noStream), newEvents(2)...)
		if err != nil || resp.GetSuccess().GetCurrentRevision() != 1 {
			t.Errorf("%v, %v", resp, err)
		}
	})
	t.Run("append again: the first answer", func(t *testing.T) {
		stream, events := unused("again"), newEvents(2)
		first, err := c.appendWith(appendAt(stream, noStream), events...)
		runtest.Must(t, err)
		again, err := c.appendWith(appendAt(stream, noStream), events...)
		runtest.Must(t, err)
		if diff := cmp.Diff(first, again, protocmp.Transform()); diff != "" || first.GetSuccess() == nil {
			t.Errorf("%v, %s", first, diff)
		}
	})
	t.Run("append to a stream: conflict", func(t *testing.T) {
		resp, err := c.appendWith(appendAt(written, noStream), newEvents(1)...)
		if err != nil || resp.GetWrongExpectedVersion() == nil {
			t.Errorf("%v, %v", resp, err)
		}
	})

	b := c.batchAppend()
	t.Run("batch append to a new stream: written", func(t *testing.T) {
		if resp := b.one(partAt(unused("new"), noStream, newEvents(2)...)); resp.GetSuccess().GetCurrentRevision() != 1 {
			t.Errorf("%v", resp)
		}
	})
	t.Run("batch append to a stream: conflict with no stream", func(t *testing.T) {
		want := &shared.WrongExpectedVersion{
			ExpectedStreamPositionOption: &shared.WrongExpectedVersion_ExpectedNoStream{ExpectedNoStream: &emptypb.Empty{}},
			CurrentStreamRevisionOption:  &shared.WrongExpectedVersion_CurrentStreamRevision{CurrentStreamRevision: 0},
		}
		code, got := detail(t, b.one(partAt(written, noStream, newEvents(1)...)))
		if diff := cmp.Diff(proto.Message(want), got, protocmp.Transform()); diff != "" || code != codes.AlreadyExists {
			t.Errorf("%v, %s", code, diff)
		}
	})
	b.stop()

	for name, end := range map[string]func(string, uint64) (metadata.MD, error){
		"delete": c.deleteAt, "tombstone": c.tombstoneAt,
	} {
		t.Run(name+" of a stream: conflict with -1", func(t *testing.T) {
			trailer, err := end(written, noStream)
			if diff := cmp.Diff(wrongTrailers(written, "-1", "0"), exceptionTrailers(trailer)); diff != "" ||
				status.Code(err) != codes.FailedPrecondition {
				t.Errorf("%v, %s", err, diff)
			}
		})
	}
	t.Run("tombstone of a new stream: served", func(t *testing.T) {
		_, err := c.tombstoneAt(unused("new"), noStream)
		runtest.Must(t, err)
	})
	if got := c.read(ofStream(written)); len(got) != 1 {
		t.Errorf("after the conflicts the stream holds %d events", len(got))
	}
}

// TestProtocol_ImpossibleRevision: revisions between 2^63 and 2^64-2 fail the call, and are no conflict. The server's
// handler throws, which clients see as Unknown; the node names the mistake. A batch append is a bad request on both.
func TestProtocol_ImpossibleRevision(t *testing.T) {
	s := protocolServer(t, Config{})
	c := s.dial(t)
	thrown := codes.Unknown
	if s.own != nil {
		thrown = codes.InvalidArgument
	}
	stream := unused("written")
	c.append(stream, none, newEvents(1)...)
	b := c.batchAppend()
	for _, revision := range []uint64{1 << 63, math.MaxUint64 - 1} {
		for name, call := range map[string]func() error{
			"append": func() error {
				_, err := c.appendWith(appendAt(stream, revision), newEvents(1)...)
				return err
			},
			"delete":    func() error { _, err := c.deleteAt(stream, revision); return err },
			"tombstone": func() error { _, err := c.tombstoneAt(stream, revision); return err },
		} {
			if err := call(); status.Code(err) != thrown {
				t.Errorf("%s at %d: %v", name, revision, err)
			}
		}
		code, got := detail(t, b.one(partAt(stream, revision, newEvents(1)...)))
		if _, is := got.(*shared.BadRequest); !is || code != codes.InvalidArgument {
			t.Errorf("batch append at %d: %v, %v", revision, code, got)
		}
	}
	b.stop()
	if got := c.read(ofStream(stream)); len(got) != 1 {
		t.Errorf("the stream holds %d events", len(got))
	}
}

// TestProtocol_Conflict: the answer repeats the expectation as it was sent, in the fields of today and in those of
// 20.6.0, where 2^64-1 stands for "no stream".
func TestProtocol_Conflict(t *testing.T) {
	c := protocolServer(t, Config{}).dial(t)
	written, missing, known := unused("written"), unused("missing"), newEvent("{}")
	c.append(written, none, known, newEvent("{}"))
	empty := &shared.Empty{}
	type conflict = streams.AppendResp_WrongExpectedVersion
	at1 := func(w *conflict) *conflict { // of the stream that is written
		w.CurrentRevisionOption = &streams.AppendResp_WrongExpectedVersion_CurrentRevision{CurrentRevision: 1}
		w.CurrentRevisionOption_20_6_0 = &streams.AppendResp_WrongExpectedVersion_CurrentRevision_20_6_0{
			CurrentRevision_20_6_0: 1,
		}
		return w
	}
	atNone := func(w *conflict) *conflict {
		w.CurrentRevisionOption = &streams.AppendResp_WrongExpectedVersion_CurrentNoStream{CurrentNoStream: empty}
		w.CurrentRevisionOption_20_6_0 = &streams.AppendResp_WrongExpectedVersion_NoStream_20_6_0{NoStream_20_6_0: empty}
		return w
	}
	number := func(revision uint64) *conflict {
		return &conflict{
			ExpectedRevisionOption: &streams.AppendResp_WrongExpectedVersion_ExpectedRevision{ExpectedRevision: revision},
			ExpectedRevisionOption_20_6_0: &streams.AppendResp_WrongExpectedVersion_ExpectedRevision_20_6_0{
				ExpectedRevision_20_6_0: revision,
			},
		}
	}
	noStream := number(math.MaxUint64)
	noStream.ExpectedRevisionOption = &streams.AppendResp_WrongExpectedVersion_ExpectedNoStream{ExpectedNoStream: empty}

	for _, tt := range []struct {
		name    string
		options *streams.AppendReq
		events  []event
		want    *conflict
	}{
		{"a revision", appendAt(written, 7), newEvents(1), at1(number(7))},
		{"a revision of a stream that is not there", appendAt(missing, 0), newEvents(1), atNone(number(0))},
		{"the greatest revision", appendAt(written, math.MaxInt64), newEvents(1), at1(number(math.MaxInt64))},
		{"no stream by its number", appendAt(written, math.MaxUint64), newEvents(1), at1(number(math.MaxUint64))},
		{"no stream", appendOptions(written, none), newEvents(1), at1(noStream)},
		{"a stream that exists", appendOptions(missing, existing), newEvents(1), atNone(&conflict{
			ExpectedRevisionOption: &streams.AppendResp_WrongExpectedVersion_ExpectedStreamExists{
				ExpectedStreamExists: empty,
			},
			ExpectedRevisionOption_20_6_0: &streams.AppendResp_WrongExpectedVersion_StreamExists_20_6_0{
				StreamExists_20_6_0: empty,
			},
		})},
		{"any, a known id before a new one", appendOptions(written, anyRevision), []event{known, newEvent("{}")}, at1(&conflict{
			ExpectedRevisionOption:        &streams.AppendResp_WrongExpectedVersion_ExpectedAny{ExpectedAny: empty},
			ExpectedRevisionOption_20_6_0: &streams.AppendResp_WrongExpectedVersion_Any_20_6_0{Any_20_6_0: empty},
		})},
	} {
		t.Run(tt.name, func(t *testing.T) {
			resp, err := c.appendWith(tt.options, tt.events...)
			runtest.Must(t, err)
			if diff := cmp.Diff(tt.want, resp.GetWrongExpectedVersion(), protocmp.Transform()); diff != "" {
				t.Error(diff)
			}
		})
	}
	if got := c.read(ofStream(written)); len(got) != 2 {
		t.Errorf("the stream holds %d events", len(got))
	}
}
