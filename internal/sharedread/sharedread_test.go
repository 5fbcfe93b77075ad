package sharedread

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/annals-project/annals/internal/runtest"
)

// held are reads that wait until the test lets them go on.
type held struct {
	began chan []int
	end   chan error
}

func (h held) read(_ context.Context, keys []int) (map[int]string, error) {
	h.began <- keys
	found := map[int]string{}
	for _, key := range keys {
		if key > 0 {
			found[key] = strings.Repeat("x", key)
		}
	}
	return found, <-h.end
}

// fill starts as many reads as run at a time.
func fill(t *testing.T, r *Reads[int, string], h held, group *sync.WaitGroup) {
	t.Helper()
	for range width {
		group.Go(func() {
			if found, err := r.Get(t.Context(), 1); err != nil || found[1] != "x" {
				t.Errorf("%v, %v", found, err)
			}
		})
		<-h.began
	}
}

// Callers that come while reads run share the next one; none gets what was read before it came.
func TestReads_Shared(t *testing.T) {
	h := held{make(chan []int), make(chan error)}
	r := New(runtest.Logger(t), h.read)
	var group sync.WaitGroup
	fill(t, r, h, &group)
	const callers = 40
	for n := range callers {
		group.Go(func() {
			key := n + 1
			found, err := r.Get(t.Context(), key, -1)
			if err != nil || found[key] != strings.Repeat("x", key) || len(found) != callers {
				t.Errorf("key %d: %v, %v", key, found, err)
			}
		})
	}
	runtest.Await(t, "all wait for one read", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.waiting) == 1 && len(r.waiting[0].keys) == callers+1
	})
	h.end <- nil
	if keys := <-h.began; len(keys) != callers+1 {
		t.Errorf("read %v", keys)
	}
	for range width {
		h.end <- nil
	}
	group.Wait()
	runtest.Await(t, "no read runs", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.running == 0 && len(r.waiting) == 0
	})
}

// An error is that of its callers alone, a caller that leaves ends no read, and a panic is an error.
func TestReads_Errors(t *testing.T) {
	h := held{make(chan []int), make(chan error)}
	r := New(runtest.Logger(t), h.read)
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := r.Get(ctx, 7)
		left <- err
	}()
	<-h.began
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("the caller that left got %v", err)
	}
	failed := make(chan error)
	go func() {
		_, err := r.Get(t.Context(), 8)
		failed <- err
	}()
	<-h.began
	broken := errors.New("broken")
	h.end <- broken
	h.end <- broken
	if err := <-failed; !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	if _, err := r.Get(ctx, 9); !errors.Is(err, context.Canceled) {
		t.Errorf("a call that has ended got %v", err)
	}
	panicking := New(runtest.Logger(t), func(context.Context, []int) (map[int]string, error) { panic("no") })
	for range 2 * width {
		if _, err := panicking.Get(t.Context(), 1); err == nil {
			t.Error("a panic is no error")
		}
	}
}

// A read has a bound, and all that is asked for is read.
func TestReads_Bound(t *testing.T) {
	var calls, largest atomic.Int64
	gate := make(chan struct{})
	r := New(runtest.Logger(t), func(_ context.Context, keys []int) (map[int]int, error) {
		<-gate
		calls.Add(1)
		largest.Store(max(largest.Load(), int64(len(keys))))
		found := make(map[int]int, len(keys))
		for _, key := range keys {
			found[key] = key
		}
		return found, nil
	})
	var group sync.WaitGroup
	for n := range 3 * most {
		group.Go(func() {
			if found, err := r.Get(t.Context(), n); err != nil || found[n] != n {
				t.Errorf("%d: %v", n, err)
			}
		})
	}
	runtest.Await(t, "all are asked for", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		asked := 0
		for _, in := range r.waiting {
			asked += len(in.keys)
		}
		return r.running == width && asked >= 3*most-width*most && len(r.waiting) > 0
	})
	close(gate)
	group.Wait()
	if largest.Load() > most {
		t.Errorf("a read of %d keys", largest.Load())
	}
}

// What is asked for while reads hang is not kept for callers that have left.
func TestReads_CallersThatLeft(t *testing.T) {
	h := held{make(chan []int), make(chan error)}
	r := New(runtest.Logger(t), h.read)
	var group sync.WaitGroup
	fill(t, r, h, &group)
	ctx, cancel := context.WithCancel(t.Context())
	var left sync.WaitGroup
	for n := range 3 * most {
		left.Go(func() {
			if _, err := r.Get(ctx, n); !errors.Is(err, context.Canceled) {
				t.Errorf("%v", err)
			}
		})
	}
	runtest.Await(t, "all wait", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		asked := 0
		for _, in := range r.waiting {
			asked += in.callers
		}
		return asked == 3*most
	})
	cancel()
	left.Wait()
	r.mu.Lock()
	if n := len(r.waiting); n != 0 {
		t.Errorf("%d reads wait for nobody", n)
	}
	r.mu.Unlock()
	for range width {
		h.end <- nil
	}
	group.Wait()
}
