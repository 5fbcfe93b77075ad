// Package keylock serialises the callers of one process that work on the same key.
package keylock

import (
	"context"
	"sync"
)

// Map is a lock for each key. It holds only the keys that are locked or waited for. The zero value
// is ready to use.
type Map[K comparable] struct {
	mu    sync.Mutex
	locks map[K]*lock
}

type lock struct {
	free    chan struct{} // holds one token while nobody works
	callers int
}

// Lock waits for the lock of a key, as long as ctx lasts, and returns the error of ctx otherwise.
// If err is nil, the caller must call unlock once.
func (m *Map[K]) Lock(ctx context.Context, key K) (unlock func(), err error) {
	own := m.join(key)
	select {
	case <-own.free:
		return func() { own.free <- struct{}{}; m.forget(key, own) }, nil
	case <-ctx.Done():
		m.forget(key, own)
		return nil, ctx.Err()
	}
}

func (m *Map[K]) join(key K) *lock {
	m.mu.Lock()
	defer m.mu.Unlock()
	own, ok := m.locks[key]
	if !ok {
		own = &lock{free: make(chan struct{}, 1)}
		own.free <- struct{}{}
		if m.locks == nil {
			m.locks = make(map[K]*lock)
		}
		m.locks[key] = own
	}
	own.callers++
	return own
}

func (m *Map[K]) forget(key K, own *lock) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if own.callers--; own.callers == 0 {
		delete(m.locks, key)
	}
}
