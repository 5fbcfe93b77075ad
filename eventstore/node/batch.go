package node

import (
	"context"
	"errors"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/annals-project/annals/eventstore/node/storage"
)

// maxBatchTime bounds an append of a BatchAppend call, from its first part to its answer. Clients
// may set a shorter time.
const maxBatchTime = 30 * time.Second

// batch is one append of a BatchAppend call.
type batch struct {
	correlation *shared.UUID
	request     *storage.Request
	size        int
	// deadline is when its client stops waiting.
	deadline time.Time
	// refused is the reason why it is not written; nil if it may be.
	refused *status.Status
	slot    largeSlot

	// While parts are missing: when it expires, and how many bytes it counts towards the memory of
	// its call.
	expiry *time.Timer
	held   int
	// answered is set once an answer is on its way.
	answered bool
}

func newBatch(correlation *shared.UUID, o *streams.BatchAppendReq_Options) *batch {
	a := &batch{
		correlation: correlation, deadline: deadlineOf(o, time.Now()),
		request: &storage.Request{Kind: storage.KindAppend, Stream: string(o.GetStreamIdentifier().GetStreamName())},
	}
	switch e := o.GetExpectedStreamPosition().(type) {
	case *streams.BatchAppendReq_Options_StreamPosition:
		var err error
		if a.request.Expected, err = exact(e.StreamPosition); err != nil {
			a.refuse(statusBadRequest(err.Error()))
		}
	case *streams.BatchAppendReq_Options_NoStream:
		a.request.Expected = storage.Expectation{Revision: storage.NoStream}
	case *streams.BatchAppendReq_Options_Any:
		a.request.Expected.Kind = storage.ExpectAny
	case *streams.BatchAppendReq_Options_StreamExists:
		a.request.Expected.Kind = storage.ExpectExists
	default:
		a.refuse(statusBadRequest("an append must name the revision that it expects"))
	}
	if err := writable(a.request.Stream); err != nil {
		a.refuse(statusBadRequest(err.Error()))
	}
	if !time.Now().Before(a.deadline) {
		a.refuse(statusTimeout())
	}
	return a
}

// deadlineOf reads the deadline in either of its forms. The Node.js client sends a point in time as
// a duration: that is practically unlimited, and maxBatchTime bounds it.
func deadlineOf(o *streams.BatchAppendReq_Options, now time.Time) time.Time {
	deadline := now.Add(maxBatchTime)
	requested := deadline
	switch d := o.GetDeadlineOption().(type) {
	case *streams.BatchAppendReq_Options_Deadline:
		requested = now.Add(d.Deadline.AsDuration())
	case *streams.BatchAppendReq_Options_Deadline_21_10_0:
		requested = d.Deadline_21_10_0.AsTime()
	}
	if requested.Before(deadline) {
		return requested
	}
	return deadline
}

// add adds events to the append. One invalid event refuses all.
func (a *batch) add(events []*streams.BatchAppendReq_ProposedMessage) {
	for _, m := range events {
		if a.refused != nil {
			return
		}
		p, size, err := proposedFrom(a.request.Stream, m)
		switch {
		case err != nil:
			a.refuse(statusBadRequest(err.Error()))
		case a.size+size > maxAppend:
			a.refuse(statusTooLarge(maxAppend))
		default:
			a.size += size
			a.request.Events = append(a.request.Events, p)
		}
	}
}

// refuse records the first reason and drops the events.
func (a *batch) refuse(why *status.Status) {
	if a.refused == nil {
		a.refused, a.request.Events = why, nil
	}
}

// response returns the answer for a decision.
func (a *batch) response(d storage.Decision) *streams.BatchAppendResp {
	switch d.Verdict {
	case storage.StreamDeleted:
		return a.error(statusStreamDeleted(a.request.Stream))
	case storage.WrongVersion:
		return a.error(statusWrongVersion(a.request.Expected, d.Revision))
	default:
		return a.success(d)
	}
}

func (a *batch) success(d storage.Decision) *streams.BatchAppendResp {
	success := &streams.BatchAppendResp_Success{
		CurrentRevisionOption: &streams.BatchAppendResp_Success_CurrentRevision{CurrentRevision: uint64(d.Revision)},
		PositionOption:        &streams.BatchAppendResp_Success_NoPosition{NoPosition: &emptypb.Empty{}},
	}
	if d.Revision < 0 {
		success.CurrentRevisionOption = &streams.BatchAppendResp_Success_NoStream{NoStream: &emptypb.Empty{}}
	}
	if d.Position != 0 {
		success.PositionOption = &streams.BatchAppendResp_Success_Position{
			Position: &shared.AllStreamPosition{CommitPosition: d.Position, PreparePosition: d.Position},
		}
	}
	return &streams.BatchAppendResp{
		CorrelationId: a.correlation, StreamIdentifier: nameOf(a.request.Stream),
		Result: &streams.BatchAppendResp_Success_{Success: success},
	}
}

func (a *batch) error(why *status.Status) *streams.BatchAppendResp {
	return &streams.BatchAppendResp{
		CorrelationId: a.correlation, StreamIdentifier: nameOf(a.request.Stream),
		Result: &streams.BatchAppendResp_Error{Error: why.Proto()},
	}
}

func nameOf(stream string) *shared.StreamIdentifier {
	return &shared.StreamIdentifier{StreamName: []byte(stream)}
}

// statusOf returns the status of an append without a decision. If its outcome is unknown, the code
// is that of a failed Append.
func (n *Node) statusOf(err error) *status.Status {
	if errors.Is(err, context.DeadlineExceeded) {
		return statusTimeout()
	}
	answer := status.Convert(n.answer(err))
	return detailed(answer.Code(), answer.Message(), &emptypb.Empty{})
}

func statusWrongVersion(expected storage.Expectation, current int64) *status.Status {
	empty := &emptypb.Empty{}
	w := &shared.WrongExpectedVersion{
		CurrentStreamRevisionOption: &shared.WrongExpectedVersion_CurrentNoStream{CurrentNoStream: empty},
	}
	if current >= 0 {
		w.CurrentStreamRevisionOption = &shared.WrongExpectedVersion_CurrentStreamRevision{
			CurrentStreamRevision: uint64(current),
		}
	}
	switch {
	case expected.Kind == storage.ExpectAny:
		w.ExpectedStreamPositionOption = &shared.WrongExpectedVersion_ExpectedAny{ExpectedAny: empty}
	case expected.Kind == storage.ExpectExists:
		w.ExpectedStreamPositionOption = &shared.WrongExpectedVersion_ExpectedStreamExists{ExpectedStreamExists: empty}
	case expected.Revision == storage.NoStream:
		w.ExpectedStreamPositionOption = &shared.WrongExpectedVersion_ExpectedNoStream{ExpectedNoStream: empty}
	default:
		w.ExpectedStreamPositionOption = &shared.WrongExpectedVersion_ExpectedStreamPosition{
			ExpectedStreamPosition: uint64(expected.Revision),
		}
	}
	return detailed(codes.AlreadyExists, "WrongExpectedVersion", w)
}

func statusStreamDeleted(stream string) *status.Status {
	return detailed(codes.NotFound, "StreamDeleted", &shared.StreamDeleted{StreamIdentifier: nameOf(stream)})
}

func statusTooLarge(limit uint32) *status.Status {
	return detailed(codes.InvalidArgument, "MaximumAppendSizeExceeded",
		&shared.MaximumAppendSizeExceeded{MaxAppendSize: limit})
}

func statusBadRequest(message string) *status.Status {
	return detailed(codes.InvalidArgument, "BadRequest", &shared.BadRequest{Message: message})
}

func statusAccessDenied() *status.Status {
	return detailed(codes.PermissionDenied, "Access Denied", &shared.AccessDenied{})
}

func statusTimeout() *status.Status {
	return detailed(codes.DeadlineExceeded, "Timeout", &shared.Timeout{})
}

func statusBusy() *status.Status {
	return detailed(codes.Unavailable, "Server Is Busy", &emptypb.Empty{})
}

// detailed returns a status as clients of BatchAppend distinguish them: by the type of its details.
func detailed(code codes.Code, message string, details protoadapt.MessageV1) *status.Status {
	s, err := status.New(code, message).WithDetails(details)
	if err != nil { // messages of our own making
		panic("event store node: " + err.Error())
	}
	return s
}
