package commands

import (
	"context"
	"sync"
)

// queues lets one caller at a time work on a name; the others wait their turn or give up with their context.
type queues struct {
	mu    *sync.Mutex
	names map[string]*queue
}

type queue struct {
	turn    chan struct{} // holds one token while nobody works
	callers int
}

func newQueues() queues {
	return queues{mu: new(sync.Mutex), names: make(map[string]*queue)}
}

func (q queues) enter(ctx context.Context, name string) (leave func(), err error) {
	q.mu.Lock()
	own, ok := q.names[name]
	if !ok {
		own = &queue{turn: make(chan struct{}, 1)}
		own.turn <- struct{}{}
		q.names[name] = own
	}
	own.callers++
	q.mu.Unlock()

	forget := func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if own.callers--; own.callers == 0 {
			delete(q.names, name)
		}
	}
	select {
	case <-own.turn:
		return func() { own.turn <- struct{}{}; forget() }, nil
	case <-ctx.Done():
		forget()
		return nil, ctx.Err()
	}
}
