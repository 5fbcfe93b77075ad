package usage

import (
	"context"
	"sync"
)

// gatherer lets calls that come while one statement runs share the next one.
type gatherer struct {
	write func(ctx context.Context, calls []recalled) error
	// turn is held by the group that is being written.
	turn chan struct{}
	mu   sync.Mutex
	next *group
}

// group is the calls of one statement.
type group struct {
	calls []recalled
	done  chan struct{}
	err   error
}

// add returns once the call is written, or the context ends; then it may be written all the same.
func (g *gatherer) add(ctx context.Context, call recalled) error {
	g.mu.Lock()
	own, first := g.next, g.next == nil
	if first {
		own = &group{done: make(chan struct{})}
		g.next = own
	}
	own.calls = append(own.calls, call)
	g.mu.Unlock()
	if first {
		g.lead(ctx, own)
	}
	select {
	case <-own.done:
		return own.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// lead writes a group once the one before it is written. The others rest on it, so it does not end with its own call.
func (g *gatherer) lead(ctx context.Context, own *group) {
	g.turn <- struct{}{}
	g.mu.Lock()
	g.next = nil
	g.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	own.err = g.write(ctx, own.calls)
	<-g.turn
	close(own.done)
}
