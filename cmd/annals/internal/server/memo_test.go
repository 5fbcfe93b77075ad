package server

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestMemo_OneReadingForAllCallers(t *testing.T) {
	var reads, clock atomic.Int64
	m := newMemo(func(context.Context) int64 { return reads.Add(1) })
	m.now = func() time.Time { return time.Unix(100, clock.Load()) }
	all := func(want int64) {
		t.Helper()
		var callers sync.WaitGroup
		for range 1000 {
			callers.Go(func() {
				if got := m.get(); got != want {
					t.Errorf("a caller got reading %d, want %d", got, want)
				}
			})
		}
		callers.Wait()
	}
	all(1)
	clock.Add(int64(memoTime - 1))
	all(1)
	clock.Add(1)
	all(2)
	if reads.Load() != 2 {
		t.Errorf("%d readings in a second, want 2", reads.Load())
	}
}

// A server that does not answer makes a reading last longer than it is kept. Those that waited for it share it.
func TestMemo_SlowReadingIsShared(t *testing.T) {
	var reads, clock atomic.Int64
	m := newMemo(func(context.Context) int64 {
		clock.Add(int64(2 * memoTime))
		return reads.Add(1)
	})
	m.now = func() time.Time { return time.Unix(100, clock.Load()) }
	for range 3 {
		if got := m.get(); got != 1 {
			t.Errorf("a caller got reading %d, want 1", got)
		}
	}
	clock.Add(int64(memoTime))
	if got := m.get(); got != 2 {
		t.Errorf("after %s a caller got reading %d, want 2", memoTime, got)
	}
}
