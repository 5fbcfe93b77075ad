package ratelimit

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
)

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
