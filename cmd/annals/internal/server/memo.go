package server

import (
	"context"
	"sync"
	"time"
)

// memoTime is how long the operation routes answer from one reading, however many callers there are.
const memoTime = time.Second

// memo keeps the result of one reading for memoTime. Callers that come meanwhile wait for the reading that runs.
type memo[T any] struct {
	now func() time.Time
	// read gets a context that ends after checkTimeout.
	read func(ctx context.Context) T

	mu    sync.Mutex
	at    time.Time
	value T
}

// newMemo measures the age of a reading by the clock of the machine, since that of a test may stand still.
func newMemo[T any](read func(context.Context) T) *memo[T] {
	return &memo[T]{now: time.Now, read: read}
}

// get returns the last result, or that of a new reading. It takes no context: a caller that leaves must not end a
// reading for which others wait.
func (m *memo[T]) get() T {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.at.IsZero() || m.now().Sub(m.at) >= memoTime {
		ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
		defer cancel()
		m.value = m.read(ctx)
		m.at = m.now() // after it: else each caller that waited for a slow reading would make one
	}
	return m.value
}

// gatherOnce gathers metrics at most once in memoTime.
func gatherOnce[T any](gather func() ([]T, error)) func() ([]T, error) {
	type result struct {
		families []T
		err      error
	}
	once := newMemo(func(context.Context) (r result) {
		r.families, r.err = gather()
		return r
	})
	return func() ([]T, error) {
		r := once.get()
		return r.families, r.err
	}
}
