package runner

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/eventstore/feed"
	"github.com/annals-project/annals/internal/panics"
)

// A projector that lags far gets pages larger than those of the feed: a transaction costs nearly
// the same for 512 events as for 4,096. The reader reads ahead while a page is applied.
const (
	readEvents = 1024
	maxEvents  = 4096
	maxBytes   = 2 * feed.PageBytes
	// readAhead is how many decoded reads wait: a page of maxEvents, and part of the next.
	readAhead = 5
	// A page slower than slowPage is followed by a smaller one, a page faster than quickPage by a
	// larger one.
	quickPage = 400 * time.Millisecond
	slowPage  = 1500 * time.Millisecond
)

// errReadEnded means that the reader ended before the log did.
var errReadEnded = errors.New("reading the log ended early")

// logRead is the result of one read of the log: no events at its end.
type logRead struct {
	events []eventstore.DecodedEvent
	err    error
}

// logEnd is the end of a catch-up: a position, or 0 for the end of the log. If it is not exact, the
// whole page with the position is applied.
type logEnd struct {
	at    eventstore.Position
	exact bool
}

// cut returns the events up to an exact end.
func (e logEnd) cut(events []eventstore.DecodedEvent) []eventstore.DecodedEvent {
	for n := len(events); e.exact && n > 0 && events[n-1].Position > e.at; n = len(events) {
		events = events[:n-1]
	}
	return events
}

// catchUp applies the log from the position of the lease to an end. It calls passed, if set, after
// each page.
func (r *runner) catchUp(ctx context.Context, l *lease, until logEnd,
	passed func(events int, at eventstore.Position),
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	_, reached, _ := l.at()
	ahead := make(chan logRead, readAhead)
	var reader sync.WaitGroup
	defer reader.Wait()
	defer cancel()
	read := r.read
	if r.shared != nil {
		read = r.readShared
	}
	reader.Go(func() {
		_ = panics.Call(ctx, r.log, "reading the log panicked", func() error { read(ctx, reached, ahead); return nil })
	})

	size, ended := feed.PageEvents, false
	for !ended && (until.at == 0 || reached < until.at) {
		if err := ctx.Err(); err != nil {
			return err // what was read ahead is not applied
		}
		var events []eventstore.DecodedEvent
		for bytes := 0; len(events) < size && bytes < maxBytes; {
			s, ok := <-ahead
			if !ok {
				return cmp.Or(ctx.Err(), errReadEnded)
			}
			if s.err != nil {
				return s.err
			}
			if len(s.events) == 0 {
				ended = true
				break
			}
			for _, f := range s.events {
				bytes += f.Size()
			}
			events = append(events, s.events...)
		}
		if events = until.cut(events); len(events) == 0 {
			return nil
		}
		page := feed.Page{After: reached, Next: events[len(events)-1].Position, Events: events}
		began := time.Now()
		if err := r.applyRetrying(ctx, l, page); err != nil {
			return err
		}
		switch took := time.Since(began); {
		case took > slowPage:
			size = max(size/2, 1)
		case took < quickPage:
			size = min(2*size, maxEvents)
		}
		if reached = page.Next; passed != nil {
			passed(len(events), reached)
		}
	}
	return nil
}

// applyRetrying applies a page, and retries while its failures are transient.
func (r *runner) applyRetrying(ctx context.Context, l *lease, page feed.Page) error {
	began := time.Now()
	for p := (backoff.Backoff{First: 20 * time.Millisecond, Longest: 5 * time.Second}); ; _ = p.Wait(ctx) {
		err := r.applyPage(ctx, l, page)
		if _, stops := errors.AsType[*Stop](err); err == nil || stops || errors.Is(err, errStale) {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.recordFailure(page.After, page.Next, began, err)
		r.log.WarnContext(ctx, "page not applied, will retry", "after", page.After, "err", err)
		// The first part of the page may be committed.
		_, reached, _ := l.at()
		for len(page.Events) > 0 && page.Events[0].Position <= reached {
			page.Events = page.Events[1:]
		}
		if reached != page.After {
			began = time.Now()
		}
		if page.After = reached; len(page.Events) == 0 {
			return nil
		}
	}
}

// read reads the log ahead, and decodes one read during the next.
func (r *runner) read(ctx context.Context, after eventstore.Position, out chan<- logRead) {
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
			case out <- logRead{events: decodeAll(got.events, r.decode), err: got.err}:
			case <-ctx.Done():
			}
		}
	})
	for p := (backoff.Backoff{First: 50 * time.Millisecond, Longest: time.Second}); ctx.Err() == nil; {
		events, err := r.store.ReadAll(ctx, after, readEvents)
		if err != nil && transient(err) && ctx.Err() == nil {
			r.log.WarnContext(ctx, "read of the log failed, will retry", "after", after, "err", err)
			_ = p.Wait(ctx)
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

// readShared is read together with other projections.
func (r *runner) readShared(ctx context.Context, after eventstore.Position, out chan<- logRead) {
	defer close(out)
	defer r.shared.leave(r.projector.Name())
	for p := (backoff.Backoff{First: 50 * time.Millisecond, Longest: time.Second}); ctx.Err() == nil; {
		events, err := r.shared.next(ctx, r.projector.Name(), after)
		if err != nil && transient(err) && ctx.Err() == nil {
			r.log.WarnContext(ctx, "read of the log failed, will retry", "after", after, "err", err)
			_ = p.Wait(ctx)
			continue
		}
		select {
		case out <- logRead{events, err}:
		case <-ctx.Done():
			return
		}
		if err != nil || len(events) == 0 {
			return
		}
		after = events[len(events)-1].Position
	}
}

// decode decodes the projector's events and those of the store.
func (r *runner) decode(e eventstore.Recorded) eventstore.DecodedEvent {
	if f := (eventstore.DecodedEvent{Recorded: e}); !e.System() && !r.owns(&f) {
		return f
	}
	return feed.Decode(r.codec, e)
}

// decodeAll decodes events on several processors.
func decodeAll(
	events []eventstore.Recorded, decode func(eventstore.Recorded) eventstore.DecodedEvent,
) []eventstore.DecodedEvent {
	decoded := make([]eventstore.DecodedEvent, len(events))
	workers := min(runtime.GOMAXPROCS(0), 4)
	var group sync.WaitGroup
	for w := range workers {
		group.Go(func() {
			for i := w; i < len(events); i += workers {
				decoded[i] = decode(events[i])
			}
		})
	}
	group.Wait()
	return decoded
}

// catchUpFirst applies most of a long lag in large pages, before the lease takes its pages from the
// feed.
func (r *runner) catchUpFirst(l *lease) {
	_, reached, _ := l.at()
	first, err := r.store.ReadAll(l.ctx, reached, readEvents)
	if err != nil || len(first) < feed.PageEvents {
		return // the feed delivers the rest, and retries
	}
	switch err := r.catchUp(l.ctx, l, logEnd{}, nil); {
	case err == nil || l.ctx.Err() != nil:
	case errors.Is(err, errStale):
		l.end()
	default:
		if stop, stops := errors.AsType[*Stop](err); stops {
			r.recordStop(l.ctx, stop)
			l.end()
			return
		}
		r.log.WarnContext(l.ctx, "catch-up ended early, the feed delivers the rest", "err", err)
	}
}

// The bounds of what sharedReads holds. One read may exceed the bytes by itself.
const (
	sharedReadsHeld = 16
	sharedBytesHeld = 4 * feed.PageBytes
	// sharedTimeout is how long a projection waits for a slower one: as long as a page may take.
	// After that the slower one reads separately.
	sharedTimeout = pageLimit
)

// sharedReads reads and decodes the log once for projections that are rebuilt together. It holds the
// newest reads. A projection that is ahead waits for those that still need the oldest of them.
type sharedReads struct {
	store   eventstore.Store
	codec   *eventstore.Codec
	timeout time.Duration

	mu sync.Mutex
	// at is after which position each projection reads next; 0 until it begins.
	at   map[string]eventstore.Position
	held []*sharedRead
	// moved is closed and replaced when a projection moves or leaves.
	moved chan struct{}
}

// sharedRead is a read of the log, in progress or done.
type sharedRead struct {
	after eventstore.Position
	done  chan struct{}
	// The following fields are valid once done is closed. Neither events nor an error mean the end of
	// the log.
	events []eventstore.DecodedEvent
	err    error
	// bytes is 0 before that. The mutex of the sharedReads guards it.
	bytes int
}

func newSharedReads(store eventstore.Store, codec *eventstore.Codec, projections []string) *sharedReads {
	s := &sharedReads{
		store: store, codec: codec, timeout: sharedTimeout,
		at: map[string]eventstore.Position{}, moved: make(chan struct{}),
	}
	for _, name := range projections {
		s.at[name] = 0
	}
	return s
}

// leave ends what others wait for until the projection reads again.
func (s *sharedReads) leave(projection string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.at, projection)
	s.announce()
}

// announce wakes those that wait for a slower projection. The caller holds the mutex.
func (s *sharedReads) announce() {
	close(s.moved)
	s.moved = make(chan struct{})
}

// next returns the events after a position, of all categories; none at the end of the log.
func (s *sharedReads) next(
	ctx context.Context, projection string, after eventstore.Position,
) ([]eventstore.DecodedEvent, error) {
	for {
		read, own, err := s.find(ctx, projection, after)
		if err != nil {
			return nil, err
		}
		if own {
			s.fetch(ctx, read)
		}
		select {
		case <-read.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if read.err != nil && !own {
			continue // the projection that read may have ended
		}
		if n := len(read.events); n > 0 {
			s.mu.Lock()
			s.at[projection] = read.events[n-1].Position
			s.announce()
			s.mu.Unlock()
		}
		return read.events, read.err
	}
}

// find returns the read after a position. own reports that the read is new, so the caller must
// fetch it. Before that, find waits for room.
func (s *sharedReads) find(
	ctx context.Context, projection string, after eventstore.Position,
) (read *sharedRead, own bool, err error) {
	timer := time.NewTimer(s.timeout)
	defer timer.Stop()
	for waited := false; ; {
		s.mu.Lock()
		s.at[projection] = after
		if i := slices.IndexFunc(s.held, func(r *sharedRead) bool { return r.after == after }); i >= 0 {
			read = s.held[i]
		} else if s.evict(waited) {
			read, own = &sharedRead{after: after, done: make(chan struct{})}, true
			s.held = append(s.held, read)
		}
		moved := s.moved
		s.mu.Unlock()
		if read != nil {
			return read, own, nil
		}
		select {
		case <-moved:
		case <-timer.C:
			waited = true
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
}

// evict drops the oldest reads until there is room for one more. It returns false if a projection
// still needs the oldest, unless forced. The caller holds the mutex.
func (s *sharedReads) evict(force bool) bool {
	bytes := 0
	for _, r := range s.held {
		bytes += r.bytes
	}
	for len(s.held) >= sharedReadsHeld || bytes >= sharedBytesHeld {
		for _, at := range s.at {
			if at == s.held[0].after && !force {
				return false
			}
		}
		bytes -= s.held[0].bytes
		s.held = slices.Delete(s.held, 0, 1)
	}
	return true
}

// fetch reads and decodes. It holds neither the end of the log nor a failure.
func (s *sharedReads) fetch(ctx context.Context, read *sharedRead) {
	read.err = errReadEnded // unless it returns
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		defer close(read.done)
		for _, f := range read.events {
			read.bytes += f.Size()
		}
		if len(read.events) == 0 {
			s.held = slices.DeleteFunc(s.held, func(r *sharedRead) bool { return r == read })
		}
	}()
	events, err := s.store.ReadAll(ctx, read.after, readEvents)
	read.events, read.err = decodeAll(events, func(e eventstore.Recorded) eventstore.DecodedEvent {
		return feed.Decode(s.codec, e)
	}), err
}
