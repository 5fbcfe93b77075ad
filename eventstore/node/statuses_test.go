package node

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/annals-project/annals/eventstore/node/storage"
	"github.com/annals-project/annals/eventstore/node/wire"
	"github.com/annals-project/annals/internal/runtest"
)

// Every refusal of a call has the code, the text and the trailers by which clients recognize it.
func TestStatuses_Trailers(t *testing.T) {
	c := dial(t, startNode(t, memoryConfig()))
	c.append("s", none, newEvents(3)...)
	for _, gone := range []string{"gone", "gone ü\n"} {
		c.append(gone, none, newEvents(1)...)
		c.tombstone(gone, anyRevision)
	}
	appended := func(stream string, expected storage.Expectation, e event, drop string) func() (metadata.MD, error) {
		return func() (metadata.MD, error) {
			call, err := c.Append(runtest.Context(t))
			if err != nil {
				return nil, err
			}
			msg := e.message()
			delete(msg.GetProposedMessage().Metadata, drop)
			if err := errors.Join(call.Send(appendOptions(stream, expected)), call.Send(msg)); err != nil {
				return nil, err
			}
			_, err = call.CloseAndRecv()
			return call.Trailer(), err
		}
	}
	read := func(o *readOptions) func() (metadata.MD, error) {
		return func() (metadata.MD, error) {
			_, _, trailer, err := c.tryRead(o)
			return trailer, err
		}
	}
	followed := func(o *readOptions) func() (metadata.MD, error) {
		return func() (metadata.MD, error) {
			call, err := c.Read(runtest.Context(t), readOf(subscribed(o)))
			for err == nil { // it may have been confirmed
				_, err = call.Recv()
			}
			return call.Trailer(), err
		}
	}
	deleted := func(stream string, expected storage.Expectation) func() (metadata.MD, error) {
		return func() (metadata.MD, error) {
			_, trailer, err := c.tryDelete(stream, expected)
			return trailer, err
		}
	}
	tombstoned := func(stream string, expected storage.Expectation) func() (metadata.MD, error) {
		return func() (metadata.MD, error) {
			_, trailer, err := c.tryTombstone(stream, expected)
			return trailer, err
		}
	}
	isGone := func(stream, header string) (codes.Code, string, metadata.MD) {
		return codes.FailedPrecondition, fmt.Sprintf("Event stream '%s' is deleted.", stream), metadata.Pairs("exception",
			"stream-deleted", "stream-name", header)
	}
	wrong := func(stream, expected, actual string) (codes.Code, string, metadata.MD) {
		return codes.FailedPrecondition,
			"Delete failed due to WrongExpectedVersion. Stream: " + stream + ", Expected version: " + expected + ", Actual version: " + actual,
			metadata.Pairs("exception", "wrong-expected-version", "stream-name", stream, "expected-version", expected,
				"actual-version", actual)
	}
	missing := func(property string) (codes.Code, string, metadata.MD) {
		return codes.InvalidArgument, "Required Metadata Property '" + property + "' is missing",
			metadata.Pairs("exception", "missing-required-metadata-property", "required-metadata-properties",
				"type,content-type")
	}
	type want func() (codes.Code, string, metadata.MD)
	gone := want(func() (codes.Code, string, metadata.MD) { return isGone("gone", "gone") })
	for _, tt := range []struct {
		name string
		call func() (metadata.MD, error)
		want want
	}{
		{"append to a tombstone", appended("gone", anyRevision, newEvent("{}"), ""), gone},
		{"read its metadata", read(ofStream("$$gone")), func() (codes.Code, string, metadata.MD) {
			return isGone("$$gone", "$$gone")
		}},
		{"read a tombstone", read(ofStream("gone")), gone},
		{"read it backwards", read(backwards(atEnd(ofStream("gone")))), gone},
		{"follow it", followed(ofStream("gone")), gone},
		{"follow it from its end", followed(atEnd(ofStream("gone"))), gone},
		{"delete a tombstone", deleted("gone", anyRevision), gone},
		{"tombstone a tombstone", tombstoned("gone", existing), gone},
		{"a name that is no header", read(ofStream("gone ü\n")), func() (codes.Code, string, metadata.MD) { return isGone("gone ü\n", "gone ??") }},
		{"delete at another revision", deleted("s", at(1)), func() (codes.Code, string, metadata.MD) { return wrong("s", "1", "2") }},
		{"delete as not there", deleted("s", none), func() (codes.Code, string, metadata.MD) { return wrong("s", "-1", "2") }},
		{"delete what is not there", deleted("new", existing), func() (codes.Code, string, metadata.MD) { return wrong("new", "-4", "-1") }},
		{"delete what never was", deleted("new", anyRevision), func() (codes.Code, string, metadata.MD) { return wrong("new", "-2", "-1") }},
		{"tombstone at another revision", tombstoned("s", at(7)), func() (codes.Code, string, metadata.MD) { return wrong("s", "7", "2") }},
		{"an event without a type", appended("s", anyRevision, newEvent("{}"), wire.KeyType), func() (codes.Code, string, metadata.MD) { return missing("type") }},
		{"an event without a content type", appended("s", anyRevision, newEvent("{}"), wire.KeyContentType), func() (codes.Code, string, metadata.MD) { return missing("content-type") }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			trailer, err := tt.call()
			code, text, trailers := tt.want()
			if status.Code(err) != code || message(err) != text {
				t.Errorf("got %v, want %v: %s", err, code, text)
			}
			if diff := cmp.Diff(trailers, exceptionTrailers(trailer)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// An append of a batch that was not decided has the code that Append would have ended with. The
// cause of a fault of the node itself is not sent.
func TestBatchAppend_Undecided(t *testing.T) {
	n := startNode(t, memoryConfig())
	for _, tt := range []struct {
		err    error
		code   codes.Code
		text   string
		detail any
	}{
		{storage.ErrClosing, codes.Unavailable, "Server Is Not Ready", &emptypb.Empty{}},
		{fmt.Errorf("wait: %w", context.DeadlineExceeded), codes.DeadlineExceeded, "Timeout", &shared.Timeout{}},
		{errFull(), codes.ResourceExhausted, errFull().Error(), &emptypb.Empty{}},
		{errStalled(), codes.Aborted, errStalled().Error(), &emptypb.Empty{}},
		{errors.New("a secret path"), codes.Internal, "the event store failed; see its log", &emptypb.Empty{}},
	} {
		got := n.statusOf(tt.err)
		if got.Code() != tt.code || got.Message() != tt.text {
			t.Errorf("%v: %v %q", tt.err, got.Code(), got.Message())
		}
		if d := got.Details(); len(d) != 1 || fmt.Sprintf("%T", d[0]) != fmt.Sprintf("%T", tt.detail) {
			t.Errorf("%v: details %v", tt.err, d)
		}
	}
}
