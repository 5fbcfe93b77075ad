package esdb

import (
	"context"
	"math"
	"sync"

	driver "github.com/EventStore/EventStore-Client-Go/v4/esdb"

	"github.com/annals-project/annals/eventstore"
)

// ReadAll implements eventstore.Store.
func (s *Store) ReadAll(ctx context.Context, after eventstore.Position, limit int) ([]eventstore.Recorded, error) {
	var events []eventstore.Recorded
	// A stretch may hold nothing but system events: then the next one is read, since no events at all means the end.
	for limit > 0 && len(events) == 0 {
		passed, err := s.stretch(ctx, driver.Forwards, allPosition(after), after, limit)
		if err != nil {
			return nil, readError(ctx, "read the log", err)
		}
		events = passed.events
		if passed.ended || passed.last <= after {
			break
		}
		after = passed.last
	}
	return events, nil
}

// passed is what one read of the log passed: its events without those of the system, the positions of the first and the last
// event of any kind (0 where there was none), and whether it came to the end of the log.
type passed struct {
	events      []eventstore.Recorded
	first, last eventstore.Position
	ended       bool
}

// stretch reads up to limit events, and not much more than eventstore.MaxPage bytes, leaving out the event at skip:
// EventStoreDB reads forwards from a position inclusively.
func (s *Store) stretch(ctx context.Context, direction driver.Direction, from driver.AllPosition, skip eventstore.Position, limit int) (passed, error) {
	opts := driver.ReadAllOptions{Direction: direction, From: from, RequiresLeader: true}
	return do(ctx, s.pool, lost, func(ctx context.Context, c *driver.Client) (passed, error) {
		read, err := c.ReadAll(ctx, opts, uint64(limit)+1)
		if err != nil {
			return passed{}, err
		}
		p := passed{ended: true}
		size, count := 0, 0
		err = each(read, func(r eventstore.Recorded) bool {
			if r.Position == skip {
				return true
			}
			if count == limit || size >= eventstore.MaxPage {
				p.ended = false
				return false
			}
			count++
			size += r.Size()
			if p.first == 0 {
				p.first = r.Position
			}
			p.last = r.Position
			if !system(r) {
				p.events = append(p.events, r)
			}
			return true
		})
		p.ended = p.ended && count < limit
		return p, err
	})
}

// headCache remembers how far the end of the log was looked through, so that a long run of system events behind
// the newest event of ours is read once and not at each call.
type headCache struct {
	mu          sync.Mutex
	top, newest eventstore.Position
}

// Head implements eventstore.Store: the newest event that is not the system's, since nobody is ever handed one of those
// and a reader who waits for the head could wait for ever.
func (s *Store) Head(ctx context.Context) (eventstore.Position, error) {
	s.head.mu.Lock()
	knownTop, known := s.head.top, s.head.newest
	s.head.mu.Unlock()

	var top, newest eventstore.Position
	from, limit := driver.AllPosition(driver.End{}), 1
	for newest == 0 {
		p, err := s.stretch(ctx, driver.Backwards, from, math.MaxUint64, limit)
		if err != nil {
			return 0, readError(ctx, "read the head of the log", err)
		}
		if p.last == 0 {
			break
		}
		if top == 0 {
			top = p.first
		}
		if len(p.events) > 0 {
			newest = p.events[0].Position
		}
		// A log that ends before what was seen is an older copy: then nothing that was seen counts.
		if newest <= knownTop && p.last <= knownTop && top >= knownTop {
			newest = max(newest, known)
			break
		}
		if p.ended {
			break
		}
		from, limit = driver.Position{Commit: uint64(p.last), Prepare: uint64(p.last)}, 256
	}

	s.head.mu.Lock()
	defer s.head.mu.Unlock()
	if top >= s.head.top || top < knownTop {
		s.head.top, s.head.newest = top, newest
	}
	return newest, nil
}
