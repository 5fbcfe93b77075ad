// Package ratelimit bounds how many calls come through in any span of time, for each of many
// callers.
package ratelimit

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/lru"
)

// MaxCallers is how many callers are remembered that used at most half of their limit, and as many that used more.
// A caller beyond that evicts the one of its kind that called longest ago. So addresses that call once evict only
// callers with half of a limit or less, and never one that is about to be refused: for that, as many other callers
// would have to use half of their own limits within the span.
const MaxCallers = 8192

// Windows limits the calls of each caller in any span of one length: a sliding window, without
// bursts. It remembers at most the allowed calls of the last two spans, of at most twice MaxCallers callers.
// A refused call is not remembered.
type Windows struct {
	span time.Duration
	now  func() time.Time
	// base is the origin of instants, so that they come from the monotonic clock.
	base time.Time

	mu sync.Mutex
	// light are the callers that used at most half of their limit, heavy the others.
	light, heavy *lru.Map[uuid.UUID, *caller]
	swept        time.Duration
}

// caller has the instants of the allowed calls of one caller, oldest first.
type caller struct{ at []time.Duration }

// New makes windows of a length. now is the clock; nil means time.Now.
func New(span time.Duration, now func() time.Time) *Windows { return newWindows(span, now, MaxCallers) }

func newWindows(span time.Duration, now func() time.Time, callers int) *Windows {
	if now == nil {
		now = time.Now
	}
	return &Windows{
		span: span, now: now, base: now(),
		light: lru.New[uuid.UUID, *caller](callers), heavy: lru.New[uuid.UUID, *caller](callers),
	}
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
	return w.allow([]Cap{{ID: id, Limit: limit}}, nil)
}

// Cap is one of the limits of a call: that of the caller, or one that it shares with others.
type Cap struct {
	ID    uuid.UUID
	Limit int
	// Reserved keeps a part of the limit for callers of a standing.
	Reserved bool
}

// Standing is what is known of a caller for a cap.
type Standing int

// The standings. A Returning caller registered before the span that is counted now. What a Trusted one registered then
// was let in by a person. A quarter of a limit is kept for both, of which half is kept for Trusted ones: who
// prepares many addresses can make them return, and has nobody who lets them in.
const (
	Newcomer Standing = iota
	Returning
	Trusted
)

// limit returns how much of a cap is open for a standing.
func (c Cap) limit(s Standing) int {
	switch {
	case !c.Reserved || s == Trusted || c.Limit <= 1:
		return c.Limit
	case s == Returning:
		return c.Limit - max(c.Limit/8, 1)
	default:
		return c.Limit - max(c.Limit/4, 1)
	}
}

// AllowAll counts a call at all of some caps, or at none: a refused call leaves nothing. standings returns the standing
// of the caller at each cap; it is called only if that decides, and without a lock. Its error is that of standings.
func (w *Windows) AllowAll(
	ctx context.Context, caps []Cap, standings func(context.Context) ([]Standing, error),
) (retry time.Duration, ok bool, err error) {
	best := make([]Standing, len(caps))
	for i := range best {
		best[i] = Trusted
	}
	w.mu.Lock()
	retry, ok = w.allow(caps, make([]Standing, len(caps)))
	if !ok {
		retry, ok = w.check(caps, best)
		if w.mu.Unlock(); !ok {
			return retry, false, nil
		}
		if best, err = standings(ctx); err != nil {
			return 0, false, err
		}
		w.mu.Lock()
		retry, ok = w.allow(caps, best)
	}
	w.mu.Unlock()
	return retry, ok, nil
}

// allow counts a call at all caps if none refuses it. No standings are the best ones.
func (w *Windows) allow(caps []Cap, standings []Standing) (retry time.Duration, ok bool) {
	if retry, ok = w.check(caps, standings); !ok {
		return retry, false
	}
	for _, limited := range caps {
		c := w.find(limited.ID)
		if c == nil {
			c = &caller{}
		}
		now := c.slide(w.now().Sub(w.base), w.span)
		c.at = append(c.at, now)
		w.store(limited, c)
	}
	return 0, true
}

// check reports whether all caps allow a call.
func (w *Windows) check(caps []Cap, standings []Standing) (retry time.Duration, ok bool) {
	now := w.now().Sub(w.base)
	w.sweep(now)
	for i, limited := range caps {
		c := w.find(limited.ID)
		if c == nil {
			continue
		}
		limit, at := limited.Limit, c.slide(now, w.span)
		if standings != nil {
			limit = limited.limit(standings[i])
		}
		w.store(limited, c)
		if n := len(c.at); n >= limit {
			return c.at[n-limit] + w.span - at, false
		}
	}
	return 0, true
}

// find returns a caller and notes that it called, nil for one without calls.
func (w *Windows) find(id uuid.UUID) *caller {
	if c, ok := w.heavy.Get(id); ok {
		return c
	}
	c, _ := w.light.Get(id)
	return c
}

// store puts a caller among those that used as much of their limits.
func (w *Windows) store(limited Cap, c *caller) {
	to, from := w.light, w.heavy
	if 2*len(c.at) > limited.Limit {
		to, from = from, to
	}
	from.Remove(limited.ID)
	to.Add(limited.ID, c)
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
	for _, callers := range []*lru.Map[uuid.UUID, *caller]{w.light, w.heavy} {
		for _, id := range callers.Keys() {
			c, _ := callers.Peek(id)
			if n := len(c.at); n == 0 || now-c.at[n-1] >= w.span || c.at[n-1]-now >= w.span {
				callers.Remove(id)
			}
		}
	}
}
