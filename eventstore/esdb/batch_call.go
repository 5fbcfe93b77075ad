package esdb

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/eventstore"
)

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
