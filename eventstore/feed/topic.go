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
	logger      *slog.Logger
	// most is how many events a page from the live subscription may have.
	most int
	out  chan *message.Message

	// cursor is the position up to which the log was read: the Next of the current page, or further
	// if nothing of interest follows.
	cursor eventstore.Position
	// lagging is true while pages come from the log; prefetched is the next one, which is read
	// while a handler works on the current one.
	lagging    bool
	prefetched *pageRead

	acked  atomic.Uint64
	joined atomic.Bool
	// lastErr is the reason why no page is delivered.
	lastErr atomic.Pointer[error]
}

// run delivers pages until ctx ends; messages stays valid until the page in progress is answered.
func (t *topic) run(ctx, messages context.Context) {
	defer close(t.out)
	defer t.setLagging(false)
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

// rewind reads the checkpoint until it succeeds; false means that the context ended.
func (t *topic) rewind(ctx context.Context) bool {
	t.prefetched = nil
	pause := newPause()
	for ctx.Err() == nil {
		at, err := t.checkpoint(ctx)
		if err == nil {
			t.cursor = at
			t.acked.Store(uint64(at))
			t.lastErr.Store(nil)
			return true
		}
		if ctx.Err() == nil {
			t.lastErr.Store(&err)
			t.logger.ErrorContext(ctx, "topic cannot begin", "err", err)
		}
		_ = pause.Wait(ctx)
	}
	return false
}

// checkpoint returns where to continue. A checkpoint after the end of the log belongs to another
// log, or to a later state of this one: events that are appended below it would never be delivered,
// so the topic waits for an operator.
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

// next waits for the page after the last one; false means that the context ended.
func (t *topic) next(ctx context.Context) (Page, bool) {
	pause := newPause()
	for ctx.Err() == nil {
		v := t.live.after(t.cursor, t.most)
		t.setLagging(v.evicted)
		switch {
		case v.evicted:
			r, fresh := t.nextRead()
			select {
			case <-r.done:
			case <-ctx.Done():
				return Page{}, false
			}
			if r.err != nil {
				t.lastErr.Store(&r.err)
				t.logger.WarnContext(ctx, "page not read", "after", t.cursor, "err", r.err)
				_ = pause.Wait(ctx)
				continue
			}
			t.lastErr.Store(nil)
			if len(r.events) == 0 {
				if fresh {
					// The window existed before the log was read: everything up to its beginning
					// was erased.
					t.cursor = max(t.cursor, v.base)
				}
				continue
			}
			page := t.page(r.events)
			if page.Next < v.base {
				t.prefetched, _ = t.pages.read(t.cursor)
			}
			return page, true
		case len(v.events) > 0:
			return t.page(v.events), true
		}
		select {
		case <-v.wake:
		case <-ctx.Done():
		}
	}
	return Page{}, false
}

// page makes a page of events and moves the cursor after them.
func (t *topic) page(events []eventstore.DecodedEvent) Page {
	next := events[len(events)-1].Position
	t.cursor = next
	return Page{After: eventstore.Position(t.acked.Load()), Next: next, Events: events, AtHead: next >= t.live.reached()}
}

// nextRead returns the read of the page after the cursor, which may have been prefetched; fresh
// reports that it was started now.
func (t *topic) nextRead() (r *pageRead, fresh bool) {
	if r, t.prefetched = t.prefetched, nil; r != nil && r.after == t.cursor {
		return r, false
	}
	return t.pages.read(t.cursor)
}

// setLagging records whether the topic reads the log itself.
func (t *topic) setLagging(lagging bool) {
	switch {
	case lagging && !t.lagging:
		t.pages.enter()
	case !lagging && t.lagging:
		t.prefetched = nil
		t.pages.leave()
	}
	t.lagging = lagging
	t.joined.Store(!lagging)
}

// answer is the result of a delivery.
type answer int

const (
	acknowledged answer = iota
	rewound
	stopped
)

// deliver delivers a page until it is acknowledged.
func (t *topic) deliver(ctx, messages context.Context, page Page) answer {
	pause := newPause()
	for try := 0; ctx.Err() == nil; try++ {
		// Repeat the first time at once: most failures have passed by then.
		if try > 1 {
			_ = pause.Wait(ctx)
		}
		msg, d, cancel := messageFor(messages, strconv.FormatUint(uint64(page.Next), 10), page)
		select {
		case t.out <- msg:
		case <-ctx.Done():
			cancel()
			return stopped
		}
		// Wait for the answer even if the topic ends: closing the channel earlier would lose a
		// Nack.
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
	s := Status{
		Topic:    t.name,
		Position: eventstore.Position(t.acked.Load()),
		Known:    t.live.reached(),
		Live:     t.joined.Load(),
	}
	if err := t.lastErr.Load(); err != nil {
		s.Err = *err
	}
	return s
}
