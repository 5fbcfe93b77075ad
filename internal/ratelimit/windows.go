// Package ratelimit bounds how many calls come through in any span of time, for each of many
// callers.
package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/internal/keylock"
	"github.com/annals-project/annals/internal/lru"
	"github.com/annals-project/annals/internal/pg/schemas"
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

const (
	// leaseTime is how long the slots of a lease may be used.
	leaseTime = time.Second
	// countedFor is how long a lease counts: until a minute after its last use.
	countedFor = time.Minute + leaseTime
	// maxLease is the most slots of a lease. What a process does not use of its last one is lost to the
	// others for a while: this is 2 % of 600.
	maxLease = 12
	// refusedFor is how long a refusal is remembered.
	refusedFor = 250 * time.Millisecond
	// leaseTimeout bounds the statements of a lease.
	leaseTimeout = 5 * time.Second
	// sweepEvery is the pause between two deletions of leases that nobody asks for any more.
	sweepEvery = time.Minute
	// maxShared is how many callers a process remembers.
	maxShared = 10_000
)

// Shared limits the calls of each caller in any minute, over all processes on a database: a sliding window.
// A process leases slots of the window, one at a time for a caller of few calls, and up to maxLease for one
// of many, so that most of these need no statement. It grants at least 95 % of the limit.
type Shared struct {
	db    *pgxpool.Pool
	limit int
	now   func() time.Time
	locks keylock.Map[string]

	mu      sync.Mutex
	callers *lru.Map[string, *lease]
	swept   time.Time
}

// lease is what this process may use for a caller. It is used under the lock of the caller.
type lease struct {
	id          uuid.UUID
	size, left  int
	until       time.Time
	refused     time.Time // until when no slot is asked for
	availableAt time.Time // about when one is free, if refused
}

// NewShared makes a limit of calls a minute. now is the clock of this process; nil means time.Now. Leases
// count by the clock of the database.
func NewShared(db *pgxpool.Pool, limit int, now func() time.Time) *Shared {
	if now == nil {
		now = time.Now
	}
	return &Shared{db: db, limit: limit, now: now, callers: lru.New[string, *lease](maxShared)}
}

// Allow reports whether a call is allowed, and counts it if so. Otherwise retry is about the time until one
// is.
func (s *Shared) Allow(ctx context.Context, caller string) (retry time.Duration, ok bool, err error) {
	unlock, err := s.locks.Lock(ctx, caller)
	if err != nil {
		return 0, false, fmt.Errorf("wait for a slot: %w", err)
	}
	defer unlock()
	l, now := s.leaseOf(caller), s.now()
	if now.Before(l.refused) {
		return l.availableAt.Sub(now), false, nil
	}
	if l.left == 0 || !now.Before(l.until) {
		free, err := s.take(ctx, caller, l, now)
		if err != nil {
			return 0, false, fmt.Errorf("take slots: %w", err)
		}
		if l.left == 0 {
			l.refused, l.availableAt = now.Add(min(free, refusedFor)), now.Add(free)
			return free, false, nil
		}
	}
	l.left--
	return 0, true, nil
}

func (s *Shared) leaseOf(caller string) *lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ok := s.callers.Get(caller)
	if !ok {
		l = &lease{}
		s.callers.Add(caller, l)
	}
	return l
}

// take returns what is left of a lease and takes the next. If no slot is free, l.left is 0, and free is the
// time until one is.
func (s *Shared) take(ctx context.Context, caller string, l *lease, now time.Time) (free time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	want := 1
	if l.left == 0 && now.Before(l.until) {
		want = max(1, min(2*l.size, maxLease))
	}
	next := lease{id: uuid.New(), until: now.Add(leaseTime)}
	b := &pgx.Batch{}
	// Each statement sees what was committed before it began, so the lock comes first.
	b.Queue(`select pg_advisory_xact_lock(hashtextextended(`+schemas.Call+` || 'webhook ' || $1, 0))`, caller)
	if l.left > 0 {
		b.Queue(`update ops.webhook_leases set slots = slots - $3 where webhook_id = $1 and lease_id = $2`, caller, l.id, l.left)
	}
	b.Queue(`delete from ops.webhook_leases
		where webhook_id = $1 and (slots <= 0 or taken_at <= clock_timestamp() - $2::interval)`, caller, countedFor)
	b.Queue(`insert into ops.webhook_leases (webhook_id, lease_id, taken_at, slots)
		select $1, $2, clock_timestamp(), least($3::int, free) from (
			select $4::int - coalesce(sum(slots), 0)::int as free from ops.webhook_leases where webhook_id = $1) as room
		where free > 0 returning slots`, caller, next.id, want, s.limit).QueryRow(func(row pgx.Row) error {
		err := row.Scan(&next.size)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
	b.Queue(`select extract(epoch from min(taken_at) + $2::interval - clock_timestamp())::float8
		from ops.webhook_leases where webhook_id = $1`, caller, countedFor).QueryRow(func(row pgx.Row) error {
		var seconds *float64
		err := row.Scan(&seconds)
		if seconds != nil {
			free = time.Duration(max(*seconds, 0.001) * float64(time.Second)) // it may have ended meanwhile
		}
		return err
	})
	if s.sweeps(now) {
		b.Queue(`delete from ops.webhook_leases where taken_at <= clock_timestamp() - $1::interval`, 2*countedFor)
	}
	err = pgx.BeginTxFunc(ctx, s.db, begin, func(tx pgx.Tx) error { return tx.SendBatch(ctx, b).Close() })
	if err != nil {
		return 0, err
	}
	next.left = next.size
	*l = next
	return free, nil
}

// begin begins a transaction that holds a lock for which other processes wait. A process that is frozen in it
// holds them up for no longer than the timeout.
var begin = pgx.TxOptions{
	BeginQuery: "begin isolation level read committed; set local idle_in_transaction_session_timeout = '10s'",
}

// sweeps reports whether it is time to delete the leases of callers that call no more.
func (s *Shared) sweeps(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.swept) < sweepEvery {
		return false
	}
	s.swept = now
	return true
}
