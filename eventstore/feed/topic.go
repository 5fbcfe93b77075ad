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
	checkpoints Checkpoints
	live        *live
	pages       *pages
	log         *slog.Logger
	out         chan *message.Message

	// cursor is up to where was read: the Next of the page at hand, or further where nothing of ours lies between.
	cursor eventstore.Position
	// behind is true while pages come from the log; ahead is the one that is being read while the one before it is at work.
	behind bool
	ahead  *reading

	acked  atomic.Uint64
	joined atomic.Bool
	// trouble is why nothing goes on at present.
	trouble atomic.Pointer[error]
}

// run hands over pages until ctx ends; messages lives on until the page that is out has been answered.
func (t *topic) run(ctx, messages context.Context) {
	defer close(t.out)
	defer t.place(false)
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
	t.ahead = nil
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
		t.place(v.behind)
		switch {
		case v.behind:
			r, fresh := t.reading()
			select {
			case <-r.done:
			case <-ctx.Done():
				return Page{}, false
			}
			if r.err != nil {
				t.trouble.Store(&r.err)
				t.log.WarnContext(ctx, "page not read", "after", t.cursor, "err", r.err)
				pause.wait(ctx)
				continue
			}
			t.trouble.Store(nil)
			if len(r.facts) == 0 {
				if fresh {
					// The window was there before the log was read: all between here and its begin was erased.
					t.cursor = max(t.cursor, v.base)
				}
				continue
			}
			page := t.page(r.facts)
			if page.Next < v.base {
				t.ahead, _ = t.pages.read(t.cursor)
			}
			return page, true
		case len(v.facts) > 0:
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

// reading is the page behind the cursor, which may be at hand already; fresh says that it was asked for only now.
func (t *topic) reading() (r *reading, fresh bool) {
	if r, t.ahead = t.ahead, nil; r != nil && r.after == t.cursor {
		return r, false
	}
	return t.pages.read(t.cursor)
}

// place notes whether the topic reads the log for itself.
func (t *topic) place(behind bool) {
	switch {
	case behind && !t.behind:
		t.pages.enter()
	case !behind && t.behind:
		t.ahead = nil
		t.pages.leave()
	}
	t.behind = behind
	t.joined.Store(!behind)
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
