// Package ratelimit bounds how many calls come through in any span of time, for each of many
// callers.
package ratelimit

import (
	"sync"
	"time"

	"github.com/google/uuid"
)

// Windows limits the calls of each caller in any span of one length: a sliding window, without
// bursts. It remembers at most the allowed calls of the last two spans, which bounds its memory.
type Windows struct {
	span time.Duration
	now  func() time.Time
	// base is the origin of instants, so that they come from the monotonic clock.
	base time.Time

	mu      sync.Mutex
	callers map[uuid.UUID]*caller
	swept   time.Duration
}

// caller has the instants of the allowed calls of one caller, oldest first.
type caller struct{ at []time.Duration }

// New makes windows of a length. now is the clock; nil means time.Now.
func New(span time.Duration, now func() time.Time) *Windows {
	if now == nil {
		now = time.Now
	}
	return &Windows{span: span, now: now, base: now(), callers: map[uuid.UUID]*caller{}}
}

// Allow reports whether a call is allowed, and counts it if so: fewer than limit calls of this
// caller were allowed in the span before it. Otherwise retry is the time until a call is allowed,
// if the caller makes no other call meanwhile. A limit of 0 or less allows every call.
func (w *Windows) Allow(id uuid.UUID, limit int) (retry time.Duration, ok bool) {
	if limit <= 0 {
		return 0, true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now().Sub(w.base)
	w.sweep(now)
	c := w.callers[id]
	if c == nil {
		c = &caller{}
		w.callers[id] = c
	}
	now = c.slide(now, w.span)
	if n := len(c.at); n >= limit {
		return c.at[n-limit] + w.span - now, false
	}
	c.at = append(c.at, now)
	return 0, true
}

// slide forgets instants that are a span ago or older, and returns the instant that now counts as:
// instants never go back. If the clock was set back by a span or more, it starts the caller's
// window again, which otherwise stays shut until the clock catches up.
func (c *caller) slide(now, span time.Duration) time.Duration {
	if n := len(c.at); n > 0 && now < c.at[n-1] {
		if c.at[n-1]-now >= span {
			c.at = nil
			return now
		}
		now = c.at[n-1]
	}
	gone := 0
	for gone < len(c.at) && now-c.at[gone] >= span {
		gone++
	}
	// The front of the array is freed when append next moves the slice.
	c.at = c.at[gone:]
	return now
}

// sweep forgets, once a span, the callers without an allowed call in the last span.
func (w *Windows) sweep(now time.Duration) {
	if since := now - w.swept; since >= 0 && since < w.span {
		return
	}
	w.swept = now
	for id, c := range w.callers {
		if n := len(c.at); n == 0 || now-c.at[n-1] >= w.span || c.at[n-1]-now >= w.span {
			delete(w.callers, id)
		}
	}
}
