// Package turns lets callers of one process work on a thing one after the other, while others work on other things.
package turns

import (
	"context"
	"sync"
)

// Turns gives turns by key. It keeps only the keys that somebody works on or waits for. The zero value is ready.
type Turns[K comparable] struct {
	mu    sync.Mutex
	known map[K]*turn
}

type turn struct {
	free    chan struct{} // holds one token while nobody works
	callers int
}

// Enter waits until nobody else works on the key, however long that takes; the error is the context's. Where there is none,
// leave must be called once.
func (t *Turns[K]) Enter(ctx context.Context, key K) (leave func(), err error) {
	own := t.join(key)
	select {
	case <-own.free:
		return func() { own.free <- struct{}{}; t.forget(key, own) }, nil
	case <-ctx.Done():
		t.forget(key, own)
		return nil, ctx.Err()
	}
}

func (t *Turns[K]) join(key K) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	own, ok := t.known[key]
	if !ok {
		own = &turn{free: make(chan struct{}, 1)}
		own.free <- struct{}{}
		if t.known == nil {
			t.known = make(map[K]*turn)
		}
		t.known[key] = own
	}
	own.callers++
	return own
}

func (t *Turns[K]) forget(key K, own *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if own.callers--; own.callers == 0 {
		delete(t.known, key)
	}
}
