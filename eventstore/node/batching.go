package node

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/google/uuid"
)

// The bounds of one BatchAppend call.
const (
	// batchAnswers is how many appends may wait for their answer; then the call is read on only as they are answered.
	batchAnswers = 256
	// batchParts is how many appends may be there in part, and batchPartBytes how much memory they may take.
	batchParts     = 256
	batchPartBytes = 16 << 20
)

// BatchAppend takes any number of appends over one call, each in one part or several, and answers each by its
// correlation id. What is wrong with one append is its own answer and concerns no other. Appends are decided in the
// order in which their last parts came.
func (s *service) BatchAppend(call streams.Streams_BatchAppendServer) error {
	ctx, cancel := context.WithCancel(call.Context())
	b := &batches{service: s, ctx: ctx, parts: map[uuid.UUID]*batch{}, answers: make(chan *batch, batchAnswers), received: make(chan struct{})}
	go func() {
		defer close(b.received)
		b.failure = b.receive(call)
	}()
	err := b.serve(call)
	cancel()
	go b.abandon() // the receiver ends once this call has
	return s.node.fail(call, err)
}

// batches is the state of one BatchAppend call. One goroutine receives and hands to the writer, another one answers.
type batches struct {
	service *service
	ctx     context.Context
	answers chan *batch // in the order in which they were submitted
	// received is closed once no more parts come; failure says why.
	received chan struct{}
	failure  error

	mu        sync.Mutex
	parts     map[uuid.UUID]*batch
	partBytes int
}

// serve answers appends until the client has sent the last one and all are answered, or the node closes.
func (b *batches) serve(call streams.Streams_BatchAppendServer) error {
	for {
		select {
		case a := <-b.answers:
			if err := b.answer(call, a); err != nil {
				return err
			}
		case <-b.received:
			return errors.Join(b.rest(call), b.failure)
		case <-b.service.node.closing:
			return errors.Join(b.rest(call), errClosing)
		}
	}
}

// rest answers what was submitted.
func (b *batches) rest(call streams.Streams_BatchAppendServer) error {
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

// abandon gives back what appends hold that nobody waits for any more.
func (b *batches) abandon() {
	<-b.received
	b.mu.Lock()
	for id, a := range b.parts {
		b.forget(id, a)
	}
	b.mu.Unlock()
	for {
		select {
		case a := <-b.answers:
			a.place.leave()
		default:
			return
		}
	}
}

// receive takes parts until the client has sent the last one.
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
			return errInvalid("every part of an append bears the correlation id of its append, a uuid")
		}
		if a := b.collect(id, part); a != nil {
			if err := b.submit(a); err != nil {
				return err
			}
		}
	}
}

// collect adds a part to its append, and returns the append if that is now to be written or refused.
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
			b.keep(id, a)
		}
	}
	if a.answered {
		if part.GetIsFinal() {
			b.forget(id, a)
		}
		return nil
	}
	before := a.size
	a.add(part.GetProposedMessages())
	if part.GetIsFinal() {
		b.forget(id, a)
	} else if a.refused == nil {
		a.held += a.size - before
		b.partBytes += a.size - before
		if b.partBytes <= batchPartBytes {
			return nil
		}
		a.refuse(statusBusy())
	}
	b.settle(a)
	return a
}

// keep remembers an append that is there in part, until its last part or its deadline.
func (b *batches) keep(id uuid.UUID, a *batch) {
	if len(b.parts) >= batchParts {
		a.refuse(statusBusy())
		return
	}
	b.parts[id] = a
	a.expiry = time.AfterFunc(time.Until(a.deadline), func() { b.expire(id, a) })
}

// settle says that the answer of an append is on its way; parts of it that still come are passed over.
func (b *batches) settle(a *batch) {
	b.partBytes -= a.held
	a.held, a.answered = 0, true
}

func (b *batches) forget(id uuid.UUID, a *batch) {
	if b.parts[id] == a {
		delete(b.parts, id)
		a.expiry.Stop()
	}
}

// expire refuses an append whose last part did not come in time.
func (b *batches) expire(id uuid.UUID, a *batch) {
	b.mu.Lock()
	late := b.parts[id] == a && !a.answered
	b.forget(id, a)
	if late {
		a.refuse(statusTimeout())
		b.settle(a)
	}
	b.mu.Unlock()
	if late {
		_ = b.enqueue(a) // where the call has ended, nobody waits for it
	}
}

// submit hands a whole append to the writer. An error ends the call.
func (b *batches) submit(a *batch) error {
	if a.refused == nil {
		if a.size > smallAppend {
			if err := a.place.take(b.ctx, b.service.large); err != nil {
				return err
			}
		}
		if err := b.service.node.writer.submit(b.ctx, a.request); err != nil {
			a.place.leave()
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
		a.place.leave()
		return b.ctx.Err()
	}
}

// answer waits for what became of an append, and says it.
func (b *batches) answer(call streams.Streams_BatchAppendServer, a *batch) error {
	if a.refused != nil {
		return call.Send(a.error(a.refused))
	}
	d, err := b.await(a)
	a.place.leave()
	if err != nil {
		return call.Send(a.error(b.service.node.statusOf(err)))
	}
	return call.Send(a.response(d))
}

// await waits for the decision of an append, until its deadline. Most answers of a group are there when the first one is.
func (b *batches) await(a *batch) (decision, error) {
	select {
	case d := <-a.request.answer:
		return d, d.failure
	default:
	}
	ctx, cancel := context.WithDeadline(b.ctx, a.deadline)
	defer cancel()
	return b.service.node.writer.await(ctx, a.request)
}
