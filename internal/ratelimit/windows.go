// Package ratelimit bounds how many calls come through in any span of time, for each of many callers.
package ratelimit

import (
	"sync"
	"time"

	"github.com/google/uuid"
)

// Windows lets at most a number of calls of each caller through in any span of one length: a window that slides, with no burst that
// refills. It remembers the calls of the last two spans at most, and so its memory is bounded by what it let through.
type Windows struct {
	span time.Duration
	now  func() time.Time
	// base is what instants are counted from, so that the clock of the process is read that is never set back.
	base time.Time

	mu      sync.Mutex
	callers map[uuid.UUID]*caller
	swept   time.Duration
}

// caller is when the calls of one caller were let through, oldest first.
type caller struct{ at []time.Duration }

// New makes windows of a length. now is the clock; nil means time.Now.
func New(span time.Duration, now func() time.Time) *Windows {
	if now == nil {
		now = time.Now
	}
	return &Windows{span: span, now: now, base: now(), callers: map[uuid.UUID]*caller{}}
}

// Allow counts a call and reports whether it comes through: it does where fewer than limit calls of this caller came through in the
// span before it. A call that does not is not counted, and retry is how long the caller has to wait, if nobody else of it calls. A
// limit of 0 or less is none.
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

// slide forgets what is a span ago, and returns the instant that now counts as: instants never go back. A clock that was set back
// by more than a span starts the caller's window anew, since it would be shut until the clock is there again.
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
	// What is cut off at the front is given back when the rest is next moved to a bigger place.
	c.at = c.at[gone:]
	return now
}

// sweep forgets, once a span, the callers of which nothing came through for a span.
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
