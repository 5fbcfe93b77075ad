package limiter

import (
	"context"
	"sync"
)

// collector writes the calls that arrive while one statement runs with the next statement.
type collector struct {
	write func(ctx context.Context, calls []call) error
	// writing holds a token while a group is written.
	writing chan struct{}
	mu      sync.Mutex
	next    *group
}

// group is the calls of one statement.
type group struct {
	calls []call
	done  chan struct{}
	err   error
}

// add returns once the call is written. If the context ends first, it may be written all the same.
func (c *collector) add(ctx context.Context, one call) error {
	c.mu.Lock()
	own, first := c.next, c.next == nil
	if first {
		own = &group{done: make(chan struct{})}
		c.next = own
	}
	own.calls = append(own.calls, one)
	c.mu.Unlock()
	if first {
		c.lead(ctx, own)
	}
	select {
	case <-own.done:
		return own.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// lead writes a group once the one before it is written. It does not end with its own call, since
// the other calls of the group depend on it.
func (c *collector) lead(ctx context.Context, own *group) {
	c.writing <- struct{}{}
	c.mu.Lock()
	c.next = nil
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	own.err = c.write(ctx, own.calls)
	<-c.writing
	close(own.done)
}
