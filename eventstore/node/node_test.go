package node

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/gossip"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/persistent"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/serverfeatures"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/annals-project/annals/eventstore/node/storage"
	"github.com/annals-project/annals/eventstore/node/wire"
	"github.com/annals-project/annals/internal/runtest"
)

func startNode(t runtest.T, cfg Config) *Node {
	t.Helper()
	if cfg.FS == nil && cfg.Dir == "" {
		cfg.FS = vfs.NewMem()
	}
	if cfg.Dir == "" {
		cfg.Dir = "log"
	}
	if cfg.Logger == nil {
		cfg.Logger = runtest.Logger(t)
	}
	n, err := Start(t.Context(), cfg)
	runtest.Must(t, err)
	closeAtEnd(t, n)
	return n
}

func closeAtEnd(t runtest.T, c io.Closer) {
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// client is a raw client of the protocol.
type client struct {
	t runtest.T
	streams.StreamsClient
	conn *grpc.ClientConn
}

func dial(t runtest.T, n *Node) client {
	t.Helper()
	c := n.Connection()
	conn, err := grpc.NewClient(c.Addr,
		grpc.WithTransportCredentials(credentials.NewClientTLSFromCert(c.RootCAs, "")),
		grpc.WithPerRPCCredentials(basic{c.Username, c.Password}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)))
	runtest.Must(t, err)
	closeAtEnd(t, conn)
	return client{t: t, StreamsClient: streams.NewStreamsClient(conn), conn: conn}
}

// basic are the credentials of one user.
type basic struct{ user, password string }

func (b basic) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{
		"authorization": "Basic " + base64.StdEncoding.EncodeToString([]byte(b.user+":"+b.password)),
	}, nil
}
func (basic) RequireTransportSecurity() bool { return true }

// event is an event of a test; its id derives from nothing, so two are never equal.
type event struct {
	id         uuid.UUID
	typ        string
	data, meta string
	raw        bool
}

func newEvent(data string) event { return event{id: uuid.New(), typ: "tested", data: data} }

func newEvents(n int) []event {
	out := make([]event, n)
	for i := range out {
		out[i] = newEvent(`{"n":` + uuid.NewString()[:1] + `}`)
	}
	return out
}

func (e event) message() *streams.AppendReq {
	contentType := wire.ContentTypeJSON
	if e.raw {
		contentType = wire.ContentTypeRaw
	}
	return &streams.AppendReq{
		Content: &streams.AppendReq_ProposedMessage_{ProposedMessage: &streams.AppendReq_ProposedMessage{
			Id: structuredID(e.id), Data: []byte(e.data), CustomMetadata: []byte(e.meta),
			Metadata: map[string]string{wire.KeyType: e.typ, wire.KeyContentType: contentType},
		}},
	}
}

func appendOptions(stream string, expected storage.Expectation) *streams.AppendReq {
	o := &streams.AppendReq_Options{StreamIdentifier: &shared.StreamIdentifier{StreamName: []byte(stream)}}
	switch {
	case expected.Kind == storage.ExpectAny:
		o.ExpectedStreamRevision = &streams.AppendReq_Options_Any{Any: &shared.Empty{}}
	case expected.Kind == storage.ExpectExists:
		o.ExpectedStreamRevision = &streams.AppendReq_Options_StreamExists{StreamExists: &shared.Empty{}}
	case expected.Revision < 0:
		o.ExpectedStreamRevision = &streams.AppendReq_Options_NoStream{NoStream: &shared.Empty{}}
	default:
		o.ExpectedStreamRevision = &streams.AppendReq_Options_Revision{Revision: uint64(expected.Revision)}
	}
	return &streams.AppendReq{Content: &streams.AppendReq_Options_{Options: o}}
}

var (
	anyRevision = storage.Expectation{Kind: storage.ExpectAny}
	existing    = storage.Expectation{Kind: storage.ExpectExists}
	none        = storage.Expectation{Revision: storage.NoStream}
)

func at(revision int64) storage.Expectation { return storage.Expectation{Revision: revision} }

// tryAppend makes one append as clients do.
func (c client) tryAppend(
	ctx context.Context, stream string, expected storage.Expectation, events ...event,
) (*streams.AppendResp, error) {
	call, err := c.Append(ctx)
	if err != nil {
		return nil, err
	}
	if err := call.Send(appendOptions(stream, expected)); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	for _, e := range events {
		if err := call.Send(e.message()); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
	}
	return call.CloseAndRecv()
}

// append makes an append that must succeed, and returns revision and position of its last event.
func (c client) append(stream string, expected storage.Expectation, events ...event) (revision, position uint64) {
	c.t.Helper()
	resp, err := c.tryAppend(runtest.Context(c.t), stream, expected, events...)
	runtest.Must(c.t, err)
	success := resp.GetSuccess()
	if success == nil {
		c.t.Fatalf("append to %s: %v", stream, resp)
	}
	return success.GetCurrentRevision(), success.GetPosition().GetCommitPosition()
}

// recordedEvent is an event as a reader sees it.
type recordedEvent struct {
	stream     string
	revision   uint64
	position   uint64
	id         uuid.UUID
	typ        string
	data, meta string
}

func recordedOf(t runtest.T, resp *streams.ReadResp) recordedEvent {
	t.Helper()
	e := resp.GetEvent().GetEvent()
	if e == nil {
		t.Fatalf("not an event: %v", resp)
	}
	id, err := idOf(e.GetId())
	runtest.Must(t, err)
	if e.GetMetadata()[wire.KeyCreated] == "" || e.GetMetadata()[wire.KeyContentType] == "" ||
		e.GetMetadata()[wire.KeyType] == "" {
		t.Fatalf("system metadata is not whole: %v", e.GetMetadata())
	}
	if p := resp.GetEvent().GetCommitPosition(); p == 0 || p != e.GetCommitPosition() || p != e.GetPreparePosition() {
		t.Fatalf("positions differ: %d, %d, %d", p, e.GetCommitPosition(), e.GetPreparePosition())
	}
	return recordedEvent{
		stream: string(
			e.GetStreamIdentifier().GetStreamName(),
		), revision: e.GetStreamRevision(), position: e.GetCommitPosition(),
		id: id, typ: e.GetMetadata()[wire.KeyType], data: string(e.GetData()), meta: string(e.GetCustomMetadata()),
	}
}

// readRequest is a read under construction.
func readRequest() *streams.ReadReq_Options {
	return &streams.ReadReq_Options{
		UuidOption: &streams.ReadReq_Options_UUIDOption{
			Content: &streams.ReadReq_Options_UUIDOption_Structured{Structured: &shared.Empty{}},
		},
		FilterOption: &streams.ReadReq_Options_NoFilter{NoFilter: &shared.Empty{}},
		CountOption:  &streams.ReadReq_Options_Count{Count: 1 << 30},
	}
}

func ofStream(stream string) *streams.ReadReq_Options {
	o := readRequest()
	o.StreamOption = &streams.ReadReq_Options_Stream{Stream: &streams.ReadReq_Options_StreamOptions{
		StreamIdentifier: &shared.StreamIdentifier{StreamName: []byte(stream)},
		RevisionOption:   &streams.ReadReq_Options_StreamOptions_Start{Start: &shared.Empty{}},
	}}
	return o
}

func ofAll() *streams.ReadReq_Options {
	o := readRequest()
	o.StreamOption = &streams.ReadReq_Options_All{All: &streams.ReadReq_Options_AllOptions{
		AllOption: &streams.ReadReq_Options_AllOptions_Start{Start: &shared.Empty{}},
	}}
	return o
}

// tryRead reads to the end of an answer; found is false where the stream was not there.
func (c client) tryRead(
	o *streams.ReadReq_Options,
) (events []recordedEvent, found bool, trailer metadata.MD, err error) {
	call, err := c.Read(runtest.Context(c.t), &streams.ReadReq{Options: o})
	if err != nil {
		return nil, false, nil, err
	}
	found = true
	for {
		resp, err := call.Recv()
		if errors.Is(err, io.EOF) {
			return events, found, call.Trailer(), nil
		}
		if err != nil {
			return events, found, call.Trailer(), err
		}
		if resp.GetStreamNotFound() != nil {
			found = false
			continue
		}
		events = append(events, recordedOf(c.t, resp))
	}
}

// read reads what must be there.
func (c client) read(o *streams.ReadReq_Options) []recordedEvent {
	c.t.Helper()
	events, found, _, err := c.tryRead(o)
	if err != nil || !found {
		c.t.Fatalf("read: found %v, %v", found, err)
	}
	return events
}

// message is the text of a status.
func message(err error) string { return status.Convert(err).Message() }

func readOf(o *streams.ReadReq_Options) *streams.ReadReq { return &streams.ReadReq{Options: o} }

func backwards(o *streams.ReadReq_Options) *streams.ReadReq_Options {
	o.ReadDirection = streams.ReadReq_Options_Backwards
	return o
}

func limited(o *streams.ReadReq_Options, count uint64) *streams.ReadReq_Options {
	o.CountOption = &streams.ReadReq_Options_Count{Count: count}
	return o
}

func subscribed(o *streams.ReadReq_Options) *streams.ReadReq_Options {
	o.CountOption = &streams.ReadReq_Options_Subscription{Subscription: &streams.ReadReq_Options_SubscriptionOptions{}}
	return o
}

// atEnd has a read begin after the last event.
func atEnd(o *streams.ReadReq_Options) *streams.ReadReq_Options {
	if s := o.GetStream(); s != nil {
		s.RevisionOption = &streams.ReadReq_Options_StreamOptions_End{End: &shared.Empty{}}
	} else {
		o.GetAll().AllOption = &streams.ReadReq_Options_AllOptions_End{End: &shared.Empty{}}
	}
	return o
}

// from lets a read begin at a revision of a stream or a position of the whole log.
func from(o *streams.ReadReq_Options, place uint64) *streams.ReadReq_Options {
	if s := o.GetStream(); s != nil {
		s.RevisionOption = &streams.ReadReq_Options_StreamOptions_Revision{Revision: place}
	} else {
		o.GetAll().AllOption = &streams.ReadReq_Options_AllOptions_Position{
			Position: &streams.ReadReq_Options_Position{CommitPosition: place, PreparePosition: place},
		}
	}
	return o
}

// memoryConfig is a node in memory; a second node with the same configuration finds what the first
// one wrote.
func memoryConfig() Config { return Config{Dir: "log", FS: vfs.NewMem()} }

func metadataEvent(data string) event {
	return event{id: uuid.New(), typ: storage.MetadataType, data: data}
}

func textID(id string) *shared.UUID {
	return &shared.UUID{Value: &shared.UUID_String_{String_: id}}
}

// exceptionTrailers leaves out what grpc and the web server of a genuine EventStoreDB add.
func exceptionTrailers(md metadata.MD) metadata.MD {
	out := md.Copy()
	for _, name := range []string{"content-type", "content-length", "date", "server"} {
		delete(out, name)
	}
	return out
}

func (c client) tryDelete(stream string, expected storage.Expectation) (uint64, metadata.MD, error) {
	o := &streams.DeleteReq_Options{StreamIdentifier: &shared.StreamIdentifier{StreamName: []byte(stream)}}
	switch {
	case expected.Kind == storage.ExpectAny:
		o.ExpectedStreamRevision = &streams.DeleteReq_Options_Any{Any: &shared.Empty{}}
	case expected.Kind == storage.ExpectExists:
		o.ExpectedStreamRevision = &streams.DeleteReq_Options_StreamExists{StreamExists: &shared.Empty{}}
	case expected.Revision < 0:
		o.ExpectedStreamRevision = &streams.DeleteReq_Options_NoStream{NoStream: &shared.Empty{}}
	default:
		o.ExpectedStreamRevision = &streams.DeleteReq_Options_Revision{Revision: uint64(expected.Revision)}
	}
	var trailer metadata.MD
	resp, err := c.Delete(runtest.Context(c.t), &streams.DeleteReq{Options: o}, grpc.Trailer(&trailer))
	return resp.GetPosition().GetCommitPosition(), trailer, err
}

func (c client) delete(stream string, expected storage.Expectation) uint64 {
	c.t.Helper()
	position, _, err := c.tryDelete(stream, expected)
	runtest.Must(c.t, err)
	return position
}

func (c client) tryTombstone(stream string, expected storage.Expectation) (uint64, metadata.MD, error) {
	o := &streams.TombstoneReq_Options{StreamIdentifier: &shared.StreamIdentifier{StreamName: []byte(stream)}}
	switch {
	case expected.Kind == storage.ExpectAny:
		o.ExpectedStreamRevision = &streams.TombstoneReq_Options_Any{Any: &shared.Empty{}}
	case expected.Kind == storage.ExpectExists:
		o.ExpectedStreamRevision = &streams.TombstoneReq_Options_StreamExists{StreamExists: &shared.Empty{}}
	case expected.Revision < 0:
		o.ExpectedStreamRevision = &streams.TombstoneReq_Options_NoStream{NoStream: &shared.Empty{}}
	default:
		o.ExpectedStreamRevision = &streams.TombstoneReq_Options_Revision{Revision: uint64(expected.Revision)}
	}
	var trailer metadata.MD
	resp, err := c.Tombstone(runtest.Context(c.t), &streams.TombstoneReq{Options: o}, grpc.Trailer(&trailer))
	return resp.GetPosition().GetCommitPosition(), trailer, err
}

func (c client) tombstone(stream string, expected storage.Expectation) uint64 {
	c.t.Helper()
	position, _, err := c.tryTombstone(stream, expected)
	runtest.Must(c.t, err)
	return position
}

func last(events []recordedEvent) recordedEvent {
	if len(events) == 0 {
		return recordedEvent{}
	}
	return events[len(events)-1]
}

// lastPosition is the position of the newest event of the log, 0 for an empty one.
func lastPosition(c client) uint64 {
	c.t.Helper()
	return last(c.read(limited(backwards(atEnd(ofAll())), 1))).position
}

type readOptions = streams.ReadReq_Options

func TestMain(m *testing.M) {
	// The engine of expressions has a clock, which stops some time after the last match.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/dlclark/regexp2.runClock"))
}

// A caller without the password, or without TLS, reads and writes nothing.
func TestAccess_UnknownCallers(t *testing.T) {
	n := startNode(t, memoryConfig())
	other := startNode(t, memoryConfig())
	c := n.Connection()
	if c.Password == other.Connection().Password || c.Username != "admin" || len(c.Password) < 20 {
		t.Fatalf("user %q with a password of %d bytes", c.Username, len(c.Password))
	}
	if s := c.ConnectionString(); s != "esdb://"+c.Addr || strings.Contains(s, c.Password) {
		t.Errorf("connection string %s", s)
	}
	tls := func(pool *x509.CertPool) grpc.DialOption {
		return grpc.WithTransportCredentials(credentials.NewClientTLSFromCert(pool, ""))
	}
	as := func(user, password string) grpc.DialOption { return grpc.WithPerRPCCredentials(basic{user, password}) }
	tests := []struct {
		name    string
		options []grpc.DialOption
		want    codes.Code
	}{
		{"the password", []grpc.DialOption{tls(c.RootCAs), as(c.Username, c.Password)}, codes.OK},
		{"no credentials", []grpc.DialOption{tls(c.RootCAs)}, codes.PermissionDenied},
		{"another password", []grpc.DialOption{tls(c.RootCAs), as(c.Username, other.Connection().Password)}, codes.Unauthenticated},
		{"another user", []grpc.DialOption{tls(c.RootCAs), as("root", c.Password)}, codes.Unauthenticated},
		{"an empty password", []grpc.DialOption{tls(c.RootCAs), as(c.Username, "")}, codes.Unauthenticated},
		{"another node's certificate", []grpc.DialOption{tls(other.Connection().RootCAs), as(c.Username, c.Password)}, codes.Unavailable},
		{"no TLS", []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, codes.Unavailable},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			conn, err := grpc.NewClient(c.Addr, tt.options...)
			runtest.Must(t, err)
			defer func() {
				if err := conn.Close(); err != nil {
					t.Error(err)
				}
			}()
			raw := client{t: t, StreamsClient: streams.NewStreamsClient(conn)}
			if _, _, _, err := raw.tryRead(ofAll()); status.Code(err) != tt.want {
				t.Errorf("read: %v", err)
			}
			if _, err := raw.tryAppend(runtest.Context(t), "s", anyRevision, newEvents(1)...); status.Code(err) != tt.want {
				t.Errorf("append: %v", err)
			}
			if _, _, err := raw.tryDelete("s", anyRevision); status.Code(err) != tt.want {
				t.Errorf("delete: %v", err)
			}
		})
	}
}

// The calls that a client makes before it sends credentials succeed: the version, the methods, the
// one member.
func TestDiscovery(t *testing.T) {
	n := startNode(t, memoryConfig())
	conn, err := grpc.NewClient(n.Connection().Addr,
		grpc.WithTransportCredentials(credentials.NewClientTLSFromCert(n.Connection().RootCAs, "")))
	runtest.Must(t, err)
	closeAtEnd(t, conn)
	methods, err := serverfeatures.NewServerFeaturesClient(conn).GetSupportedMethods(runtest.Context(t), &shared.Empty{})
	runtest.Must(t, err)
	if methods.GetEventStoreServerVersion() != "24.10.4" || len(methods.GetMethods()) == 0 {
		t.Errorf("got %v", methods)
	}
	cluster, err := gossip.NewGossipClient(conn).Read(runtest.Context(t), &shared.Empty{})
	runtest.Must(t, err)
	m := cluster.GetMembers()
	if len(m) != 1 || m[0].GetState() != gossip.MemberInfo_Leader || !m[0].GetIsAlive() ||
		fmt.Sprintf("%s:%d", m[0].GetHttpEndPoint().GetAddress(), m[0].GetHttpEndPoint().GetPort()) != n.Connection().Addr {
		t.Errorf("got %v", m)
	}
	_, err = persistent.NewPersistentSubscriptionsClient(dial(t, n).conn).List(runtest.Context(t), &persistent.ListReq{})
	wantCode(t, "persistent subscriptions", err, codes.Unimplemented)
}

// Close ends subscriptions, keeps what was acknowledged, and may be called again.
func TestClose_EndsSubscriptions(t *testing.T) {
	cfg := memoryConfig()
	n := startNode(t, cfg)
	c := dial(t, n)
	s := c.subscribe(ofAll())
	s.caughtUp()
	c.append("s", none, newEvents(2)...)
	s.event()
	s.event()
	runtest.Must(t, n.Close())
	wantCode(t, "subscription", errorOf(s.call.Recv()), codes.Unavailable)
	if err := n.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
	if got := dial(t, startNode(t, cfg)).read(ofStream("s")); len(got) != 2 {
		t.Errorf("%d events after the restart", len(got))
	}
}

// The node accepts the pings of the official client: every ten seconds, even without a call.
func TestKeepalive_Allowed(t *testing.T) {
	if testing.Short() {
		t.Skip("takes longer than a minute: pings are rare")
	}
	t.Parallel()
	n := startNode(t, memoryConfig())
	c := officialClient(t, n)
	sub, err := c.SubscribeToAll(t.Context(), subscribeFromStart)
	runtest.Must(t, err)
	if sub.Recv().CaughtUp == nil {
		t.Fatal("not caught up")
	}
	dropped := make(chan error, 1)
	go func() {
		if e := sub.Recv().SubscriptionDropped; e != nil {
			dropped <- e.Error
		}
		close(dropped)
	}()
	select {
	case err := <-dropped:
		t.Errorf("an idle subscription was dropped: %v", err)
	case <-time.After(35 * time.Second):
	}
	if err := sub.Close(); err != nil {
		t.Error(err)
	}
	<-dropped
}

// errorOf returns the error of a call.
func errorOf[T any](_ T, err error) error { return err }

func wantCode(t *testing.T, what string, err error, want codes.Code) {
	t.Helper()
	if status.Code(err) != want {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// wantCount checks how many events a read returns.
func (c client) wantCount(o *readOptions, want int) {
	c.t.Helper()
	if got := c.read(o); len(got) != want {
		c.t.Errorf("a read of %v returns %d events, want %d", o, len(got), want)
	}
}

// same compares what a test wants with what it got.
func same(t *testing.T, what string, want, got any, options ...cmp.Option) {
	t.Helper()
	if diff := cmp.Diff(want, got, options...); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
