package runner

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/feed"
	"github.com/annals-project/annals/internal/runtest"
)

// takeLease takes a lease to the end of the test.
func takeLease(t *testing.T, r *runner) *lease {
	t.Helper()
	l, err := r.takeLease(t.Context())
	runtest.Must(t, err)
	t.Cleanup(l.end)
	return l
}

func TestLease_OneOfTwoRuntimesIsActive(t *testing.T) {
	w := newWorld(t)
	a := w.runtime(t, nil, tally{family: "apple"})
	b := w.runtime(t, nil, tally{family: "apple"})
	stops := map[*Runtime]func(){a: run(t, a), b: run(t, b)}
	sum := int64(0)
	for n := range 20 {
		last := w.add(t, "apple-1", n%5)
		sum += int64(n % 5)
		mustWait(t, a.Waiter(), last, "apples")
		mustWait(t, b.Waiter(), last, "apples")
		if status(t, a, "apples").Active && status(t, b, "apples").Active {
			t.Fatal("both are active")
		}
	}
	// The active one stops and releases its lease, so the other continues well before the lease is
	// over.
	active, other := a, b
	if status(t, b, "apples").Active {
		active, other = b, a
	}
	stops[active]()
	mustWait(t, other.Waiter(), w.add(t, "apple-1", 1), "apples")
	if !status(t, other, "apples").Active {
		t.Error("the other one did not take over")
	}
	w.wantTotals(t, "apples", total{"apple-1", sum + 1, 21})
}

func TestLease_DeadProcess(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.once(t, nil, tally{family: "apple"})
	var until time.Time
	runtest.Must(t, w.db.QueryRow(t.Context(), `update apples.checkpoint
		set holder = 'dead', until = clock_timestamp() + interval '700 ms' returning until`).Scan(&until))
	second := w.start(t, nil, tally{family: "apple"})
	mustWait(t, second.Waiter(), w.add(t, "apple-1", 2), "apples")
	var now time.Time
	runtest.Must(t, w.db.QueryRow(t.Context(), `select clock_timestamp()`).Scan(&now))
	if now.Before(until) {
		t.Errorf("taken over %s before the lease was over", until.Sub(now))
	}
	w.wantTotals(t, "apples", total{"apple-1", 3, 2})
}

func TestLease_ProcessWithNameOfDeadOne(t *testing.T) {
	w := newWorld(t)
	named := func(c *Config) { c.Holder = "embedded" }
	w.once(t, named, tally{family: "apple"})
	w.exec(t, `update apples.checkpoint set until = clock_timestamp() + interval '1 hour'`)
	second := w.start(t, named, tally{family: "apple"})
	mustWait(t, second.Waiter(), w.add(t, "apple-1", 2), "apples")
}

// An embedded server stops together with its process.
func TestLease_ServerStops(t *testing.T) {
	w := newWorld(t)
	w.once(t, nil, tally{family: "apple"})
	w.exec(t,
		`update apples.checkpoint set until = clock_timestamp() + interval '1 hour', server = server - interval '1 second'`)
	second := w.start(t, nil, tally{family: "apple"})
	mustWait(t, second.Waiter(), w.add(t, "apple-1", 2), "apples")
}

// A process that counted as dead resumes in the middle of a page.
func TestLease_LostLeaseCommitsNothing(t *testing.T) {
	w := newWorld(t)
	held := newGate()
	zombie := w.start(t, func(c *Config) { c.Lease = time.Hour }, tally{family: "apple", apply: held.hold})
	last := w.add(t, "apple-1", 1, 2)
	receive(t, held.reached, "the held call")
	w.exec(t, `update apples.checkpoint set until = clock_timestamp()`)
	heir := w.start(t, nil, tally{family: "apple"})
	mustWait(t, heir.Waiter(), last, "apples")
	close(held.free)
	eventually(t, "the zombie lets go", func() bool { return !status(t, zombie, "apples").Active })
	mustWait(t, zombie.Waiter(), w.add(t, "apple-1", 4), "apples")
	if s := status(t, zombie, "apples"); s.Stop != nil {
		t.Errorf("the zombie stopped: %v", s.Stop)
	}
	w.wantTotals(t, "apples", total{"apple-1", 7, 3})
}

func TestRunner_DatabaseRestoredWhileIdle(t *testing.T) {
	w := newWorld(t)
	rt := w.start(t, func(c *Config) { c.Lease = 400 * time.Millisecond }, tally{family: "apple"})
	first := w.add(t, "apple-1", 1)
	mustWait(t, rt.Waiter(), first, "apples")
	mustWait(t, rt.Waiter(), w.add(t, "apple-1", 2, 3), "apples")
	w.exec(t,
		`with fallen as (update apples.totals set total = 1, events = 1) update apples.checkpoint set position = $1, last_event_id = null`,
		int64(first))
	eventually(t, "all is applied again", func() bool { return w.totals(t, "apples")[0].Total == 6 })
}

// Waiters of other processes see the checkpoint only.
func TestRunner_PagesWithoutFacts(t *testing.T) {
	w := newWorld(t)
	rt := w.runtime(t, nil, tally{family: "apple"})
	stop := run(t, rt)
	mustWait(t, rt.Waiter(), w.add(t, "apple-1", 1), "apples")
	for n := range 3 {
		mustWait(t, NewWaiter(w.db), w.add(t, "pear-1", n), "apples")
	}
	last := w.add(t, "pear-1", 1)
	mustWait(t, rt.Waiter(), last, "apples")
	stop()
	if at, err := NewWaiter(w.db).Position(t.Context(), "apples"); err != nil || at != last {
		t.Errorf("the checkpoint is left at %d, %v; want %d", at, err, last)
	}
}

// Otherwise two processes take the lease from each other permanently, and neither finishes the
// page.
func TestLease_LongPage(t *testing.T) {
	w := newWorld(t)
	held := newGate()
	a := w.start(t, nil, tally{family: "apple", apply: held.hold})
	last := w.add(t, "apple-1", 1)
	receive(t, held.reached, "the held call")
	w.awaitProlonged(t)
	close(held.free)
	mustWait(t, a.Waiter(), last, "apples")
}

// An index cannot roll back, so the older lease fails even if the newer one has not moved yet.
func TestLease_OlderLeaseIsStale(t *testing.T) {
	w := newWorld(t)
	runtime := w.runtime(t, nil, tally{family: "apple"})
	r := runtime.runners[0]
	older := takeLease(t, r)
	younger := takeLease(t, r) // under the same name, so without waiting
	page := feed.Page{
		Next: 5,
		Events: []eventstore.DecodedEvent{
			{Recorded: eventstore.Recorded{Stream: "apple-1", Position: 5}, Event: &added{N: 1}},
		},
	}
	wantError(t, "the older lease ended a page with", r.applyPage(t.Context(), older, page), errStale)
	page.Events[0].Stream = "pear-1"
	if err := errors.Join(r.applyPage(t.Context(), older, page), r.flush(t.Context(), older)); !errors.Is(err, errStale) {
		t.Errorf("the older lease moved the checkpoint: %v", err)
	}
	wantError(t, "the older lease was renewed", errorOf(r.table.renew(t.Context(), older.epoch, time.Second)), errStale)
	page.Events[0].Stream = "apple-1"
	if err := r.applyPage(t.Context(), younger, page); err != nil {
		t.Errorf("the newer lease: %v", err)
	}
}

// A renewal whose process has given it up may reach the server after the release of the lease. It revives nothing.
func TestLease_RenewalAfterItsRelease(t *testing.T) {
	w := newWorld(t)
	r := w.runtime(t, nil, tally{family: "apple"}).runners[0]
	l := takeLease(t, r)
	runtest.Must(t, r.table.release(t.Context(), l.epoch, nil, nil))
	wantError(t, "a released lease was renewed", errorOf(r.table.renew(t.Context(), l.epoch, time.Hour)), errStale)
	err := r.table.moveAlone(t.Context(), l.epoch, time.Hour, 0, 1, uuid.New())
	wantError(t, "a released lease moved the checkpoint", err, errStale)
	other := w.runtime(t, nil, tally{family: "apple"}).runners[0]
	next, err := other.takeLease(t.Context())
	if err != nil || next.epoch <= l.epoch {
		t.Errorf("another process takes %+v after the epoch %d: %v", next, l.epoch, err)
	}
}

// A process that ends may have given up the transaction that takes its lease while the server commits it. The release
// by the name of the process waits for it.
func TestLease_ReleaseAwaitsItsTransaction(t *testing.T) {
	w := newWorld(t)
	r := w.runtime(t, nil, tally{family: "apple"}).runners[0]
	takeLease(t, r).end()
	tx, err := w.db.Begin(t.Context())
	runtest.Must(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }) // ended below, unless the test fails
	runtest.Must(t, r.table.lock(t.Context(), tx))
	_, err = r.table.takeLease(t.Context(), tx, "another", time.Hour)
	runtest.Must(t, err)
	released := make(chan error, 1)
	go func() { released <- r.table.releaseOf(t.Context(), "another") }()
	eventually(t, "the release waits", func() (waits bool) {
		runtest.Must(t, w.db.QueryRow(t.Context(), `select exists (select from pg_locks where locktype = 'advisory' and
			not granted and database = (select oid from pg_database where datname = current_database()))`).Scan(&waits))
		return waits
	})
	runtest.Must(t, tx.Commit(t.Context()))
	runtest.Must(t, <-released)
	row, err := r.table.read(t.Context())
	if err != nil || row.holder != "" {
		t.Errorf("the lease is held by %q: %v", row.holder, err)
	}
}

func TestLease_IdleRunner(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.start(t, nil, tally{family: "apple"})
	mustWait(t, a.Waiter(), w.add(t, "apple-1", 1), "apples")
	w.awaitProlonged(t)
	w.awaitProlonged(t)
}

// awaitProlonged waits until a process has renewed the lease.
func (w *fixture) awaitProlonged(t *testing.T) {
	t.Helper()
	var before int64
	runtest.Must(t, w.db.QueryRow(t.Context(),
		`select extract(epoch from until)::bigint from apples.checkpoint`).Scan(&before))
	eventually(t, "the turn is prolonged", func() bool {
		var later bool
		runtest.Must(t, w.db.QueryRow(t.Context(),
			`select extract(epoch from until)::bigint > $1 from apples.checkpoint`, before).Scan(&later))
		return later
	})
}

// stoppingStore ends the process while it reads the head of the log.
type stoppingStore struct {
	eventstore.Store
	stop context.CancelFunc
}

func (s *stoppingStore) Head(ctx context.Context) (eventstore.Position, error) {
	s.stop()
	<-ctx.Done()
	return 0, context.Cause(ctx)
}

// A process that ends between taking a lease and using it gives it back: nobody waits for the end of the lease.
func TestRunner_LeaseIsGivenBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	last := w.add(t, "apple-1", 1, 2)
	stop := run(t, w.runtime(t, nil, tally{family: "apple"}))
	long := func(cfg *Config) { cfg.Lease = time.Hour }
	rt := w.runtime(t, long, tally{family: "apple"})
	mustWait(t, rt.Waiter(), last, "apples")
	stop()

	ctx, cancel := context.WithCancel(t.Context())
	ending := w.runtime(t, func(cfg *Config) {
		cfg.Lease, cfg.Store = time.Hour, &stoppingStore{w.store, cancel}
	}, tally{family: "apple"})
	r := ending.runners[0]
	if l, err := r.takeLease(ctx); err == nil {
		t.Fatalf("a lease without a head of the log: %+v", l)
	}
	row, err := r.table.read(t.Context())
	if err != nil || row.holder != "" {
		t.Errorf("the lease is held by %q: %v", row.holder, err)
	}
	next, err := rt.runners[0].takeLease(t.Context())
	runtest.Must(t, err)
	next.end()
	// What a process gives back by its name is its own lease only.
	holder := rt.runners[0].holder
	for _, c := range []struct{ by, want string }{{r.holder, holder}, {holder, ""}} {
		runtest.Must(t, r.table.releaseOf(t.Context(), c.by))
		if row, err := r.table.read(t.Context()); err != nil || row.holder != c.want {
			t.Errorf("after %s has given its lease back, it is held by %q: %v", c.by, row.holder, err)
		}
	}
}

// strict returns a runtime that never trusts its memory, with two pages applied; first and last are
// their ends.
func strict(t *testing.T, w *fixture) (rt *Runtime, stop func(), first, last eventstore.Position) {
	t.Helper()
	rt = w.runtime(t, func(c *Config) { c.Lease = time.Hour }, tally{family: "apple"})
	for _, r := range rt.runners {
		r.trust = 0
	}
	stop = run(t, rt)
	first = w.add(t, "apple-1", 1)
	mustWait(t, rt.Waiter(), first, "apples")
	last = w.add(t, "apple-1", 2, 3)
	mustWait(t, rt.Waiter(), last, "apples")
	return rt, stop, first, last
}

// fallBack resets rows and checkpoint to a position, as if an older copy of the database replaced
// it; also is a further change of the checkpoint.
func (w *fixture) fallBack(t *testing.T, at eventstore.Position, also string) {
	t.Helper()
	w.exec(t, `with fallen as (update apples.totals set total = 1, events = 1)
		update apples.checkpoint set position = $1, last_event_id = null`+also, int64(at))
}

func wantLate(t *testing.T, waiter *Waiter, pos eventstore.Position) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	wantUnavailable(t, waiter.Wait(ctx, pos, "apples"), "late")
}

func TestWait_DatabaseRestoredToOlderState(t *testing.T) {
	w := newWorld(t)
	rt, _, first, last := strict(t, w)
	w.fallBack(t, first, "")
	mustWait(t, rt.Waiter(), last, "apples")
	w.wantTotals(t, "apples", total{"apple-1", 6, 3})
}

func TestPosition_LeaseTaken(t *testing.T) {
	w := newWorld(t)
	rt, _, first, last := strict(t, w)
	w.fallBack(t, first, `, epoch = epoch + 1, holder = 'another', until = clock_timestamp() + interval '1 hour'`)
	if at, err := rt.Waiter().Position(t.Context(), "apples"); err != nil || at != first {
		t.Errorf("position is %d, %v, and the rows are at %d", at, err, first)
	}
	wantLate(t, rt.Waiter(), last)
	w.exec(t, `update apples.checkpoint set until = clock_timestamp()`)
	mustWait(t, rt.Waiter(), last, "apples")
	w.wantTotals(t, "apples", total{"apple-1", 6, 3})
}

func TestPosition_LeaseExpired(t *testing.T) {
	w := newWorld(t)
	rt, stop, first, last := strict(t, w)
	stop()
	mustWait(t, rt.Waiter(), last, "apples")
	w.fallBack(t, first, "")
	wantLate(t, rt.Waiter(), last)
}

func TestWait_CheckpointCannotBeRead(t *testing.T) {
	w := newWorld(t)
	rt, _, _, last := strict(t, w)
	tx, err := w.db.Begin(t.Context())
	runtest.Must(t, err)
	runtest.Must(t, errorOf(tx.Exec(t.Context(), `lock table apples.checkpoint in access exclusive mode`)))
	wantLate(t, rt.Waiter(), last)
	runtest.Must(t, tx.Rollback(t.Context()))
	mustWait(t, rt.Waiter(), last, "apples")
}

// While pages are committed, no waiter reads the database.
func TestPosition_RecentCheckIsTrusted(t *testing.T) {
	turn := newLease(1, 7, time.Now())
	if !turn.confirmedWithin(time.Minute, time.Time{}) {
		t.Error("a check of now is not trusted")
	}
	turn = newLease(1, 7, time.Now().Add(-time.Hour))
	if turn.confirmedWithin(time.Minute, time.Time{}) {
		t.Error("a check of an hour ago is trusted")
	}
	if now := time.Now(); newLease(1, 7, now).confirmedWithin(time.Minute, now.Add(time.Second)) {
		t.Error("a check of before the connection was watched is trusted")
	}
	// After a suspension of the machine the monotonic clock has stopped meanwhile, the wall clock
	// has not.
	turn.confirmed(time.Now().Round(0).Add(-time.Hour))
	if turn.confirmedWithin(time.Minute, time.Time{}) {
		t.Error("a check of before the machine was suspended is trusted")
	}
}

// A lease, and the pause between the looks of a standby, are together shorter than the time in which a
// standby takes over. A lease is renewed several times before it is over.
func TestLease_TakeOverLimit(t *testing.T) {
	if longest := defaultLease + standbyPoll; longest >= takeOverLimit {
		t.Errorf("a standby takes over after up to %s, want less than %s", longest, takeOverLimit)
	}
	if pause := defaultLease / renewals; 3*pause > defaultLease || pause < 2*idleFlush {
		t.Errorf("a lease of %s is renewed every %s", defaultLease, pause)
	}
}

// A process that is frozen in the middle of a page keeps the locks of the page. The next holder of the lease
// ends that session, and the page is applied once.
func TestLease_HolderFrozenInAPage(t *testing.T) {
	t.Parallel()
	for name, locked := range map[string]string{
		"rows":       `update apples.totals set total = total + 100`,
		"checkpoint": `update apples.checkpoint set position = position + 1`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.once(t, nil, tally{family: "apple"})
			// The lease is not over yet: a standby that looks at it meanwhile must not wait for the lock.
			w.exec(t, `update apples.checkpoint set holder = 'frozen', until = clock_timestamp() + interval '2 s'`)
			frozen, err := pgx.ConnectConfig(t.Context(), w.db.Config().ConnConfig.Copy())
			runtest.Must(t, err)
			t.Cleanup(func() { _ = frozen.Close(t.Context()) })
			tx, err := frozen.Begin(t.Context())
			runtest.Must(t, err)
			runtest.Must(t, errorOf(tx.Exec(t.Context(), locked)))
			second := w.start(t, nil, tally{family: "apple"})
			mustWait(t, second.Waiter(), w.add(t, "apple-1", 2), "apples")
			if err := tx.Commit(t.Context()); err == nil {
				t.Error("the page of the frozen process is committed")
			}
			w.wantTotals(t, "apples", total{"apple-1", 3, 2})
		})
	}
}
