package runner

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/feed"
)

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
