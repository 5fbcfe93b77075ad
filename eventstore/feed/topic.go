package feed

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/annals-project/annals/eventstore"
)

// topic is one reader of the log.
type topic struct {
	name        string
	store       eventstore.Store
	codec       *eventstore.Codec
	checkpoints Checkpoints
	live        *live
	log         *slog.Logger
	out         chan *message.Message

	// cursor is up to where was read: the Next of the page at hand, or further where nothing of ours lies between.
	cursor eventstore.Position
	ahead  *reading

	acked  atomic.Uint64
	joined atomic.Bool
	// trouble is why nothing goes on at present.
	trouble atomic.Pointer[error]
}

// reading is a page of the log that is being read while the one before it is at work.
type reading struct {
	cancel context.CancelFunc
	done   chan struct{}
	facts  []eventstore.Fact
	err    error
}

// run hands over pages until ctx ends; messages lives on until the page that is out has been answered.
func (t *topic) run(ctx, messages context.Context) {
	defer close(t.out)
	defer t.forget()
	for t.rewind(ctx) {
		for {
			page, ok := t.next(ctx)
			if !ok {
				return
			}
			answer := t.deliver(ctx, messages, page)
			if answer == stopped {
				return
			}
			if answer == rewound {
				break
			}
			t.acked.Store(uint64(page.Next))
		}
	}
}

// rewind asks for the checkpoint until it is answered; false means that the context ended.
func (t *topic) rewind(ctx context.Context) bool {
	t.forget()
	var pause backoff
	for ctx.Err() == nil {
		at, err := t.checkpoint(ctx)
		if err == nil {
			t.cursor = at
			t.acked.Store(uint64(at))
			t.trouble.Store(nil)
			return true
		}
		if ctx.Err() == nil {
			t.trouble.Store(&err)
			t.log.ErrorContext(ctx, "topic cannot begin", "err", err)
		}
		pause.wait(ctx)
	}
	return false
}

// checkpoint is where to go on. One that lies behind the end of the log belongs to another log, or to a later state of this one:
// what will be appended below it would never be handed over, so the topic waits there for an operator.
func (t *topic) checkpoint(ctx context.Context) (eventstore.Position, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	at, err := t.checkpoints(ctx, t.name)
	if err != nil {
		return 0, fmt.Errorf("read the checkpoint: %w", err)
	}
	if at <= t.live.reached() {
		return at, nil
	}
	head, err := t.store.Head(ctx)
	if err != nil {
		return 0, fmt.Errorf("read the head: %w", err)
	}
	if at > head {
		return 0, fmt.Errorf("%w: checkpoint %d, end of the log %d", ErrAhead, at, head)
	}
	return at, nil
}

// next waits for the page behind what was acknowledged; false means that the context ended.
func (t *topic) next(ctx context.Context) (Page, bool) {
	var pause backoff
	for ctx.Err() == nil {
		v := t.live.after(t.cursor)
		t.joined.Store(!v.behind)
		switch {
		case v.behind:
			facts, err := t.read(ctx)
			if err != nil {
				if ctx.Err() == nil {
					t.trouble.Store(&err)
					t.log.WarnContext(ctx, "page not read", "after", t.cursor, "err", err)
				}
				pause.wait(ctx)
				continue
			}
			t.trouble.Store(nil)
			if len(facts) == 0 {
				// All between here and the begin of the window was erased: it was there before the log was read.
				t.cursor = max(t.cursor, v.base)
				continue
			}
			page := t.page(facts)
			if page.Next < v.base {
				t.readAhead(ctx)
			}
			return page, true
		case len(v.facts) > 0:
			t.forget()
			return t.page(v.facts), true
		}
		select {
		case <-v.wake:
		case <-ctx.Done():
		}
	}
	return Page{}, false
}

// page makes a page of facts and moves the cursor behind them.
func (t *topic) page(facts []eventstore.Fact) Page {
	next := facts[len(facts)-1].Position
	t.cursor = next
	return Page{After: eventstore.Position(t.acked.Load()), Next: next, Facts: facts, AtHead: next >= t.live.reached()}
}

// read reads the page behind the cursor from the log, or takes the one that is being read already.
func (t *topic) read(ctx context.Context) ([]eventstore.Fact, error) {
	if t.ahead == nil {
		t.readAhead(ctx)
	}
	r := t.ahead
	<-r.done
	t.forget()
	return r.facts, r.err
}

// readAhead begins to read the page behind the cursor.
func (t *topic) readAhead(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	r := &reading{cancel: cancel, done: make(chan struct{})}
	t.ahead = r
	after := t.cursor
	go func() {
		defer close(r.done)
		events, err := t.store.ReadAll(ctx, after, PageEvents)
		if err != nil {
			r.err = err
			return
		}
		r.facts = make([]eventstore.Fact, len(events))
		for i, e := range events {
			r.facts[i] = factOf(t.codec, e)
		}
	}()
}

// forget lets go of a page that was read ahead.
func (t *topic) forget() {
	if t.ahead != nil {
		t.ahead.cancel()
		<-t.ahead.done
		t.ahead = nil
	}
}

// answer is what became of a page.
type answer int

const (
	acknowledged answer = iota
	rewound
	stopped
)

// deliver hands over a page until it is acknowledged.
func (t *topic) deliver(ctx, messages context.Context, page Page) answer {
	var pause backoff
	for try := 0; ctx.Err() == nil; try++ {
		// The first repetition comes at once: most of what fails once is over then.
		if try > 1 {
			pause.wait(ctx)
		}
		msg, d, cancel := messageFor(messages, strconv.FormatUint(uint64(page.Next), 10), page)
		select {
		case t.out <- msg:
		case <-ctx.Done():
			cancel()
			return stopped
		}
		// Whatever ends now: who holds a message answers it, and would lose a Nack if the channel were closed before.
		select {
		case <-msg.Acked():
			cancel()
			return acknowledged
		case <-msg.Nacked():
			cancel()
		}
		if d.rewind.Load() {
			return rewound
		}
	}
	return stopped
}

func (t *topic) status() Status {
	s := Status{Topic: t.name, Position: eventstore.Position(t.acked.Load()), Known: t.live.reached(), Live: t.joined.Load()}
	if err := t.trouble.Load(); err != nil {
		s.Err = *err
	}
	return s
}
