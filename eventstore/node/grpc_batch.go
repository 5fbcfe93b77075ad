package node

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/google/uuid"

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
