package node

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/annals-project/annals/eventstore/node/storage"
)

// The bounds of one BatchAppend call.
const (
	// batchAnswers is how many appends may wait for their answer; then the call is read only as
	// they are answered.
	batchAnswers = 256
	// batchParts is how many appends may be incomplete, and batchPartBytes how many bytes they may
	// hold.
	batchParts     = 256
	batchPartBytes = 16 << 20
)

// BatchAppend accepts any number of appends over one call, each in one or more parts, and answers
// each by its correlation id. A refused append does not affect the others. Appends are decided in
// the order of their last parts.
func (s *service) BatchAppend(call streams.Streams_BatchAppendServer) error {
	ctx, cancel := context.WithCancel(call.Context())
	b := &batches{
		service:  s,
		ctx:      ctx,
		parts:    map[uuid.UUID]*batch{},
		answers:  make(chan *batch, batchAnswers),
		received: make(chan struct{}),
	}
	go func() {
		defer close(b.received)
		defer s.node.recoverPanic("BatchAppend", &b.failure)
		b.failure = b.receive(call)
	}()
	err := b.serve(call)
	cancel()
	go b.discard() // the receiver ends once this call has
	return s.node.fail(call, err)
}

// batches is the state of one BatchAppend call. One goroutine receives and submits, another one
// answers.
type batches struct {
	service *service
	ctx     context.Context
	answers chan *batch // in the order in which they were submitted
	// received is closed once no more parts come; failure is the reason.
	received chan struct{}
	failure  error

	mu        sync.Mutex
	parts     map[uuid.UUID]*batch
	partBytes int
}

// serve answers appends until the client has sent the last one and all are answered, or the node
// closes.
func (b *batches) serve(call streams.Streams_BatchAppendServer) error {
	for {
		select {
		case a := <-b.answers:
			if err := b.answer(call, a); err != nil {
				return err
			}
		case <-b.received:
			return errors.Join(b.answerSubmitted(call), b.failure)
		case <-b.service.node.closing:
			return errors.Join(b.answerSubmitted(call), storage.ErrClosing)
		}
	}
}

// answerSubmitted answers the appends that were submitted.
func (b *batches) answerSubmitted(call streams.Streams_BatchAppendServer) error {
	for {
		select {
		case a := <-b.answers:
			if err := b.answer(call, a); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

// discard releases what unanswered appends hold.
func (b *batches) discard() {
	<-b.received
	b.mu.Lock()
	for id, a := range b.parts {
		b.removePartial(id, a)
	}
	b.mu.Unlock()
	for {
		select {
		case a := <-b.answers:
			a.slot.release()
		default:
			return
		}
	}
}

// receive reads parts until the client has sent the last one.
func (b *batches) receive(call streams.Streams_BatchAppendServer) error {
	for {
		part, err := call.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		id, err := idOf(part.GetCorrelationId())
		if err != nil || part.GetCorrelationId().GetValue() == nil {
			return errInvalid("each part of an append must carry the correlation id of the append, a UUID")
		}
		if a := b.collect(id, part); a != nil {
			if err := b.submit(a); err != nil {
				return err
			}
		}
	}
}

// collect adds a part to its append, and returns the append if it is now complete or refused.
func (b *batches) collect(id uuid.UUID, part *streams.BatchAppendReq) *batch {
	b.mu.Lock()
	defer b.mu.Unlock()
	a, known := b.parts[id]
	if !known {
		if part.GetOptions() == nil { // belongs to an append that was answered
			return nil
		}
		a = newBatch(part.GetCorrelationId(), part.GetOptions())
		if !part.GetIsFinal() {
			b.addPartial(id, a)
		}
	}
	if a.answered {
		if part.GetIsFinal() {
			b.removePartial(id, a)
		}
		return nil
	}
	before := a.size
	a.add(part.GetProposedMessages())
	if part.GetIsFinal() {
		b.removePartial(id, a)
	} else if a.refused == nil {
		a.held += a.size - before
		b.partBytes += a.size - before
		if b.partBytes <= batchPartBytes {
			return nil
		}
		a.refuse(statusBusy())
	}
	b.markAnswered(a)
	return a
}

// addPartial keeps an incomplete append until its last part or its deadline.
func (b *batches) addPartial(id uuid.UUID, a *batch) {
	if len(b.parts) >= batchParts {
		a.refuse(statusBusy())
		return
	}
	b.parts[id] = a
	a.expiry = time.AfterFunc(time.Until(a.deadline), func() { b.expire(id, a) })
}

// markAnswered records that the append will be answered; further parts of it are ignored.
func (b *batches) markAnswered(a *batch) {
	b.partBytes -= a.held
	a.held, a.answered = 0, true
}

func (b *batches) removePartial(id uuid.UUID, a *batch) {
	if b.parts[id] == a {
		delete(b.parts, id)
		a.expiry.Stop()
	}
}

// expire refuses an append whose last part is late.
func (b *batches) expire(id uuid.UUID, a *batch) {
	b.mu.Lock()
	late := b.parts[id] == a && !a.answered
	b.removePartial(id, a)
	if late {
		a.refuse(statusTimeout())
		b.markAnswered(a)
	}
	b.mu.Unlock()
	if late {
		_ = b.enqueue(a) // after the end of the call, nobody waits for it
	}
}

// submit submits a complete append. An error ends the call.
func (b *batches) submit(a *batch) error {
	if a.refused == nil {
		if a.size > smallAppend {
			if err := a.slot.acquire(b.ctx, b.service.large); err != nil {
				return err
			}
		}
		if err := b.service.node.engine.Submit(b.ctx, a.request); err != nil {
			a.slot.release()
			a.refuse(b.service.node.statusOf(err))
		}
	}
	return b.enqueue(a)
}

func (b *batches) enqueue(a *batch) error {
	select {
	case b.answers <- a:
		return nil
	case <-b.ctx.Done():
		a.slot.release()
		return b.ctx.Err()
	}
}

// answer waits for the decision of an append and sends it.
func (b *batches) answer(call streams.Streams_BatchAppendServer, a *batch) error {
	if a.refused != nil {
		return call.Send(a.error(a.refused))
	}
	d, err := b.await(a)
	a.slot.release()
	if err != nil {
		return call.Send(a.error(b.service.node.statusOf(err)))
	}
	return call.Send(a.response(d))
}

// await waits for the decision of an append until its deadline. Most decisions of a group are ready
// when the first one is.
func (b *batches) await(a *batch) (storage.Decision, error) {
	if d, decided, err := a.request.Poll(); decided {
		return d, err
	}
	ctx, cancel := context.WithDeadline(b.ctx, a.deadline)
	defer cancel()
	return b.service.node.engine.Await(ctx, a.request)
}

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
