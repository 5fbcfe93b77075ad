package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/annals-project/annals/eventstore/node/storage"
	"github.com/annals-project/annals/eventstore/node/wire"
	"github.com/annals-project/annals/internal/runtest"
)

// Each append of a call is answered under its own id, and the log holds the same events as after
// Append.
func TestBatchAppend(t *testing.T) {
	n := startNode(t, memoryConfig())
	c := dial(t, n)
	b := c.batchAppend()
	first := newEvents(3)
	resp := b.one(part("s", none, first...))
	want := &streams.BatchAppendResp{
		CorrelationId: resp.GetCorrelationId(), StreamIdentifier: nameOf("s"),
		Result: &streams.BatchAppendResp_Success_{Success: &streams.BatchAppendResp_Success{
			CurrentRevisionOption: &streams.BatchAppendResp_Success_CurrentRevision{CurrentRevision: 2},
			PositionOption: &streams.BatchAppendResp_Success_Position{
				Position: &shared.AllStreamPosition{CommitPosition: lastPosition(c), PreparePosition: lastPosition(c)},
			},
		}},
	}
	same(t, "answer", want, resp, protocmp.Transform())
	for _, expected := range []storage.Expectation{at(2), anyRevision, existing} {
		if got := b.one(part("s", expected, newEvents(1)...)); got.GetSuccess() == nil {
			t.Errorf("expected %v: %v", expected, got)
		}
	}
	empty := b.one(part("nothing", none))
	if empty.GetSuccess().GetNoStream() == nil || empty.GetSuccess().GetNoPosition() == nil {
		t.Errorf("an append of nothing: %v", empty)
	}
	b.end()
	got := c.read(ofStream("s"))
	if len(got) != 6 || got[0].id != first[0].id || got[2].id != first[2].id || got[1].data != first[1].data {
		t.Errorf("the stream holds %v", got)
	}
}

// Many appends to one stream are under way at once, each at the revision that the previous one
// makes. They are decided in order.
func TestBatchAppend_Pipelines(t *testing.T) {
	const appends = 3 * batchAnswers
	n := startNode(t, memoryConfig())
	c := dial(t, n)
	b := c.batchAppend()
	sent := make(chan error, 1)
	ids := make([]*shared.UUID, appends)
	parts := make([]*streams.BatchAppendReq, appends)
	for i := range appends {
		parts[i] = part("s", at(int64(i)-1), newEvents(1)...)
		if i%2 == 1 {
			parts[i].CorrelationId = textID(uuid.NewString())
		}
		ids[i] = parts[i].GetCorrelationId()
	}
	go func() {
		for _, p := range parts {
			if err := b.call.Send(p); err != nil {
				sent <- err
				return
			}
		}
		sent <- b.call.CloseSend()
	}()
	for i := range appends {
		resp := b.receive()
		if !proto.Equal(resp.GetCorrelationId(), ids[i]) || resp.GetSuccess().GetCurrentRevision() != uint64(i) ||
			resp.GetSuccess() == nil {
			t.Fatalf("answer %d: %v", i, resp)
		}
	}
	runtest.Must(t, <-sent)
	if _, err := b.call.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("after the last answer: %v", err)
	}
	if s := n.Stats(); s.Appends != appends || s.Fsyncs >= appends {
		t.Errorf("%d appends with %d fsyncs", s.Appends, s.Fsyncs)
	}
}

// An append may arrive in parts, between parts of others. Its last part writes it as a whole.
func TestBatchAppend_InParts(t *testing.T) {
	c := dial(t, startNode(t, memoryConfig()))
	b := c.batchAppend()
	one, two := newEvents(3), newEvents(2)
	first, second := unfinished(part("one", none, one[0])), unfinished(part("two", none))
	b.send(first)
	b.send(second)
	b.send(more(first, false, one[1]))
	b.send(more(second, false, two...))
	c.wantCount(ofAll(), 0)
	b.send(more(second, true))
	if got := b.receive(); got.GetSuccess().GetCurrentRevision() != 1 ||
		string(got.GetStreamIdentifier().GetStreamName()) != "two" {
		t.Errorf("got %v", got)
	}
	b.send(more(first, true, one[2]))
	if got := b.receive(); got.GetSuccess().GetCurrentRevision() != 2 ||
		string(got.GetStreamIdentifier().GetStreamName()) != "one" {
		t.Errorf("got %v", got)
	}
	// A part of an append that nobody began is passed over.
	b.send(more(part("three", none), true, newEvents(1)...))
	b.send(unfinished(part("four", none, newEvents(1)...)))
	b.end()
	got := c.read(ofAll())
	if len(got) != 5 || got[2].id != one[0].id || got[4].id != one[2].id {
		t.Errorf("the log holds %v", got)
	}
}

// Each refusal has the code and the details of the server, and the call goes on.
func TestBatchAppend_Refusals(t *testing.T) {
	c := dial(t, startNode(t, memoryConfig()))
	c.append("s", none, newEvents(3)...)
	c.append("gone", none, newEvents(1)...)
	c.tombstone("gone", anyRevision)
	c.append("hidden", none, newEvents(1)...)
	c.delete("hidden", anyRevision)

	wrong := func(current int64, w *shared.WrongExpectedVersion) *shared.WrongExpectedVersion {
		w.CurrentStreamRevisionOption = &shared.WrongExpectedVersion_CurrentStreamRevision{
			CurrentStreamRevision: uint64(current),
		}
		if current < 0 {
			w.CurrentStreamRevisionOption = &shared.WrongExpectedVersion_CurrentNoStream{CurrentNoStream: &emptypb.Empty{}}
		}
		return w
	}
	badID := part("s", anyRevision, newEvents(1)...)
	badID.ProposedMessages[0].Id = textID("not a uuid")
	noType := part("s", anyRevision, newEvents(2)...)
	delete(noType.ProposedMessages[1].Metadata, wire.KeyType)
	nilID := part("s", anyRevision, event{typ: "t", data: "{}"})
	expects := part("s", anyRevision, newEvents(1)...)
	expects.Options.ExpectedStreamPosition = nil
	unnamed := part("s", anyRevision, newEvents(1)...)
	unnamed.Options.StreamIdentifier = nil
	past := part("s", anyRevision, newEvents(1)...)
	past.Options.DeadlineOption = &streams.BatchAppendReq_Options_Deadline_21_10_0{
		Deadline_21_10_0: timestamppb.New(time.Now().Add(-time.Second)),
	}
	noTime := part("s", anyRevision, newEvents(1)...)
	noTime.Options.DeadlineOption = &streams.BatchAppendReq_Options_Deadline{Deadline: durationpb.New(0)}
	half := strings.Repeat("x", maxAppend/2)
	known := newEvent("{}")
	c.append("known", none, known)

	tests := []struct {
		name string
		part *streams.BatchAppendReq
		code codes.Code
		want proto.Message
	}{
		{"another revision", part("s", at(1), newEvents(1)...), codes.AlreadyExists, wrong(2, &shared.WrongExpectedVersion{
			ExpectedStreamPositionOption: &shared.WrongExpectedVersion_ExpectedStreamPosition{ExpectedStreamPosition: 1},
		})},
		{"a revision beyond", part("s", at(9), newEvents(1)...), codes.AlreadyExists, wrong(2, &shared.WrongExpectedVersion{
			ExpectedStreamPositionOption: &shared.WrongExpectedVersion_ExpectedStreamPosition{ExpectedStreamPosition: 9},
		})},
		{"no stream", part("s", none, newEvents(1)...), codes.AlreadyExists, wrong(2, &shared.WrongExpectedVersion{
			ExpectedStreamPositionOption: &shared.WrongExpectedVersion_ExpectedNoStream{ExpectedNoStream: &emptypb.Empty{}},
		})},
		{
			"a stream that is not there",
			part("new", existing, newEvents(1)...),
			codes.AlreadyExists,
			wrong(-1, &shared.WrongExpectedVersion{
				ExpectedStreamPositionOption: &shared.WrongExpectedVersion_ExpectedStreamExists{
					ExpectedStreamExists: &emptypb.Empty{},
				},
			}),
		},
		{
			"a known id before a new one",
			part("known", anyRevision, known, newEvent("{}")),
			codes.AlreadyExists,
			wrong(0, &shared.WrongExpectedVersion{
				ExpectedStreamPositionOption: &shared.WrongExpectedVersion_ExpectedAny{ExpectedAny: &emptypb.Empty{}},
			}),
		},
		{
			"a tombstone",
			part("gone", anyRevision, newEvents(1)...),
			codes.NotFound,
			&shared.StreamDeleted{StreamIdentifier: nameOf("gone")},
		},
		{
			"a deleted stream",
			part("hidden", existing, newEvents(1)...),
			codes.NotFound,
			&shared.StreamDeleted{StreamIdentifier: nameOf("hidden")},
		},
		{
			"too large",
			part("s", anyRevision, newEvent(half), newEvent(half)),
			codes.InvalidArgument,
			&shared.MaximumAppendSizeExceeded{MaxAppendSize: maxAppend},
		},
		{"an id that is none", badID, codes.InvalidArgument, &shared.BadRequest{Message: "the id of an event must be a UUID"}},
		{"an event without a type", noType, codes.InvalidArgument, &shared.BadRequest{Message: "Required Metadata Property 'type' is missing"}},
		{"an event without an id", nilID, codes.InvalidArgument, &shared.BadRequest{Message: "an event has an id and a type"}},
		{"no expectation", expects, codes.InvalidArgument, &shared.BadRequest{Message: "an append must name the revision that it expects"}},
		{"no stream name", unnamed, codes.InvalidArgument, &shared.BadRequest{Message: "a stream must have a name"}},
		{"metadata of metadata", part("$$$$s", anyRevision, newEvents(1)...), codes.InvalidArgument, &shared.BadRequest{Message: "a metadata stream cannot have metadata"}},
		{"a deadline that is past", past, codes.DeadlineExceeded, &shared.Timeout{}},
		{"no time at all", noTime, codes.DeadlineExceeded, &shared.Timeout{}},
	}
	b := c.batchAppend()
	before := lastPosition(c)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			resp := b.one(tt.part)
			code, got := detail(t, resp)
			if diff := cmp.Diff(tt.want, got, protocmp.Transform()); diff != "" || code != tt.code {
				t.Errorf("code %v, want %v: %s", code, tt.code, diff)
			}
			if name := resp.GetStreamIdentifier().GetStreamName(); string(name) != string(
				tt.part.GetOptions().GetStreamIdentifier().GetStreamName(),
			) {
				t.Errorf("answer about stream %q", name)
			}
		})
	}
	if after := lastPosition(c); after != before {
		t.Errorf("refused appends wrote up to %d, from %d", after, before)
	}
	if got := b.one(part("s", at(2), newEvents(1)...)); got.GetSuccess() == nil {
		t.Errorf("after all refusals: %v", got)
	}
	b.end()
}

// A refused append is answered once, even if more of its parts arrive.
func TestBatchAppend_OneAnswer(t *testing.T) {
	c := dial(t, startNode(t, memoryConfig()))
	b := c.batchAppend()
	large := unfinished(part("s", none, newEvent(strings.Repeat("x", maxAppend))))
	code, got := detail(t, b.one(large))
	if _, ok := got.(*shared.MaximumAppendSizeExceeded); !ok || code != codes.InvalidArgument {
		t.Errorf("got %v, %v", code, got)
	}
	again := proto.Clone(large).(*streams.BatchAppendReq)
	again.ProposedMessages = batchMessages(newEvents(1))
	b.send(again) // options again: not a new append
	b.send(more(large, false, newEvents(1)...))
	b.send(more(large, true, newEvents(1)...))
	b.send(more(large, true, newEvents(1)...))
	reused := part("s", none, newEvents(1)...)
	reused.CorrelationId = large.GetCorrelationId()
	if got := b.one(reused); got.GetSuccess() == nil {
		t.Errorf("the id used again: %v", got)
	}
	b.end()
	c.wantCount(ofAll(), 1)
}

// An append whose last part does not arrive by the deadline is answered then.
func TestBatchAppend_Expires(t *testing.T) {
	c := dial(t, startNode(t, memoryConfig()))
	b := c.batchAppend()
	p := unfinished(part("s", none, newEvents(1)...))
	p.Options.DeadlineOption = &streams.BatchAppendReq_Options_Deadline{Deadline: durationpb.New(20 * time.Millisecond)}
	code, got := detail(t, b.one(p))
	if _, ok := got.(*shared.Timeout); !ok || code != codes.DeadlineExceeded {
		t.Errorf("got %v, %v", code, got)
	}
	b.send(more(p, true, newEvents(1)...))
	b.end()
	c.wantCount(ofAll(), 0)
}

// The Node.js client sends a point in time as its deadline, in the field of a duration.
func TestBatchAppend_Deadlines(t *testing.T) {
	now := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	latest := now.Add(maxBatchTime)
	for name, tt := range map[string]struct {
		options *streams.BatchAppendReq_Options
		want    time.Time
	}{
		"none":             {&streams.BatchAppendReq_Options{}, latest},
		"a duration":       {&streams.BatchAppendReq_Options{DeadlineOption: &streams.BatchAppendReq_Options_Deadline{Deadline: durationpb.New(time.Second)}}, now.Add(time.Second)},
		"a point as one":   {&streams.BatchAppendReq_Options{DeadlineOption: &streams.BatchAppendReq_Options_Deadline{Deadline: &durationpb.Duration{Seconds: now.Unix()}}}, latest},
		"without end":      {&streams.BatchAppendReq_Options{DeadlineOption: &streams.BatchAppendReq_Options_Deadline{Deadline: &durationpb.Duration{Seconds: math.MaxInt64}}}, latest},
		"a point":          {&streams.BatchAppendReq_Options{DeadlineOption: &streams.BatchAppendReq_Options_Deadline_21_10_0{Deadline_21_10_0: timestamppb.New(now.Add(time.Second))}}, now.Add(time.Second)},
		"a point far away": {&streams.BatchAppendReq_Options{DeadlineOption: &streams.BatchAppendReq_Options_Deadline_21_10_0{Deadline_21_10_0: timestamppb.New(now.Add(time.Hour))}}, latest},
	} {
		if got := deadlineOf(tt.options, now); !got.Equal(tt.want) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

// A repeated append is recognized as in Append, also if it was first sent the other way.
func TestBatchAppend_Idempotent(t *testing.T) {
	c := dial(t, startNode(t, memoryConfig()))
	b := c.batchAppend()
	for i, expected := range []storage.Expectation{none, anyRevision} {
		stream, events := fmt.Sprintf("s%d", i), newEvents(3)
		first := b.one(part(stream, expected, events...)).GetSuccess()
		c.append(stream, at(2), newEvents(1)...)
		again := b.one(part(stream, expected, events...)).GetSuccess()
		if diff := cmp.Diff(first, again, protocmp.Transform()); diff != "" || first == nil {
			t.Error(diff)
		}
		if revision, position := c.append(stream, expected, events...); revision != 2 ||
			position != first.GetPosition().GetCommitPosition() {
			t.Errorf("over Append: revision %d at %d", revision, position)
		}
		c.wantCount(ofStream(stream), 4)
	}
	b.end()
}

// batchCall is a BatchAppend call of a test.
type batchCall struct {
	t      runtest.T
	call   streams.Streams_BatchAppendClient
	cancel context.CancelFunc
}

func (c client) batchAppend() batchCall {
	c.t.Helper()
	ctx, cancel := context.WithCancel(runtest.Context(c.t))
	call, err := c.BatchAppend(ctx)
	if err != nil {
		cancel()
		c.t.Fatal(err)
	}
	return batchCall{c.t, call, cancel}
}

func (b batchCall) send(part *streams.BatchAppendReq) {
	b.t.Helper()
	runtest.Must(b.t, b.call.Send(part))
}

func (b batchCall) receive() *streams.BatchAppendResp {
	b.t.Helper()
	resp, err := b.call.Recv()
	runtest.Must(b.t, err)
	return resp
}

// end closes the sending side and expects no further answer.
func (b batchCall) end() {
	b.t.Helper()
	defer b.cancel()
	runtest.Must(b.t, b.call.CloseSend())
	if resp, err := b.call.Recv(); !errors.Is(err, io.EOF) {
		b.t.Fatalf("one more answer: %v, %v", resp, err)
	}
}

// stop ends the call and expects no further answer. A genuine EventStoreDB goes on after the client closed its side.
func (b batchCall) stop() {
	b.t.Helper()
	runtest.Must(b.t, b.call.CloseSend())
	b.cancel()
	if resp, err := b.call.Recv(); err == nil {
		b.t.Fatalf("one more answer: %v", resp)
	}
}

// one sends an append and receives its answer.
func (b batchCall) one(part *streams.BatchAppendReq) *streams.BatchAppendResp {
	b.t.Helper()
	b.send(part)
	resp := b.receive()
	if !proto.Equal(resp.GetCorrelationId(), part.GetCorrelationId()) {
		b.t.Fatalf("answer to %v, want %v", resp.GetCorrelationId(), part.GetCorrelationId())
	}
	return resp
}

// part is a whole append with an id of its own; options is nil for a later part.
func part(stream string, expected storage.Expectation, events ...event) *streams.BatchAppendReq {
	o := &streams.BatchAppendReq_Options{StreamIdentifier: nameOf(stream)}
	switch {
	case expected.Kind == storage.ExpectAny:
		o.ExpectedStreamPosition = &streams.BatchAppendReq_Options_Any{Any: &emptypb.Empty{}}
	case expected.Kind == storage.ExpectExists:
		o.ExpectedStreamPosition = &streams.BatchAppendReq_Options_StreamExists{StreamExists: &emptypb.Empty{}}
	case expected.Revision < 0:
		o.ExpectedStreamPosition = &streams.BatchAppendReq_Options_NoStream{NoStream: &emptypb.Empty{}}
	default:
		o.ExpectedStreamPosition = &streams.BatchAppendReq_Options_StreamPosition{StreamPosition: uint64(expected.Revision)}
	}
	return &streams.BatchAppendReq{
		CorrelationId:    structuredID(uuid.New()),
		Options:          o,
		ProposedMessages: batchMessages(events),
		IsFinal:          true,
	}
}

// more is a later part of an append.
func more(of *streams.BatchAppendReq, final bool, events ...event) *streams.BatchAppendReq {
	return &streams.BatchAppendReq{
		CorrelationId:    of.GetCorrelationId(),
		ProposedMessages: batchMessages(events),
		IsFinal:          final,
	}
}

func batchMessages(events []event) []*streams.BatchAppendReq_ProposedMessage {
	var out []*streams.BatchAppendReq_ProposedMessage
	for _, e := range events {
		m := e.message().GetProposedMessage()
		out = append(out, &streams.BatchAppendReq_ProposedMessage{
			Id:             m.GetId(),
			Metadata:       m.GetMetadata(),
			CustomMetadata: m.GetCustomMetadata(),
			Data:           m.GetData(),
		})
	}
	return out
}

func unfinished(p *streams.BatchAppendReq) *streams.BatchAppendReq {
	p.IsFinal = false
	return p
}

// detail returns the details of a refusal.
func detail(t runtest.T, resp *streams.BatchAppendResp) (codes.Code, proto.Message) {
	t.Helper()
	if resp.GetError() == nil {
		t.Fatalf("not refused: %v", resp)
	}
	s := status.FromProto(resp.GetError())
	if len(s.Details()) != 1 {
		t.Fatalf("details %v", s.Details())
	}
	m, ok := s.Details()[0].(proto.Message)
	if !ok {
		t.Fatalf("detail %v", s.Details()[0])
	}
	return s.Code(), m
}

// The parts that a call holds in memory are bounded. An append beyond the bound is refused, and its
// memory is free again for others.
func TestBatchAppend_PartsBounded(t *testing.T) {
	c := dial(t, startNode(t, memoryConfig()))
	b := c.batchAppend()
	big := strings.Repeat("x", maxAppend-64)
	var open []*streams.BatchAppendReq
	for i := 0; ; i++ {
		p := unfinished(part(fmt.Sprintf("s%d", i), none, newEvent(big)))
		b.send(p)
		open = append(open, p)
		if (i+1)*len(big) > batchPartBytes {
			break
		}
	}
	code, got := detail(t, b.receive())
	if _, ok := got.(*emptypb.Empty); !ok || code != codes.Unavailable {
		t.Errorf("got %v, %v", code, got)
	}
	for _, p := range open {
		b.send(more(p, true))
	}
	for range len(open) - 1 {
		if got := b.receive(); got.GetSuccess() == nil {
			t.Fatalf("got %v", got)
		}
	}
	for i := range batchParts + 1 {
		b.send(unfinished(part(fmt.Sprintf("t%d", i), none)))
	}
	if code, _ := detail(t, b.receive()); code != codes.Unavailable {
		t.Errorf("got %v", code)
	}
	b.end()
}

// A part that names no append ends the call, after the answers to the earlier parts.
func TestBatchAppend_WithoutID(t *testing.T) {
	c := dial(t, startNode(t, memoryConfig()))
	for _, id := range []*shared.UUID{nil, {}, textID("not a uuid")} {
		b := c.batchAppend()
		b.send(part("s", anyRevision, newEvents(1)...))
		lost := part("s", anyRevision, newEvents(1)...)
		lost.CorrelationId = id
		b.send(lost)
		if got := b.receive(); got.GetSuccess() == nil {
			t.Errorf("got %v", got)
		}
		wantCode(t, fmt.Sprintf("id %v", id), errorOf(b.call.Recv()), codes.InvalidArgument)
	}
}

// A node that closes ends the call. Acknowledged appends are there after the restart.
func TestBatchAppend_NodeCloses(t *testing.T) {
	cfg := memoryConfig()
	n := startNode(t, cfg)
	b := dial(t, n).batchAppend()
	if got := b.one(part("s", none, newEvents(2)...)); got.GetSuccess() == nil {
		t.Fatalf("got %v", got)
	}
	b.send(unfinished(part("t", none, newEvents(1)...)))
	runtest.Must(t, n.Close())
	wantCode(t, "the next answer", errorOf(b.call.Recv()), codes.Unavailable)
	if got := dial(t, startNode(t, cfg)).read(ofAll()); len(got) != 2 {
		t.Errorf("%d events after the restart", len(got))
	}
}

// When a client disconnects, its unfinished appends are dropped and the places of its large appends
// are free again.
func TestBatchAppend_ClientDisconnects(t *testing.T) {
	n := startNode(t, memoryConfig())
	c := dial(t, n)
	big := strings.Repeat("x", smallAppend+1)
	for range 3 {
		b := c.batchAppend()
		for range largeAppends {
			b.send(part("s", anyRevision, newEvent(big)))
		}
		b.receive()
		runtest.Must(t, b.call.CloseSend())
		for err := error(nil); err == nil; {
			_, err = b.call.Recv()
		}
	}
	c.wantCount(limited(ofStream("s"), 1000), 3*largeAppends)
}
