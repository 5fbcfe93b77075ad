package ratelimit

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	_ "github.com/annals-project/annals/internal/seedtest" // a fixed seed
)

// clock is a clock that a test sets.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

func newClock() *clock { return &clock{time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)} }

func TestWindows_BothSidesOfASpan(t *testing.T) {
	c := newClock()
	w := New(time.Minute, c.now)
	one, other := uuid.New(), uuid.New()
	want := func(id uuid.UUID, limit int, retry time.Duration, ok bool) {
		t.Helper()
		if gotRetry, got := w.Allow(id, limit); got != ok || gotRetry != retry {
			t.Errorf("allowed %t, retry %s, want %t, %s", got, gotRetry, ok, retry)
		}
	}
	want(one, 2, 0, true)
	c.at = c.at.Add(20 * time.Second)
	want(one, 2, 0, true)
	want(one, 2, 40*time.Second, false)
	want(other, 2, 0, true) // other callers count separately
	want(one, 3, 0, true)   // another plan
	want(one, 1, time.Minute, false)
	want(one, 0, 0, true) // off
	want(one, -1, 0, true)
	c.at = c.at.Add(40*time.Second - 1)
	want(one, 3, 1, false)
	c.at = c.at.Add(1) // the first is a minute ago
	want(one, 3, 0, true)
	want(one, 3, 20*time.Second, false) // no burst
}

// Checks allowed calls against every possible window, and that no call is refused without need.
func TestWindows_AnySpan(tt *testing.T) {
	rapid.Check(tt, func(t *rapid.T) {
		c := newClock()
		const span = 10 * time.Millisecond
		w := New(span, c.now)
		limit := rapid.IntRange(1, 5).Draw(t, "limit")
		var through []time.Time
		for range rapid.IntRange(1, 80).Draw(t, "calls") {
			c.at = c.at.Add(time.Duration(rapid.IntRange(0, 6).Draw(t, "pause")) * time.Millisecond)
			within := 0
			for _, at := range through {
				if c.at.Sub(at) < span {
					within++
				}
			}
			retry, ok := w.Allow(uuid.Nil, limit)
			if ok != (within < limit) {
				t.Fatalf("allowed %t with %d calls of %d in the span", ok, within, limit)
			}
			if ok {
				through = append(through, c.at)
				continue
			}
			if want := through[len(through)-limit].Add(span).Sub(c.at); retry != want {
				t.Fatalf("retry after %s, want %s", retry, want)
			}
		}
	})
}

func TestWindows_ClockSetBack(t *testing.T) {
	c := newClock()
	w := New(time.Minute, c.now)
	id := uuid.New()
	allow := func() bool { _, ok := w.Allow(id, 1); return ok }
	if !allow() {
		t.Fatal("the first call is refused")
	}
	c.at = c.at.Add(-time.Second)
	if allow() {
		t.Error("a clock set back a little opens the window")
	}
	c.at = c.at.Add(-time.Hour)
	if !allow() || allow() {
		t.Error("an hour back the window does not hold one call")
	}
}

func TestWindows_MemoryIsBounded(t *testing.T) {
	c := newClock()
	w := New(time.Minute, c.now)
	for range 1000 {
		w.Allow(uuid.New(), 5)
		c.at = c.at.Add(time.Second)
	}
	if n := w.light.Len() + w.heavy.Len(); n > 120 {
		t.Errorf("%d callers are remembered of those of two minutes", n)
	}
	id := uuid.New()
	for range 10_000 {
		w.Allow(id, 100)
		c.at = c.at.Add(100 * time.Millisecond)
	}
	if n := cap(w.find(id).at); n > 400 {
		t.Errorf("room for %d calls is kept, at a limit of 100", n)
	}
}

func TestWindows_ConcurrentCallers(t *testing.T) {
	c := newClock()
	w := New(time.Minute, c.now)
	ids := []uuid.UUID{uuid.New(), uuid.New()}
	var through [2]atomic.Int64
	var g sync.WaitGroup
	for n := range 16 {
		g.Go(func() {
			for range 100 {
				if _, ok := w.Allow(ids[n%2], 500); ok {
					through[n%2].Add(1)
				}
			}
		})
	}
	g.Wait()
	if a, b := through[0].Load(), through[1].Load(); a != 500 || b != 500 {
		t.Errorf("%d and %d calls came through, want 500 each", a, b)
	}
}
