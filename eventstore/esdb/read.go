package esdb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"

	driver "github.com/EventStore/EventStore-Client-Go/v4/esdb"

	"github.com/annals-project/annals/eventstore"
)

// isConnectionLost reports whether the connection of a call was lost. A read is then repeated.
func isConnectionLost(why errorKind) bool {
	return why == unreachable || why == closedHere || why == leftServer
}

// Read implements eventstore.Store.
func (s *Store) Read(
	ctx context.Context, stream string, from eventstore.Revision, direction eventstore.Direction, limit int,
) ([]eventstore.Recorded, error) {
	if limit <= 0 || direction == eventstore.Backwards && from < 0 {
		return nil, nil
	}
	opts := driver.ReadStreamOptions{
		Direction:      driver.Forwards,
		From:           driver.Revision(uint64(max(from, 0))),
		RequiresLeader: true,
	}
	if direction == eventstore.Backwards {
		opts.Direction = driver.Backwards
		if from == math.MaxInt64 {
			opts.From = driver.End{}
		}
	}
	events, err := do(
		ctx,
		s.pool,
		isConnectionLost,
		func(ctx context.Context, c *driver.Client) ([]eventstore.Recorded, error) {
			read, err := c.ReadStream(ctx, stream, opts, uint64(limit))
			if err != nil {
				return nil, err
			}
			var events []eventstore.Recorded
			err = each(read, func(r eventstore.Recorded) bool { events = append(events, r); return true })
			return events, err
		},
	)
	if classify(err) == missing {
		return nil, nil
	}
	if err != nil {
		return nil, readError(ctx, "read "+stream, nameRight(err, eventstore.MayRead, stream))
	}
	return events, nil
}

// ReadLast implements eventstore.Store.
func (s *Store) ReadLast(ctx context.Context, stream string) (eventstore.Recorded, bool, error) {
	events, err := s.Read(ctx, stream, math.MaxInt64, eventstore.Backwards, 1)
	if err != nil || len(events) == 0 {
		return eventstore.Recorded{}, false, err
	}
	return events[0], true, nil
}

// each passes the events of a read to visit, until visit returns false or the read ends.
func each(read *driver.ReadStream, visit func(eventstore.Recorded) bool) error {
	defer read.Close()
	for {
		resolved, err := read.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if r, ok := recorded(resolved); ok && !visit(r) {
			return nil
		}
	}
}

// recorded converts an event; ok is false for a link to an event that no longer exists.
func recorded(resolved *driver.ResolvedEvent) (eventstore.Recorded, bool) {
	e := resolved.OriginalEvent()
	if e == nil {
		return eventstore.Recorded{}, false
	}
	return eventstore.Recorded{
		Stream:   e.StreamID,
		Revision: eventstore.Revision(e.EventNumber),
		Position: eventstore.Position(e.Position.Commit),
		ID:       e.EventID,
		Type:     e.EventType,
		Data:     e.Data,
		Meta:     e.UserMetadata,
		Created:  e.CreatedDate,
	}, true
}

// allPosition is where a read of the log begins. A forward read includes the event at the
// position, a backward read and a subscription do not.
func allPosition(after eventstore.Position) driver.AllPosition {
	if after == 0 {
		return driver.Start{}
	}
	return driver.Position{Commit: uint64(after), Prepare: uint64(after)}
}

// usualReadSize is the initial capacity, in events, of a read of the log.
const usualReadSize = 512

// allStream is the name of the whole log in lists of rights.
const allStream = "$all"

// ReadAll implements eventstore.Store.
func (s *Store) ReadAll(ctx context.Context, after eventstore.Position, limit int) ([]eventstore.Recorded, error) {
	if limit <= 0 {
		return nil, nil
	}
	// Read one event more: the read includes the event at the position itself, which is dropped.
	events, err := s.readLog(ctx, driver.Forwards, allPosition(after), after, limit, uint64(limit)+1)
	if err != nil {
		return nil, readError(ctx, "read the log", nameRight(err, eventstore.MayRead, allStream))
	}
	return events, nil
}

// ReadAt implements eventstore.Store.
func (s *Store) ReadAt(ctx context.Context, at eventstore.Position) (eventstore.Recorded, bool, error) {
	if at == 0 {
		return eventstore.Recorded{}, false, nil
	}
	events, err := s.readLog(ctx, driver.Forwards, allPosition(at), 0, 1, 1)
	if classify(err) == badPosition {
		// A server that has removed an event continues at the next one without an error.
		return eventstore.Recorded{}, false, fmt.Errorf("read the log at %d: %w", at, eventstore.ErrNoEvent)
	}
	if err != nil {
		return eventstore.Recorded{}, false, readError(ctx, "read the log", nameRight(err, eventstore.MayRead, allStream))
	}
	if len(events) == 0 || events[0].Position != at {
		return eventstore.Recorded{}, false, nil
	}
	return events[0], true, nil
}

// Head implements eventstore.Store. The newest event is often one of the system, which readers of
// the whole log reach as well.
func (s *Store) Head(ctx context.Context) (eventstore.Position, error) {
	events, err := s.readLog(ctx, driver.Backwards, driver.End{}, 0, 1, 1)
	if err != nil {
		return 0, readError(ctx, "read the head of the log", nameRight(err, eventstore.MayRead, allStream))
	}
	if len(events) == 0 {
		return 0, nil
	}
	return events[0].Position, nil
}

// readLog reads count events of the log, without the one at skip. It returns at most limit of
// them, and not much more than eventstore.MaxPage bytes.
func (s *Store) readLog(
	ctx context.Context, direction driver.Direction, from driver.AllPosition, skip eventstore.Position, limit int,
	count uint64,
) ([]eventstore.Recorded, error) {
	opts := driver.ReadAllOptions{Direction: direction, From: from, RequiresLeader: true}
	return do(ctx, s.pool, isConnectionLost, func(ctx context.Context, c *driver.Client) ([]eventstore.Recorded, error) {
		read, err := c.ReadAll(ctx, opts, count)
		if err != nil {
			return nil, err
		}
		events := make([]eventstore.Recorded, 0, min(limit, usualReadSize))
		size := 0
		err = each(read, func(r eventstore.Recorded) bool {
			if r.Position != skip {
				events = append(events, r)
				size += r.Size()
			}
			return len(events) < limit && size < eventstore.MaxPage
		})
		return events, err
	})
}

// readAhead is how many events a subscription buffers.
const readAhead = 64

// subscription receives in a separate goroutine, because Recv of the driver takes no context.
type subscription struct {
	cancel context.CancelFunc
	events chan eventstore.Recorded
	// ended is closed once the subscription has ended and err is its reason.
	ended chan struct{}
	err   error
}

// Subscribe implements eventstore.Store.
func (s *Store) Subscribe(ctx context.Context, after eventstore.Position) (eventstore.Subscription, error) {
	following, cancel := context.WithCancel(ctx)
	sub := &subscription{cancel: cancel, events: make(chan eventstore.Recorded, readAhead), ended: make(chan struct{})}
	opened := make(chan struct{})
	// Closing the store ends its subscriptions.
	detach := context.AfterFunc(s.pool.ctx, cancel)
	go func() {
		defer cancel()
		defer detach()
		defer close(sub.ended)
		defer recoverPanic(&sub.err)
		sub.err = s.follow(following, after, sub.events, opened)
	}()
	select {
	case <-opened:
		return sub, nil
	case <-sub.ended:
		return nil, sub.err
	case <-ctx.Done():
		cancel()
		return nil, fmt.Errorf("subscribe to the log: %w", context.Cause(ctx))
	}
}

// follow runs a subscription until it ends, and returns the reason as its error.
func (s *Store) follow(
	ctx context.Context, after eventstore.Position, events chan<- eventstore.Recorded, opened chan<- struct{},
) error {
	const what = "follow the log"
	isOpen := false
	once := func() error {
		l, err := s.pool.acquire(ctx)
		if err != nil {
			return err
		}
		defer s.pool.release(l)
		answered := sync.OnceFunc(s.pool.watch(l)) // an open subscription may have nothing to deliver
		defer answered()
		_, err = callOn(ctx, l, func(ctx context.Context, c *driver.Client) (struct{}, error) {
			sub, err := c.SubscribeToAll(ctx, driver.SubscribeToAllOptions{From: allPosition(after), RequiresLeader: true})
			if err != nil {
				return struct{}{}, err
			}
			answered()
			isOpen = true
			close(opened)
			return struct{}{}, receive(ctx, sub, events)
		})
		s.pool.handleError(l, err)
		return err
	}
	for try := 1; ; try++ {
		err := once()
		why := classify(err)
		if isOpen || try == maxTries || ctx.Err() != nil || !isNotExecuted(why) && !isConnectionLost(why) {
			return readError(ctx, what, nameRight(err, eventstore.MayRead, allStream))
		}
	}
}

// receive passes the events of a subscription on until it is dropped or its context ends.
func receive(ctx context.Context, sub *driver.Subscription, events chan<- eventstore.Recorded) error {
	for {
		got := sub.Recv()
		switch {
		case got.SubscriptionDropped != nil:
			return errors.Join(errDropped, got.SubscriptionDropped.Error, sub.Close())
		case got.EventAppeared == nil:
			// Checkpoints occur with filters only, and "caught up" needs no action.
			continue
		}
		r, ok := recorded(got.EventAppeared)
		if !ok {
			continue
		}
		select {
		case events <- r:
		case <-ctx.Done():
			return errors.Join(ctx.Err(), sub.Close())
		}
	}
}

var errDropped = errors.New("subscription was dropped")

// Next implements eventstore.Subscription.
func (sub *subscription) Next(ctx context.Context) (eventstore.Recorded, error) {
	// Return what was received before the end first.
	select {
	case r := <-sub.events:
		return r, nil
	default:
	}
	select {
	case r := <-sub.events:
		return r, nil
	case <-ctx.Done():
		return eventstore.Recorded{}, context.Cause(ctx)
	case <-sub.ended:
		select {
		case r := <-sub.events:
			return r, nil
		default:
			return eventstore.Recorded{}, sub.err
		}
	}
}

// Close implements eventstore.Subscription. It does not wait, because the driver cannot be stopped
// while it connects.
func (sub *subscription) Close() error {
	sub.cancel()
	return nil
}
