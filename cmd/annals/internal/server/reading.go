package server

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/ops"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/directory"
	"github.com/annals-project/annals/projections/runner"
	"github.com/annals-project/annals/projections/usage/limiter"
)

// reading is what the operation routes ask of the servers. The rest of what they show is in memory.
type reading struct {
	eventStore, postgres error
	// keys is why no key can be looked up, nil also for a process that looks none up.
	keys error
	// awaitedLock is the table for which statements wait, "" for none.
	awaitedLock string
	projections []runner.Status
	// abandonedBulks counts bulk writes of identities; charged is the age of the oldest counted recalls, nil if
	// it cannot be read.
	abandonedBulks int
	charged        *time.Duration
	failedSends    datapoints.RecentFailures
	// damaged are the first damaged streams, at most maxDamaged.
	damaged []datapoints.DamagedStream
	// erasing is when the oldest deletion that is not erased was accepted, zero if there is none.
	erasing time.Time
}

// failedLately is how long a failed send is shown as one that failed lately.
const failedLately = time.Hour

// newReading returns the reading that all operation routes share.
func newReading(st *storage, runtime *runner.Runtime, cfg Config) *memo[reading] {
	logger := cfg.Logger
	return newMemo(func(ctx context.Context) (r reading) {
		_, r.eventStore = st.store.Head(ctx)
		r.postgres = ops.Check(ctx, st.checks)
		r.projections = runtime.HealthOn(ctx, st.checks)
		var err error
		if r.abandonedBulks, err = directory.AbandonedBulks(ctx, st.checks); err != nil {
			// This is usual before the first start of the projection, and so below.
			logger.DebugContext(ctx, "abandoned bulk writes cannot be counted", "err", err)
		}
		r.failedSends, err = datapoints.Queries{DB: st.checks}.RecentFailures(ctx, cfg.now().Add(-failedLately))
		if err != nil {
			logger.DebugContext(ctx, "failed sends cannot be counted", "err", err)
		}
		if r.damaged, err = (datapoints.Queries{DB: st.checks}).DamagedStreams(ctx, 0, maxDamaged); err != nil {
			logger.DebugContext(ctx, "damaged streams cannot be listed", "err", err)
		}
		if r.erasing, err = (datapoints.Queries{DB: st.checks}).OldestErasure(ctx); err != nil {
			logger.DebugContext(ctx, "deletions that are not erased cannot be read", "err", err)
		}
		if r.awaitedLock, err = ops.AwaitedLock(ctx, st.checks); err != nil {
			logger.DebugContext(ctx, "awaited locks cannot be read", "err", err)
		}
		if roles := cfg.Roles; roles.Has(RoleWrite) || roles.Has(RoleRead) || roles.Has(RoleConsole) {
			// Nobody's: what its look-up reads is what that of each key reads.
			_, _, r.keys = access.Queries{DB: st.checks}.KeyByHash(ctx, auth.ProjectKey, [32]byte{})
		}
		age, _, err := limiter.PendingCharges{DB: st.checks}.Oldest(ctx)
		if err != nil {
			logger.DebugContext(ctx, "age of counted recalls cannot be read", "err", err)
			return r
		}
		r.charged = &age
		return r
	})
}

// usedUp notices that every connection of a pool has been in use, by the same users, for checkTimeout.
type usedUp struct {
	last atomic.Pointer[fullPool]
}

// fullPool is a pool without a free connection: since when, and how many had been acquired then.
type fullPool struct {
	since    time.Time
	acquired int64
}

func (u *usedUp) check(pool *pgxpool.Stat, now time.Time) bool {
	if pool.AcquiredConns() < pool.MaxConns() {
		u.last.Store(nil)
		return false
	}
	before := u.last.Load()
	if before == nil || before.acquired != pool.AcquireCount() {
		u.last.Store(&fullPool{since: now, acquired: pool.AcquireCount()})
		return false
	}
	return now.Sub(before.since) >= checkTimeout
}

// memoTime is how long the operation routes answer from one reading, however many callers there are.
const memoTime = time.Second

// memo keeps the result of one reading for memoTime. Callers that come meanwhile wait for the reading that runs.
type memo[T any] struct {
	now func() time.Time
	// read gets a context that ends after checkTimeout.
	read func(ctx context.Context) T

	mu    sync.Mutex
	at    time.Time
	value T
}

// newMemo measures the age of a reading by the clock of the machine, since that of a test may stand still.
func newMemo[T any](read func(context.Context) T) *memo[T] {
	return &memo[T]{now: time.Now, read: read}
}

// get returns the last result, or that of a new reading. It takes no context: a caller that leaves must not end a
// reading for which others wait.
func (m *memo[T]) get() T {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.at.IsZero() || m.now().Sub(m.at) >= memoTime {
		ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
		defer cancel()
		m.value = m.read(ctx)
		m.at = m.now() // after it: else each caller that waited for a slow reading would make one
	}
	return m.value
}

// gatherOnce gathers metrics at most once in memoTime.
func gatherOnce[T any](gather func() ([]T, error)) func() ([]T, error) {
	type result struct {
		families []T
		err      error
	}
	once := newMemo(func(context.Context) (r result) {
		r.families, r.err = gather()
		return r
	})
	return func() ([]T, error) {
		r := once.get()
		return r.families, r.err
	}
}
