package node

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/annals-project/annals/eventstore/node/storage"
	"github.com/annals-project/annals/internal/runtest"
)

// The tests named TestProtocol state what a genuine EventStoreDB 24.2.0 answers to a request. Each runs against a node
// of its own, or against the server that ANNALS_TEST_ESDB names by a connection string: of a cluster, its leader. They
// name streams by unused, since that server holds the streams of earlier runs.

// endpoint is a server of the protocol, and its administrator.
type endpoint struct {
	addr           string
	user, password string
	transport      credentials.TransportCredentials
	// secure is whether the server uses TLS and asks for a password. tls is then how HTTP clients trust it.
	secure bool
	tls    *tls.Config
	// own is nil if the server is not a node of the test.
	own *Node
}

// protocolServer returns the server that a test named TestProtocol asks. The configuration is that of the node; a
// named server has its own.
func protocolServer(t *testing.T, cfg Config) endpoint {
	t.Helper()
	if text := os.Getenv("ANNALS_TEST_ESDB"); text != "" {
		return namedServer(t, text)
	}
	n := startNode(t, cfg)
	c := n.Connection()
	s := endpoint{addr: c.Addr, user: c.Username, password: c.Password, transport: insecure.NewCredentials(), own: n}
	if c.RootCAs != nil {
		s.secure, s.tls = true, &tls.Config{RootCAs: c.RootCAs, MinVersion: tls.VersionTLS12}
		s.transport = credentials.NewTLS(s.tls)
	}
	return s
}

func namedServer(t *testing.T, text string) endpoint {
	t.Helper()
	cfg, err := esdb.ParseConnectionString(text)
	runtest.Must(t, err)
	s := endpoint{
		addr: cfg.Address, user: cfg.Username, password: cfg.Password, transport: insecure.NewCredentials(),
		secure: !cfg.DisableTLS,
	}
	if s.addr == "" && len(cfg.GossipSeeds) > 0 {
		s.addr = cfg.GossipSeeds[0].String()
	}
	s.addr = strings.TrimPrefix(strings.TrimPrefix(s.addr, "https://"), "http://")
	if _, _, err := net.SplitHostPort(s.addr); err != nil {
		t.Fatalf("ANNALS_TEST_ESDB: %v", err)
	}
	if s.secure {
		s.tls = &tls.Config{
			RootCAs: cfg.RootCAs, MinVersion: tls.VersionTLS12,
			InsecureSkipVerify: cfg.SkipCertificateVerification, //nolint:gosec // as the connection string asks
		}
		s.transport = credentials.NewTLS(s.tls)
	}
	return s
}

// dialAs connects as a user; without credentials if user is empty.
func (s endpoint) dialAs(t *testing.T, user, password string) client {
	t.Helper()
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(s.transport), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
	}
	if s.secure && user != "" {
		options = append(options, grpc.WithPerRPCCredentials(basic{user, password}))
	}
	conn, err := grpc.NewClient(s.addr, options...)
	runtest.Must(t, err)
	closeAtEnd(t, conn)
	return client{t: t, StreamsClient: streams.NewStreamsClient(conn), conn: conn}
}

// dial connects as the administrator.
func (s endpoint) dial(t *testing.T) client { t.Helper(); return s.dialAs(t, s.user, s.password) }

// unused returns the name of a stream that no run has used.
func unused(name string) string { return name + "-" + uuid.NewString() }

// TestProtocol_MissingStream: a read of a stream that is not there succeeds, with one message that reports it.
func TestProtocol_MissingStream(t *testing.T) {
	c := protocolServer(t, Config{}).dial(t)
	if _, found, _, err := c.tryRead(ofStream(unused("missing"))); found || err != nil {
		t.Errorf("found %v, %v", found, err)
	}
}

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
	c.wantCount(ofStream(written), 1)
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
			wantCode(t, fmt.Sprintf("%s at %d", name, revision), call(), thrown)
		}
		code, got := detail(t, b.one(partAt(stream, revision, newEvents(1)...)))
		if _, is := got.(*shared.BadRequest); !is || code != codes.InvalidArgument {
			t.Errorf("batch append at %d: %v, %v", revision, code, got)
		}
	}
	b.stop()
	c.wantCount(ofStream(stream), 1)
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
			same(t, "answer", tt.want, resp.GetWrongExpectedVersion(), protocmp.Transform())
		})
	}
	c.wantCount(ofStream(written), 2)
}

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
	same(t, "again to the first stream", inFirst, send(first), cmp.AllowUnexported(place{}))
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
