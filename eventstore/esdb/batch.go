package esdb

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	driver "github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/eventstore"
)

const (
	// maxBatchedBytes is the largest append that shares the call. A larger one would delay the
	// others.
	maxBatchedBytes = 64 << 10
	// firstBatchPause is how long each append is a separate call after the shared call was lost. It
	// doubles up to longestBatchPause while shared calls end without a success.
	firstBatchPause   = time.Second
	longestBatchPause = time.Minute
)

// batchAppender sends appends over one shared call of BatchAppend, which the driver does not
// support. One call for each append would cost several times as much as its content. The driver
// repeats, with the same event ids, each append that is not sent here or does not succeed (see repeat
// for those that time out). So each append is stored once, and its caller gets the right error.
type batchAppender struct {
	address string
	options []grpc.DialOption
	logger  *slog.Logger
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu   sync.Mutex
	conn *grpc.ClientConn
	// call is nil if none runs. No new one is made before next.
	call *batchCall
	next time.Time
	// pause follows a call without a success.
	pause time.Duration
	// unsupported reports that the server has no such call.
	unsupported bool
}

// newBatchAppender makes no connection yet.
func newBatchAppender(conf *driver.Configuration, log *slog.Logger) *batchAppender {
	t := &batchAppender{
		address: conf.Address,
		options: dialOptions(conf),
		logger:  log,
		pause:   firstBatchPause,
	}
	t.ctx, t.cancel = context.WithCancel(toLeader(context.Background()))
	return t
}

// sendResult is what is known about an append over the shared call.
type sendResult int

const (
	// notSent: it was not sent.
	notSent sendResult = iota
	// unconfirmed: it was sent and no success was received. It may have happened.
	unconfirmed
	// timedOutTogether: the server responded that it timed out. It may have happened.
	timedOutTogether
	confirmed
)

// append appends events of a total size in bytes.
func (t *batchAppender) append(
	ctx context.Context, stream string, expected eventstore.Revision, events []eventstore.Proposed, size int,
) (eventstore.Appended, sendResult) {
	var done eventstore.Appended
	if size > maxBatchedBytes {
		return done, notSent
	}
	call := t.current()
	if call == nil {
		return done, notSent
	}
	response := call.append(ctx, stream, expected, events)
	if isTimeout(response) {
		return done, timedOutTogether
	}
	answer := response.GetSuccess()
	if _, is := answer.GetCurrentRevisionOption().(*streams.BatchAppendResp_Success_CurrentRevision); !is {
		return done, unconfirmed
	}
	done.Revision = eventstore.Revision(answer.GetCurrentRevision())
	done.Position = eventstore.Position(answer.GetPosition().GetCommitPosition())
	if done.Position == 0 || uint64(done.Position) == noPosition {
		return done, unconfirmed
	}
	return done, confirmed
}

// isTimeout reports whether a response means timedOut.
func isTimeout(response *streams.BatchAppendResp) bool {
	why := response.GetError()
	code := codes.Code(why.GetCode())
	return code == codes.DeadlineExceeded || code == codes.Aborted && !isDiskStalled(why.GetMessage())
}

// current returns the running call. If there is none, it returns nil and starts one for later
// appends.
func (t *batchAppender) current() *batchCall {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.call != nil || t.unsupported || t.ctx.Err() != nil || time.Now().Before(t.next) {
		return t.call
	}
	t.next = time.Now().Add(t.pause)
	if t.conn == nil {
		conn, err := grpc.NewClient(t.address, t.options...)
		if err != nil {
			t.logger.Warn("batch append stream not started, using unary appends", "err", err)
			t.unsupported = true
			return nil
		}
		t.conn = conn
	}
	conn := t.conn
	t.running.Go(func() { t.run(conn) })
	return nil
}

// runCall makes a call and runs it until it ends. It returns the reason, which may be a panic, and
// whether an append succeeded over it.
func (t *batchAppender) runCall(conn *grpc.ClientConn) (useful bool, err error) {
	defer recoverPanic(&err)
	ctx, fail := context.WithCancelCause(t.ctx)
	defer fail(nil)
	requests, err := streams.NewStreamsClient(conn).BatchAppend(ctx)
	if err != nil {
		return false, err
	}
	call := newBatchCall(ctx, fail, requests)
	t.mu.Lock()
	t.call = call
	t.mu.Unlock()
	return call.run()
}

// run makes a call. After its end it determines when the next one may be made.
func (t *batchAppender) run(conn *grpc.ClientConn) {
	useful, err := t.runCall(conn)
	t.mu.Lock()
	defer t.mu.Unlock()
	if useful {
		t.pause = firstBatchPause
	}
	t.call, t.next = nil, time.Now().Add(t.pause)
	if !useful {
		t.pause = min(2*t.pause, longestBatchPause)
	}
	switch {
	case t.ctx.Err() != nil:
	case status.Code(err) == codes.Unimplemented:
		t.unsupported = true
		t.logger.Info("event store does not support batch appends, using unary appends")
	default:
		t.logger.Warn("batch append stream lost, using unary appends until a retry", "err", err)
	}
}

func (t *batchAppender) close() error {
	t.mu.Lock()
	t.cancel() // no call is begun from here on
	t.mu.Unlock()
	t.running.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.conn == nil {
		return nil
	}
	conn := t.conn
	t.conn = nil
	if err := conn.Close(); err != nil {
		return fmt.Errorf("close the connection of appends: %w", err)
	}
	return nil
}

const (
	// serverTimeout is how long the server may take for one append before it responds that it timed
	// out.
	serverTimeout = 20 * time.Second
	// answerTimeout is how long an append waits for any response. After that the whole call counts as
	// broken.
	answerTimeout = serverTimeout + 10*time.Second
)

var errNoAnswer = errors.New("an append was not answered")

// batchCall is one call that carries the appends of many callers. One goroutine sends, one
// receives.
type batchCall struct {
	ctx           context.Context
	fail          context.CancelCauseFunc
	answerTimeout time.Duration
	call          streams.Streams_BatchAppendClient
	queue         chan *streams.BatchAppendReq

	mu      sync.Mutex
	count   uint64
	waiting map[uint64]chan<- *streams.BatchAppendResp
}

func newBatchCall(
	ctx context.Context, fail context.CancelCauseFunc, call streams.Streams_BatchAppendClient,
) *batchCall {
	return &batchCall{
		ctx:           ctx,
		fail:          fail,
		answerTimeout: answerTimeout,
		call:          call,
		queue:         make(chan *streams.BatchAppendReq, 64),
		waiting:       map[uint64]chan<- *streams.BatchAppendResp{},
	}
}

// append sends an append and waits for its response. It returns nil if the context or the call
// ended first.
func (c *batchCall) append(
	ctx context.Context, stream string, expected eventstore.Revision, events []eventstore.Proposed,
) *streams.BatchAppendResp {
	answer := make(chan *streams.BatchAppendResp, 1)
	c.mu.Lock()
	c.count++
	number := c.count
	c.waiting[number] = answer
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.waiting, number)
		c.mu.Unlock()
	}()
	timeout := serverTimeout
	if until, bounded := ctx.Deadline(); bounded {
		// The caller has left by then, so the server need not try any longer.
		timeout = min(timeout, time.Until(until))
	}
	broken := time.NewTimer(c.answerTimeout)
	defer broken.Stop()
	queue := c.queue
	request := batchRequest(number, stream, expected, events, timeout)
	for {
		select {
		case queue <- request:
			queue = nil // it is sent: wait for the response
		case response := <-answer:
			return response
		case <-broken.C:
			c.fail(errNoAnswer)
			return nil
		case <-ctx.Done():
			return nil
		case <-c.ctx.Done():
			return nil
		}
	}
}

// run sends and receives until the call ends. It returns the reason, and whether an append
// succeeded over the call.
func (c *batchCall) run() (useful bool, why error) {
	var sender sync.WaitGroup
	sender.Go(func() {
		if err := c.send(); err != nil {
			c.fail(err)
		}
	})
	defer sender.Wait()
	defer c.fail(nil)
	for {
		response, err := c.call.Recv()
		if err != nil {
			if cause := context.Cause(c.ctx); cause != nil {
				err = cause
			}
			return useful, err
		}
		useful = useful || response.GetSuccess() != nil
		number := uint64(response.GetCorrelationId().GetStructured().GetLeastSignificantBits())
		if text, is := response.GetCorrelationId().GetValue().(*shared.UUID_String_); is {
			id, _ := uuid.Parse(text.String_) // an invalid id matches no append
			number = binary.BigEndian.Uint64(id[8:])
		}
		c.mu.Lock()
		answer, waits := c.waiting[number]
		delete(c.waiting, number)
		c.mu.Unlock()
		if waits {
			answer <- response
		}
	}
}

// send sends until the call ends. It returns only panics: the receiver gets the reason of a failed
// send.
func (c *batchCall) send() (err error) {
	defer recoverPanic(&err)
	for {
		select {
		case request := <-c.queue:
			if c.call.Send(request) != nil {
				return nil
			}
		case <-c.ctx.Done():
			return nil
		}
	}
}

func batchRequest(
	number uint64, stream string, expected eventstore.Revision, events []eventstore.Proposed, timeout time.Duration,
) *streams.BatchAppendReq {
	options := &streams.BatchAppendReq_Options{
		StreamIdentifier: &shared.StreamIdentifier{StreamName: []byte(stream)},
		DeadlineOption:   &streams.BatchAppendReq_Options_Deadline{Deadline: durationpb.New(timeout)},
	}
	if expected == eventstore.NoStream {
		options.ExpectedStreamPosition = &streams.BatchAppendReq_Options_NoStream{NoStream: &emptypb.Empty{}}
	} else {
		options.ExpectedStreamPosition = &streams.BatchAppendReq_Options_StreamPosition{StreamPosition: uint64(expected)}
	}
	messages := make([]*streams.BatchAppendReq_ProposedMessage, len(events))
	for i, e := range events {
		content := "application/json"
		if e.Type == blob.ChunkType {
			content = "application/octet-stream"
		}
		messages[i] = &streams.BatchAppendReq_ProposedMessage{
			Id: structuredID(
				binary.BigEndian.Uint64(e.ID[:8]), binary.BigEndian.Uint64(e.ID[8:]),
			), Metadata: map[string]string{"type": e.Type, "content-type": content},
			CustomMetadata: e.Meta, Data: e.Data,
		}
	}
	return &streams.BatchAppendReq{
		CorrelationId:    structuredID(0, number),
		Options:          options,
		ProposedMessages: messages,
		IsFinal:          true,
	}
}

func structuredID(most, least uint64) *shared.UUID {
	return &shared.UUID{Value: &shared.UUID_Structured_{Structured: &shared.UUID_Structured{
		MostSignificantBits: int64(most), LeastSignificantBits: int64(least),
	}}}
}
