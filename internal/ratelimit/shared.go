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
			free = time.Duration(max(*seconds, 0) * float64(time.Second))
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
