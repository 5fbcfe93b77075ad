// Package sharedread answers what callers look up at the same time with one read.
package sharedread

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/annals-project/annals/internal/panics"
)

const (
	// width is how many reads run at a time. With more than one, a read that waits for a lock holds up few.
	width = 4
	// most is the most keys of a read.
	most = 256
	// timeout bounds a read, which no caller ends: others may wait for it.
	timeout = 15 * time.Second
)

// Reads shares reads between callers. While as many reads run as may, what further callers ask for is gathered, and
// read together by the next. No caller gets the result of a read that began before its call, so what was changed before
// the call is seen. It is safe for concurrent use.
type Reads[K comparable, V any] struct {
	read   func(ctx context.Context, keys []K) (map[K]V, error)
	logger *slog.Logger

	mu      sync.Mutex
	running int
	waiting []*round[K, V] // in the order in which they are read; the last may get further keys
}

// round is one read and its callers.
type round[K comparable, V any] struct {
	keys  []K
	known map[K]struct{} // the keys
	// callers are those that wait for it.
	callers int
	done    chan struct{}
	found   map[K]V // readable once done is closed, as err is
	err     error
}

// New shares the calls of read, which returns the values of the keys that have one.
func New[K comparable, V any](
	logger *slog.Logger, read func(ctx context.Context, keys []K) (map[K]V, error),
) *Reads[K, V] {
	return &Reads[K, V]{read: read, logger: logger}
}

// Get returns the values that a read found, which may be of more keys than asked for. The caller must not change the
// map. An error of the read is that of all its callers.
func (r *Reads[K, V]) Get(ctx context.Context, keys ...K) (map[K]V, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	in := r.join(ctx, keys)
	select {
	case <-in.done:
		return in.found, in.err
	case <-ctx.Done():
		r.leave(in)
		return nil, ctx.Err()
	}
}

// leave takes a caller out of its round. A round without callers is not read, so that what waits for a slow read is
// bounded by the calls that are under way.
func (r *Reads[K, V]) leave(in *round[K, V]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if in.callers--; in.callers == 0 {
		r.waiting = slices.DeleteFunc(r.waiting, func(other *round[K, V]) bool { return other == in })
	}
}

// join adds keys to the next round, and starts it if one more may run.
func (r *Reads[K, V]) join(ctx context.Context, keys []K) *round[K, V] {
	r.mu.Lock()
	defer r.mu.Unlock()
	var in *round[K, V]
	if n := len(r.waiting); n > 0 && len(r.waiting[n-1].keys)+len(keys) <= most {
		in = r.waiting[n-1]
	} else {
		in = &round[K, V]{known: make(map[K]struct{}, len(keys)), done: make(chan struct{})}
		r.waiting = append(r.waiting, in)
	}
	in.callers++
	for _, key := range keys {
		if _, is := in.known[key]; !is {
			in.known[key], in.keys = struct{}{}, append(in.keys, key)
		}
	}
	if r.running < width {
		r.running++
		panics.Go(context.WithoutCancel(ctx), r.logger, "shared reads panicked", r.run)
	}
	return in
}

// run reads one round after the other until none waits.
func (r *Reads[K, V]) run() {
	for {
		r.mu.Lock()
		if len(r.waiting) == 0 {
			r.running--
			r.mu.Unlock()
			return
		}
		in := r.waiting[0]
		r.waiting = r.waiting[1:]
		r.mu.Unlock()
		r.finish(in)
	}
}

func (r *Reads[K, V]) finish(in *round[K, V]) {
	defer close(in.done)
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	in.err = panics.Call(ctx, r.logger, "a shared read panicked", func() (err error) {
		in.found, err = r.read(ctx, in.keys)
		return err
	})
}
