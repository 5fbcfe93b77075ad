package node

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/gossip"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/serverfeatures"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/annals-project/annals/internal/runtest"
)

// secureServer is a server that asks for a password.
func secureServer(t *testing.T) endpoint {
	t.Helper()
	s := protocolServer(t, Config{})
	if !s.secure {
		t.Skip("a server without TLS serves every caller")
	}
	return s
}

// TestProtocol_NoCredentials: a caller without credentials is refused with the trailer by which clients recognize it.
// Discovery needs no credentials.
func TestProtocol_NoCredentials(t *testing.T) {
	s := secureServer(t)
	c := s.dialAs(t, "", "")
	stream := unused("denied")
	denied := metadata.Pairs("exception", "access-denied")
	for name, call := range map[string]func() (metadata.MD, error){
		"read a stream": func() (metadata.MD, error) {
			_, _, trailer, err := c.tryRead(ofStream(stream))
			return trailer, err
		},
		"read everything": func() (metadata.MD, error) {
			_, _, trailer, err := c.tryRead(limited(ofAll(), 1))
			return trailer, err
		},
		"subscribe": func() (metadata.MD, error) {
			_, _, trailer, err := c.tryRead(subscribed(ofAll()))
			return trailer, err
		},
		"append": func() (metadata.MD, error) {
			call, err := c.Append(runtest.Context(t))
			runtest.Must(t, err)
			for _, message := range []*streams.AppendReq{appendOptions(stream, none), newEvent("{}").message()} {
				if err := call.Send(message); err != nil && !errors.Is(err, io.EOF) { // the answer may have come first
					t.Fatal(err)
				}
			}
			_, err = call.CloseAndRecv()
			return call.Trailer(), err
		},
		"delete": func() (metadata.MD, error) {
			_, trailer, err := c.tryDelete(stream, anyRevision)
			return trailer, err
		},
		"tombstone": func() (metadata.MD, error) {
			_, trailer, err := c.tryTombstone(stream, anyRevision)
			return trailer, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			trailer, err := call()
			if status.Code(err) != codes.PermissionDenied || !strings.HasPrefix(message(err), "Access Denied") {
				t.Errorf("got %v", err)
			}
			if diff := cmp.Diff(denied.Get("exception"), trailer.Get("exception")); diff != "" {
				t.Error(diff)
			}
		})
	}
	if err := features(t, c.conn); err != nil {
		t.Errorf("features: %v", err)
	}
	if err := members(t, c.conn); err != nil {
		t.Errorf("members: %v", err)
	}
}

func features(t *testing.T, conn *grpc.ClientConn) error {
	_, err := serverfeatures.NewServerFeaturesClient(conn).GetSupportedMethods(runtest.Context(t), &shared.Empty{})
	return err
}

func members(t *testing.T, conn *grpc.ClientConn) error {
	_, err := gossip.NewGossipClient(conn).Read(runtest.Context(t), &shared.Empty{})
	return err
}

// TestProtocol_BatchWithoutCredentials: an append of a batch call is answered with AccessDenied in the detail.
func TestProtocol_BatchWithoutCredentials(t *testing.T) {
	s := secureServer(t)
	call, err := s.dialAs(t, "", "").BatchAppend(runtest.Context(t))
	runtest.Must(t, err)
	request := deniedBatch()
	runtest.Must(t, call.Send(request))
	answer, err := call.Recv()
	runtest.Must(t, err)
	details := status.FromProto(answer.GetError()).Details()
	if answer.GetError().GetCode() != int32(codes.PermissionDenied) || answer.GetError().GetMessage() != "Access Denied" ||
		len(details) != 1 || !proto.Equal(answer.GetCorrelationId(), request.GetCorrelationId()) ||
		!proto.Equal(answer.GetStreamIdentifier(), request.GetOptions().GetStreamIdentifier()) {
		t.Fatalf("answer %v", answer)
	}
	if _, is := details[0].(*shared.AccessDenied); !is {
		t.Errorf("detail %v", details[0])
	}
}

func deniedBatch() *streams.BatchAppendReq {
	return &streams.BatchAppendReq{
		CorrelationId: structuredID(uuid.New()), IsFinal: true,
		Options: &streams.BatchAppendReq_Options{
			StreamIdentifier:       nameOf(unused("denied")),
			ExpectedStreamPosition: &streams.BatchAppendReq_Options_Any{Any: &emptypb.Empty{}},
		},
	}
}

// While one batch call without credentials is read, another one ends with its status, and reads nothing.
func TestBatch_StrangersOneAtATime(t *testing.T) {
	n := startNode(t, Config{})
	c := n.Connection()
	s := endpoint{addr: c.Addr, secure: true, transport: credentials.NewClientTLSFromCert(c.RootCAs, "")}
	type result struct {
		call   int
		answer *streams.BatchAppendResp
		err    error
	}
	results := make(chan result, 2)
	var calls []streams.Streams_BatchAppendClient
	for i := range 2 {
		call, err := s.dialAs(t, "", "").BatchAppend(runtest.Context(t))
		runtest.Must(t, err)
		calls = append(calls, call)
		go func() {
			answer, err := call.Recv()
			results <- result{i, answer, err}
		}()
	}
	ended := <-results
	if status.Code(ended.err) != codes.PermissionDenied {
		t.Fatalf("%v, %v", ended.answer, ended.err)
	}
	runtest.Must(t, calls[1-ended.call].Send(deniedBatch()))
	if read := <-results; read.answer.GetError().GetCode() != int32(codes.PermissionDenied) {
		t.Errorf("%v, %v", read.answer, read.err)
	}
}

// TestProtocol_WrongPassword: every method refuses a wrong password, also those that need none.
func TestProtocol_WrongPassword(t *testing.T) {
	s := secureServer(t)
	stream := unused("unknown")
	for name, c := range map[string]client{
		"another password": s.dialAs(t, s.user, s.password+"x"),
		"another user":     s.dialAs(t, unused("nobody"), s.password),
		"no password":      s.dialAs(t, s.user, ""),
	} {
		for method, call := range map[string]func() error{
			"Read":   func() error { _, _, _, err := c.tryRead(ofStream(stream)); return err },
			"Append": func() error { _, err := c.tryAppend(runtest.Context(t), stream, none, newEvents(1)...); return err },
			"BatchAppend": func() error {
				call, err := c.BatchAppend(runtest.Context(t))
				if err == nil {
					_, err = call.Recv()
				}
				return err
			},
			"Delete":              func() error { _, _, err := c.tryDelete(stream, anyRevision); return err },
			"Tombstone":           func() error { _, _, err := c.tryTombstone(stream, anyRevision); return err },
			"GetSupportedMethods": func() error { return features(t, c.conn) },
			"Gossip":              func() error { return members(t, c.conn) },
		} {
			if err := call(); status.Code(err) != codes.Unauthenticated {
				t.Errorf("%s: %s: %v", name, method, err)
			}
		}
	}
	if _, found, _, err := s.dial(t).tryRead(ofStream(stream)); found || err != nil {
		t.Errorf("something was written: %v", err)
	}
}

// TestProtocol_Features: the methods of Streams are listed in lower case, with the features by which clients choose how
// to call them.
func TestProtocol_Features(t *testing.T) {
	got, err := serverfeatures.NewServerFeaturesClient(protocolServer(t, Config{}).dial(t).conn).
		GetSupportedMethods(context.Background(), &shared.Empty{})
	runtest.Must(t, err)
	listed := map[string][]string{}
	for _, m := range got.GetMethods() {
		if m.GetServiceName() == "event_store.client.streams.streams" {
			listed[m.GetMethodName()] = m.GetFeatures()
		}
	}
	want := map[string][]string{
		"append": nil, "read": {"position", "events"}, "delete": nil, "tombstone": nil, "batchappend": {"deadline_duration"},
	}
	if diff := cmp.Diff(want, listed); diff != "" {
		t.Error(diff)
	}
}
