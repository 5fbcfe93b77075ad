package esdb

import (
	"context"
	"encoding/binary"
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

// batchPatience is how long the server may take for one append before it answers that it did not get to it.
const batchPatience = 20 * time.Second

// batchCall is one call that carries appends of many callers. One goroutine sends, one receives.
type batchCall struct {
	ctx   context.Context
	call  streams.Streams_BatchAppendClient
	queue chan *streams.BatchAppendReq

	mu      sync.Mutex
	count   uint64
	waiting map[uint64]chan<- *streams.BatchAppendResp
}

func newBatchCall(ctx context.Context, call streams.Streams_BatchAppendClient) *batchCall {
	return &batchCall{ctx: ctx, call: call, queue: make(chan *streams.BatchAppendReq, 64), waiting: map[uint64]chan<- *streams.BatchAppendResp{}}
}

// ask sends an append and waits for its answer: nil where none came before the context or the call ended.
func (c *batchCall) ask(ctx context.Context, stream string, expected eventstore.Revision, events []eventstore.Proposed) *streams.BatchAppendResp {
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
	select {
	case c.queue <- batchRequest(number, stream, expected, events):
	case <-ctx.Done():
		return nil
	case <-c.ctx.Done():
		return nil
	}
	select {
	case response := <-answer:
		return response
	case <-ctx.Done():
		return nil
	case <-c.ctx.Done():
		return nil
	}
}

// run sends and receives until the call ends, and says why it did.
func (c *batchCall) run(cancel context.CancelFunc) error {
	var sender sync.WaitGroup
	sender.Go(func() {
		for {
			select {
			case request := <-c.queue:
				// Why the call cannot be sent on is what the receiver is told.
				if c.call.Send(request) != nil {
					return
				}
			case <-c.ctx.Done():
				return
			}
		}
	})
	defer sender.Wait()
	defer cancel()
	for {
		response, err := c.call.Recv()
		if err != nil {
			return err
		}
		number := uint64(response.GetCorrelationId().GetStructured().GetLeastSignificantBits())
		if text, is := response.GetCorrelationId().GetValue().(*shared.UUID_String_); is {
			id, _ := uuid.Parse(text.String_) // one that is none is nobody's
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

func batchRequest(number uint64, stream string, expected eventstore.Revision, events []eventstore.Proposed) *streams.BatchAppendReq {
	options := &streams.BatchAppendReq_Options{
		StreamIdentifier: &shared.StreamIdentifier{StreamName: []byte(stream)},
		DeadlineOption:   &streams.BatchAppendReq_Options_Deadline{Deadline: durationpb.New(batchPatience)},
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
			Id: halves(binary.BigEndian.Uint64(e.ID[:8]), binary.BigEndian.Uint64(e.ID[8:])), Metadata: map[string]string{"type": e.Type, "content-type": content},
			CustomMetadata: e.Meta, Data: e.Data,
		}
	}
	return &streams.BatchAppendReq{CorrelationId: halves(0, number), Options: options, ProposedMessages: messages, IsFinal: true}
}

func halves(most, least uint64) *shared.UUID {
	return &shared.UUID{Value: &shared.UUID_Structured_{Structured: &shared.UUID_Structured{
		MostSignificantBits: int64(most), LeastSignificantBits: int64(least),
	}}}
}
