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
	// sharedPatience is how long a projection waits for a slower one: as long as a page may take. After
	// that the slower one reads for itself.
	sharedPatience = pageLimit
)

// sharedReads reads and decodes the log once for projections that are rebuilt together. It holds the
// newest reads. A projection that is ahead waits for those that still need the oldest of them.
type sharedReads struct {
	store    eventstore.Store
	codec    *eventstore.Codec
	patience time.Duration

	mu sync.Mutex
	// at is after which position each projection reads next; 0 until it begins.
	at   map[string]eventstore.Position
	held []*sharedRead
	// moved is closed and replaced when a projection moves or leaves.
	moved chan struct{}
}

// sharedRead is a read of the log that is under way or done.
type sharedRead struct {
	after eventstore.Position
	done  chan struct{}
	// Once done is closed. No facts and no error are the end of the log.
	facts []eventstore.DecodedEvent
	err   error
	// bytes is 0 until then; under the mutex of the sharedReads.
	bytes int
}

func newSharedReads(store eventstore.Store, codec *eventstore.Codec, projections []string) *sharedReads {
	s := &sharedReads{
		store: store, codec: codec, patience: sharedPatience,
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
		if n := len(read.facts); n > 0 {
			s.mu.Lock()
			s.at[projection] = read.facts[n-1].Position
			s.announce()
			s.mu.Unlock()
		}
		return read.facts, read.err
	}
}

// find returns the read after a position. own reports that it is new and that the caller must fetch it;
// then find has waited for room.
func (s *sharedReads) find(
	ctx context.Context, projection string, after eventstore.Position,
) (read *sharedRead, own bool, err error) {
	patience := time.NewTimer(s.patience)
	defer patience.Stop()
	for waited := false; ; {
		s.mu.Lock()
		s.at[projection] = after
		if i := slices.IndexFunc(s.held, func(r *sharedRead) bool { return r.after == after }); i >= 0 {
			read = s.held[i]
		} else if s.makeRoom(waited) {
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
		case <-patience.C:
			waited = true
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
}

// makeRoom drops the oldest reads until there is room for one more. It returns false if a projection
// still needs the oldest, unless forced. The caller holds the mutex.
func (s *sharedReads) makeRoom(force bool) bool {
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
		for _, f := range read.facts {
			read.bytes += f.Size()
		}
		if len(read.facts) == 0 {
			s.held = slices.DeleteFunc(s.held, func(r *sharedRead) bool { return r == read })
		}
	}()
	events, err := s.store.ReadAll(ctx, read.after, readEvents)
	read.facts, read.err = decodeAll(events, func(e eventstore.Recorded) eventstore.DecodedEvent {
		return feed.Decode(s.codec, e)
	}), err
}
