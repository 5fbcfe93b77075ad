package projections

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/feed"
	"github.com/annals-project/annals/internal/panics"
)

// A projector that is far behind is given many pages of the feed as one: the cost of a transaction and of its statements is
// nearly the same for one of 512 events as for one of 4,096. What is read ahead waits as long as a page is at work.
const (
	readEvents = 1024
	mostEvents = 4096
	mostBytes  = 2 * feed.PageBytes
	// readAhead stretches wait decoded: a page of the most events, and what of the next is read while that is applied.
	readAhead = 5
	// A page that takes longer than slowPage is followed by a smaller one, one that takes less than quickPage by a larger one.
	quickPage = 400 * time.Millisecond
	slowPage  = 1500 * time.Millisecond
)

// errUnread is a log that nobody reads on.
var errUnread = errors.New("reading the log ended early")

// stretch is what one read of the log gave: no facts at the end of the log.
type stretch struct {
	facts []eventstore.Fact
	err   error
}

// catchUp applies the log behind a turn until its end or, where it is not 0, until a position; passed is told of each page.
func (r *runner) catchUp(ctx context.Context, t *turn, until eventstore.Position, passed func(events int, at eventstore.Position)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	_, reached, _ := t.at()
	ahead := make(chan stretch, readAhead)
	var reader sync.WaitGroup
	defer reader.Wait()
	defer cancel()
	reader.Go(func() {
		_ = panics.Call(ctx, r.log, "reading the log panicked", func() error { r.read(ctx, reached, ahead); return nil })
	})

	size, ended := feed.PageEvents, false
	for !ended && (until == 0 || reached < until) {
		var facts []eventstore.Fact
		for bytes := 0; len(facts) < size && bytes < mostBytes; {
			s, ok := <-ahead
			if !ok {
				return cmp.Or(ctx.Err(), errUnread)
			}
			if s.err != nil {
				return s.err
			}
			if len(s.facts) == 0 {
				ended = true
				break
			}
			for _, f := range s.facts {
				bytes += f.Size()
			}
			facts = append(facts, s.facts...)
		}
		if len(facts) == 0 {
			return nil
		}
		page := feed.Page{After: reached, Next: facts[len(facts)-1].Position, Facts: facts}
		began := time.Now()
		if err := r.applyAgain(ctx, t, page); err != nil {
			return err
		}
		switch took := time.Since(began); {
		case took > slowPage:
			size = max(size/2, 1)
		case took < quickPage:
			size = min(2*size, mostEvents)
		}
		if reached = page.Next; passed != nil {
			passed(len(facts), reached)
		}
	}
	return nil
}

// applyAgain applies a page until what keeps it from being applied is over.
func (r *runner) applyAgain(ctx context.Context, t *turn, page feed.Page) error {
	began := time.Now()
	for p := newPause(20*time.Millisecond, time.Second); ; p.wait(ctx) {
		err := r.apply(ctx, t, page)
		if _, stops := errors.AsType[*Stop](err); err == nil || stops || errors.Is(err, errStale) {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.failed(page.After, page.Next, began, err)
		r.log.WarnContext(ctx, "page not applied, trying again", "after", page.After, "err", err)
		// Part of it may be committed.
		_, reached, _ := t.at()
		for len(page.Facts) > 0 && page.Facts[0].Position <= reached {
			page.Facts = page.Facts[1:]
		}
		if reached != page.After {
			began = time.Now()
		}
		if page.After = reached; len(page.Facts) == 0 {
			return nil
		}
	}
}

// read reads the log ahead of who applies it, and decodes it while it reads on.
func (r *runner) read(ctx context.Context, after eventstore.Position, out chan<- stretch) {
	defer close(out)
	type raw struct {
		events []eventstore.Recorded
		err    error
	}
	encoded := make(chan raw, 1)
	var decoder sync.WaitGroup
	defer decoder.Wait()
	defer close(encoded)
	decoder.Go(func() {
		for got := range encoded {
			select {
			case out <- stretch{facts: r.decode(got.events), err: got.err}:
			case <-ctx.Done():
			}
		}
	})
	for p := newPause(50*time.Millisecond, time.Second); ctx.Err() == nil; {
		events, err := r.store.ReadAll(ctx, after, readEvents)
		if err != nil && transient(err) && ctx.Err() == nil {
			r.log.WarnContext(ctx, "log not read, trying again", "after", after, "err", err)
			p.wait(ctx)
			continue
		}
		select {
		case encoded <- raw{events, err}:
		case <-ctx.Done():
			return
		}
		if err != nil || len(events) == 0 {
			return
		}
		after = events[len(events)-1].Position
	}
}

// decode decodes what is the projector's, as the feed does for all.
func (r *runner) decode(events []eventstore.Recorded) []eventstore.Fact {
	facts := make([]eventstore.Fact, len(events))
	workers := min(runtime.GOMAXPROCS(0), 4)
	var group sync.WaitGroup
	for w := range workers {
		group.Go(func() {
			for i := w; i < len(events); i += workers {
				if f := (eventstore.Fact{Recorded: events[i]}); events[i].System() || !r.owns(f) {
					facts[i] = f
					if events[i].System() {
						facts[i].Stream = feed.SystemStream
					}
				} else {
					facts[i] = r.codec.Fact(events[i])
				}
			}
		})
	}
	group.Wait()
	return facts
}

// catchUpAlone brings a turn that is far behind near the end of the log, before it takes its pages from the feed with the others.
func (r *runner) catchUpAlone(t *turn) {
	_, reached, _ := t.at()
	first, err := r.store.ReadAll(t.ctx, reached, readEvents)
	if err != nil || len(first) < feed.PageEvents {
		return // what is left is for the feed, which tries again too
	}
	switch err := r.catchUp(t.ctx, t, 0, nil); {
	case err == nil || t.ctx.Err() != nil:
	case errors.Is(err, errStale):
		t.end()
	default:
		if stop, stops := errors.AsType[*Stop](err); stops {
			r.stopped(t.ctx, stop)
			t.end()
			return
		}
		r.log.WarnContext(t.ctx, "did not catch up", "err", err)
	}
}
