package ratelimit

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	_ "github.com/annals-project/annals/internal/seedtest"
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

// Callers that call once neither fill the memory nor reset the count of one that is about to be refused.
func TestWindows_ManyCallers(t *testing.T) {
	const most, limit = 50, 4
	c := newClock()
	w := newWindows(time.Hour, c.now, most)
	heavy, light := uuid.New(), uuid.New()
	for range limit {
		w.Allow(heavy, limit)
	}
	for range limit / 2 {
		w.Allow(light, limit)
	}
	for range most - 1 {
		w.Allow(uuid.New(), limit)
	}
	if w.light.Len() != most || len(w.light.Values()[0].at) != limit/2 {
		t.Fatalf("%d callers used half of their limit or less, want %d and the light one", w.light.Len(), most)
	}
	for range 20 * most {
		w.Allow(uuid.New(), limit)
	}
	if n := w.light.Len() + w.heavy.Len(); n != most+1 {
		t.Errorf("%d callers are remembered, want %d", n, most+1)
	}
	if _, ok := w.Allow(heavy, limit); ok {
		t.Error("callers that call once reset the count of one that used its limit")
	}
	if w.find(light) != nil {
		t.Error("a caller that used half of its limit and calls no more is remembered")
	}
}

// To reset a count, as many other callers must use more than half of their own limits.
func TestWindows_HeavyCallers(t *testing.T) {
	const most, limit = 20, 4
	c := newClock()
	w := newWindows(time.Hour, c.now, most)
	uses := func(id uuid.UUID) {
		for range limit {
			w.Allow(id, limit)
		}
	}
	first := uuid.New()
	uses(first)
	for range most - 1 {
		uses(uuid.New())
	}
	if w.heavy.Len() != most || w.light.Len() != 0 {
		t.Fatalf("%d and %d callers", w.heavy.Len(), w.light.Len())
	}
	if _, ok := w.Allow(first, limit); ok {
		t.Error("the count is reset by fewer callers than are remembered")
	}
	for range most {
		uses(uuid.New())
	}
	if w.heavy.Len() != most {
		t.Errorf("%d callers that used their limit are remembered, want %d", w.heavy.Len(), most)
	}
	// Half a limit is over: the caller is one of few calls again.
	c.at = c.at.Add(time.Hour)
	last := uuid.New()
	uses(last)
	c.at = c.at.Add(time.Hour)
	w.Allow(last, limit)
	if w.heavy.Contains(last) || !w.light.Contains(last) {
		t.Error("a caller with one call in the span counts as one that used its limit")
	}
}

// standing is that of a caller at every cap.
func standing(of Standing) func(context.Context) ([]Standing, error) {
	return func(context.Context) ([]Standing, error) { return []Standing{of, of, of}, nil }
}

func TestAllowAll_KeepsAPart(t *testing.T) {
	c := newClock()
	w := New(time.Hour, c.now)
	all := Cap{ID: uuid.Max, Limit: 16, Reserved: true}
	allowed := func(of Standing) (n int) {
		for {
			caps := []Cap{{ID: uuid.New(), Limit: 2}, all}
			if _, ok, err := w.AllowAll(t.Context(), caps, standing(of)); err != nil || !ok {
				return n
			}
			n++
		}
	}
	for _, want := range []struct {
		of Standing
		n  int
	}{{Newcomer, 12}, {Newcomer, 0}, {Returning, 2}, {Newcomer, 0}, {Trusted, 2}, {Trusted, 0}} {
		if n := allowed(want.of); n != want.n {
			t.Errorf("%d calls of standing %d are allowed, want %d", n, want.of, want.n)
		}
	}
	c.at = c.at.Add(time.Hour)
	if n := allowed(Newcomer); n != 12 {
		t.Errorf("%d an hour later", n)
	}
}

func TestCap_EverybodyHasAPart(t *testing.T) {
	for limit, want := range map[int][3]int{
		1: {1, 1, 1}, 2: {1, 1, 2}, 4: {3, 3, 4}, 8: {6, 7, 8}, 10: {8, 9, 10}, 1000: {750, 875, 1000},
	} {
		c := Cap{Limit: limit, Reserved: true}
		if got := [3]int{c.limit(Newcomer), c.limit(Returning), c.limit(Trusted)}; got != want {
			t.Errorf("of %d: %v, want %v", limit, got, want)
		}
	}
	if c := (Cap{Limit: 10}); c.limit(Newcomer) != 10 {
		t.Error("a part is kept of a limit of one caller")
	}
}

// What refuses a call leaves no trace of it at the other caps.
func TestAllowAll_RefusedCallsAreNotRemembered(t *testing.T) {
	w := New(time.Hour, newClock().now)
	all := Cap{ID: uuid.Max, Limit: 3}
	own := Cap{ID: uuid.New(), Limit: 2}
	asked := false
	call := func(caps ...Cap) bool {
		_, ok, err := w.AllowAll(t.Context(), caps, func(context.Context) ([]Standing, error) {
			asked = true
			return nil, errors.New("the database is away")
		})
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	for n := range 4 {
		if ok := call(own, all); ok != (n < 2) {
			t.Errorf("call %d is allowed: %t", n, ok)
		}
	}
	if !call(Cap{ID: uuid.New(), Limit: 2}, all) {
		t.Error("refused calls of one caller use up what all share")
	}
	before := w.light.Len() + w.heavy.Len()
	for range 100 {
		if call(Cap{ID: uuid.New(), Limit: 2}, all) {
			t.Fatal("one too many is allowed")
		}
	}
	if after := w.light.Len() + w.heavy.Len(); after != before {
		t.Errorf("%d callers are remembered, %d before the refused ones", after, before)
	}
	if asked {
		t.Error("the standing is looked up though it decides nothing")
	}
}

func TestAllowAll_UnknownStanding(t *testing.T) {
	w := New(time.Hour, newClock().now)
	caps := []Cap{{ID: uuid.Max, Limit: 2, Reserved: true}}
	away := errors.New("the database is away")
	for n, want := range []error{nil, away, away} {
		_, ok, err := w.AllowAll(t.Context(), caps, func(context.Context) ([]Standing, error) { return nil, away })
		if !errors.Is(err, want) || ok != (n == 0) {
			t.Errorf("call %d: %t, %v", n, ok, err)
		}
	}
}
