package esdb

import (
	"context"
	"errors"
	"fmt"
	"sync"

	driver "github.com/EventStore/EventStore-Client-Go/v4/esdb"

	"github.com/annals-project/annals/eventstore"
)

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
