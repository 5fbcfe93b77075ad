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
)

// batchPatience is how long an append of a BatchAppend call may take, from its first part to its answer, where its
// client sets no shorter time.
const batchPatience = 30 * time.Second

// batch is one append of a BatchAppend call.
type batch struct {
	correlation *shared.UUID
	request     *request
	size        int
	// deadline is when its client gives it up.
	deadline time.Time
	// refused is why it is not written.
	refused *status.Status
	place   place

	// While it is there in part: when it is given up, and what it counts towards the memory of its call.
	expiry *time.Timer
	held   int
	// answered is set once an answer is on its way.
	answered bool
}

func newBatch(correlation *shared.UUID, o *streams.BatchAppendReq_Options) *batch {
	a := &batch{
		correlation: correlation, deadline: deadlineOf(o, time.Now()),
		request: &request{kind: kindAppend, stream: string(o.GetStreamIdentifier().GetStreamName())},
	}
	switch e := o.GetExpectedStreamPosition().(type) {
	case *streams.BatchAppendReq_Options_StreamPosition:
		a.request.expected = exact(e.StreamPosition)
	case *streams.BatchAppendReq_Options_NoStream:
		a.request.expected = expectation{revision: noStream}
	case *streams.BatchAppendReq_Options_Any:
		a.request.expected.kind = expectAny
	case *streams.BatchAppendReq_Options_StreamExists:
		a.request.expected.kind = expectExists
	default:
		a.refuse(statusBadRequest("an append says which revision it expects"))
	}
	if err := writable(a.request.stream); err != nil {
		a.refuse(statusBadRequest(err.Error()))
	}
	if !time.Now().Before(a.deadline) {
		a.refuse(statusTimeout())
	}
	return a
}

// deadlineOf reads the deadline in either of its forms. The Node.js client sends a point in time as a duration: that is
// one without end, and batchPatience bounds it.
func deadlineOf(o *streams.BatchAppendReq_Options, now time.Time) time.Time {
	deadline := now.Add(batchPatience)
	asked := deadline
	switch d := o.GetDeadlineOption().(type) {
	case *streams.BatchAppendReq_Options_Deadline:
		asked = now.Add(d.Deadline.AsDuration())
	case *streams.BatchAppendReq_Options_Deadline_21_10_0:
		asked = d.Deadline_21_10_0.AsTime()
	}
	if asked.Before(deadline) {
		return asked
	}
	return deadline
}

// add takes events into the append. What is wrong with one of them refuses all.
func (a *batch) add(events []*streams.BatchAppendReq_ProposedMessage) {
	for _, m := range events {
		if a.refused != nil {
			return
		}
		p, size, err := proposedFrom(a.request.stream, m)
		switch {
		case err != nil:
			a.refuse(statusBadRequest(err.Error()))
		case a.size+size > maxAppend:
			a.refuse(statusTooLarge(maxAppend))
		default:
			a.size += size
			a.request.events = append(a.request.events, p)
		}
	}
}

// refuse keeps the first reason and nothing of the events.
func (a *batch) refuse(why *status.Status) {
	if a.refused == nil {
		a.refused, a.request.events = why, nil
	}
}

// response says what became of an append that was decided.
func (a *batch) response(d decision) *streams.BatchAppendResp {
	switch d.verdict {
	case streamDeleted:
		return a.error(statusStreamDeleted(a.request.stream))
	case wrongVersion:
		return a.error(statusWrongVersion(a.request.expected, d.revision))
	default:
		return a.success(d)
	}
}

func (a *batch) success(d decision) *streams.BatchAppendResp {
	success := &streams.BatchAppendResp_Success{
		CurrentRevisionOption: &streams.BatchAppendResp_Success_CurrentRevision{CurrentRevision: uint64(d.revision)},
		PositionOption:        &streams.BatchAppendResp_Success_NoPosition{NoPosition: &emptypb.Empty{}},
	}
	if d.revision < 0 {
		success.CurrentRevisionOption = &streams.BatchAppendResp_Success_NoStream{NoStream: &emptypb.Empty{}}
	}
	if d.position != 0 {
		success.PositionOption = &streams.BatchAppendResp_Success_Position{
			Position: &shared.AllStreamPosition{CommitPosition: d.position, PreparePosition: d.position},
		}
	}
	return &streams.BatchAppendResp{
		CorrelationId: a.correlation, StreamIdentifier: nameOf(a.request.stream),
		Result: &streams.BatchAppendResp_Success_{Success: success},
	}
}

func (a *batch) error(why *status.Status) *streams.BatchAppendResp {
	return &streams.BatchAppendResp{
		CorrelationId: a.correlation, StreamIdentifier: nameOf(a.request.stream), Result: &streams.BatchAppendResp_Error{Error: why.Proto()},
	}
}

func nameOf(stream string) *shared.StreamIdentifier {
	return &shared.StreamIdentifier{StreamName: []byte(stream)}
}

// statusOf says why an append was not decided. Where its outcome is open, the code is the one that Append ends with.
func (n *Node) statusOf(err error) *status.Status {
	if errors.Is(err, context.DeadlineExceeded) {
		return statusTimeout()
	}
	answer := status.Convert(n.answer(err))
	return detailed(answer.Code(), answer.Message(), &emptypb.Empty{})
}

func statusWrongVersion(expected expectation, current int64) *status.Status {
	empty := &emptypb.Empty{}
	w := &shared.WrongExpectedVersion{CurrentStreamRevisionOption: &shared.WrongExpectedVersion_CurrentNoStream{CurrentNoStream: empty}}
	if current >= 0 {
		w.CurrentStreamRevisionOption = &shared.WrongExpectedVersion_CurrentStreamRevision{CurrentStreamRevision: uint64(current)}
	}
	switch {
	case expected.kind == expectAny:
		w.ExpectedStreamPositionOption = &shared.WrongExpectedVersion_ExpectedAny{ExpectedAny: empty}
	case expected.kind == expectExists:
		w.ExpectedStreamPositionOption = &shared.WrongExpectedVersion_ExpectedStreamExists{ExpectedStreamExists: empty}
	case expected.revision == noStream:
		w.ExpectedStreamPositionOption = &shared.WrongExpectedVersion_ExpectedNoStream{ExpectedNoStream: empty}
	default:
		w.ExpectedStreamPositionOption = &shared.WrongExpectedVersion_ExpectedStreamPosition{ExpectedStreamPosition: uint64(expected.revision)}
	}
	return detailed(codes.AlreadyExists, "WrongExpectedVersion", w)
}

func statusStreamDeleted(stream string) *status.Status {
	return detailed(codes.NotFound, "StreamDeleted", &shared.StreamDeleted{StreamIdentifier: nameOf(stream)})
}

func statusTooLarge(limit uint32) *status.Status {
	return detailed(codes.InvalidArgument, "MaximumAppendSizeExceeded", &shared.MaximumAppendSizeExceeded{MaxAppendSize: limit})
}

func statusBadRequest(message string) *status.Status {
	return detailed(codes.InvalidArgument, "BadRequest", &shared.BadRequest{Message: message})
}

func statusTimeout() *status.Status {
	return detailed(codes.DeadlineExceeded, "Timeout", &shared.Timeout{})
}

func statusBusy() *status.Status {
	return detailed(codes.Unavailable, "Server Is Busy", &emptypb.Empty{})
}

// detailed is a status as clients of BatchAppend tell them apart: by the type of its details.
func detailed(code codes.Code, message string, details protoadapt.MessageV1) *status.Status {
	s, err := status.New(code, message).WithDetails(details)
	if err != nil { // messages of our own making
		panic("event store node: " + err.Error())
	}
	return s
}
