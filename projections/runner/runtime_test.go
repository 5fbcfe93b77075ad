package runner

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections"
)

func TestRuntime_EachProjectionAppliesItsFamily(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add(t, "apple-1", 1, 2)
	w.add(t, "pear-1", 5)
	rt := w.start(t, nil, tally{family: "apple"}, tally{family: "pear"})
	w.add(t, "apple-2", 7)
	last := w.add(t, "plum-1", 9) // of no projector, yet every checkpoint passes it
	mustWait(t, rt.Waiter(), last, "apples", "pears")
	w.wantTotals(t, "apples", total{"apple-1", 3, 2}, total{"apple-2", 7, 1})
	w.wantTotals(t, "pears", total{"pear-1", 5, 1})
	for _, s := range rt.Health(t.Context()) {
		if !s.Active || s.Position != last || s.Lag() != 0 || s.Stop != nil || s.LastErr != nil {
			t.Errorf("status %+v, want active at %d", s, last)
		}
	}
}

func TestRuntime_ResumesFromCheckpoint(t *testing.T) {
	w := newWorld(t)
	var pages atomic.Int64
	for round := range 3 {
		rt := w.runtime(t, nil, tally{family: "apple", apply: func(context.Context, []eventstore.DecodedEvent) error {
			pages.Add(1)
			return nil
		}})
		stop := run(t, rt)
		mustWait(t, rt.Waiter(), w.add(t, "apple-1", round), "apples")
		stop()
	}
	w.wantTotals(t, "apples", total{"apple-1", 3, 3})
	if n := pages.Load(); n != 3 {
		t.Errorf("applied %d pages, want 3", n)
	}
}

func TestRuntime_NewerAndOlderVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, version := range []int{1, 2, 2, 4} {
		w.once(t, nil, tally{family: "apple", version: version})
	}
	older := w.start(t, nil, tally{family: "apple", version: 3})
	last := w.add(t, "apple-1", 1)
	eventually(t, "the older program stops", func() bool { return status(t, older, "apples").Stop != nil })
	if err := older.Waiter().Wait(limited(t), last, "apples"); err == nil {
		t.Error("the older program returns rows of the newer one")
	}
	// A rebuild makes the older program go back to its version.
	runtest.Must(t, older.Rebuild(t.Context(), "apples", nil))
	mustWait(t, older.Waiter(), w.add(t, "apple-1", 1), "apples")
	w.wantTotals(t, "apples", total{"apple-1", 6, 6})
}

func TestRuntime_LostTarget(t *testing.T) {
	w := newWorld(t)
	var resets atomic.Int64
	for _, target := range []string{"a", "a", "b", "b"} {
		w.once(t, nil, external{tally: tally{family: "apple"}, target: target, reset: &resets})
	}
	w.wantTotals(t, "apples", total{"apple-1", 4, 4})
	if n := resets.Load(); n != 2 {
		t.Errorf("%d resets, want 2", n)
	}
}

func TestRunner_DatabaseRestoredToOlderState(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rt := w.start(t, func(c *Config) { c.Lease = time.Hour }, tally{family: "apple"})
	first := w.add(t, "apple-1", 1)
	mustWait(t, rt.Waiter(), first, "apples")
	mustWait(t, rt.Waiter(), w.add(t, "apple-1", 2, 3), "apples")
	// Reset rows and checkpoint together.
	w.exec(t,
		`with fallen as (update apples.totals set total = 1, events = 1) update apples.checkpoint set position = $1, last_event_id = null`,
		int64(first))
	mustWait(t, rt.Waiter(), w.add(t, "apple-1", 4), "apples")
	eventually(t, "all is applied again", func() bool { return w.totals(t, "apples")[0].Total == 10 })
	w.wantTotals(t, "apples", total{"apple-1", 10, 4})
}

func TestRunner_LostConnectionsAndTransientErrors(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var tries atomic.Int64
	rt := w.start(t, nil, tally{family: "apple", apply: func(context.Context, []eventstore.DecodedEvent) error {
		if tries.Add(1)%3 != 0 {
			return projections.Transient(errors.New("index is away"))
		}
		return nil
	}})
	for n := range 5 {
		mustWait(t, rt.Waiter(), w.add(t, "apple-1", n), "apples")
		w.exec(t,
			`select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()`)
	}
	w.wantTotals(t, "apples", total{"apple-1", 10, 5})
}

func TestRunner_EventThatCannotBeApplied(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*fixture, testing.TB) eventstore.Position{
		"refused":  func(w *fixture, t testing.TB) eventstore.Position { return w.add(t, "apple-2", refusedByApply) },
		"panic":    func(w *fixture, t testing.TB) eventstore.Position { return w.add(t, "apple-2", refusedByPanic) },
		"database": func(w *fixture, t testing.TB) eventstore.Position { return w.add(t, "apple-2", refusedByDatabase) },
		"unknown name": func(w *fixture, t testing.TB) eventstore.Position {
			return w.append(t, "apple-2", "tally.of-tomorrow.v1", added{})
		},
		"undecodable": func(w *fixture, t testing.TB) eventstore.Position {
			return w.append(t, "apple-2", "tally.added.v1", "no object")
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.add(t, "apple-1", 1, 2)
			w.add(t, "pear-1", 3)
			bad := spoil(w, t)
			w.add(t, "apple-1", 4)
			last := w.add(t, "pear-1", 5)
			var calls atomic.Int64
			rt := w.start(
				t, func(c *Config) { c.Hooks.Stopped = func(string) { calls.Add(1) } }, tally{family: "apple"},
				tally{family: "pear"},
			)
			mustWait(t, rt.Waiter(), last, "pears")
			w.wantTotals(t, "pears", total{"pear-1", 8, 2})

			err := rt.Waiter().Wait(limited(t), last, "apples")
			wantUnavailable(t, err, "has stopped")
			w.wantTotals(t, "apples", total{"apple-1", 3, 2})
			s := status(t, rt, "apples")
			if s.Stop == nil || s.Stop.Position != bad || s.Stop.Stream != "apple-2" || s.Position >= bad {
				t.Errorf("status %+v; want a stop at %d of apple-2", s, bad)
			}
			eventually(t, "the hook is called", func() bool { return calls.Load() > 0 }) // waiters wake before
			// A process that runs no projections learns it from the checkpoint.
			eventually(
				t, "the stop is in the checkpoint", func() bool { return NewWaiter(w.db).Stopped(t.Context(), "apples") != nil },
			)
			wantUnavailable(t, NewWaiter(w.db).Wait(limited(t), last, "apples"), "has stopped")
			stop, ok := errors.AsType[*Stop](NewWaiter(w.db).Stopped(t.Context(), "apples"))
			if !ok || stop.Error() != s.Stop.Error() || stop.Position != bad {
				t.Errorf("the checkpoint has %v, want %v", stop, s.Stop)
			}
			if n := calls.Load(); n != 1 {
				t.Errorf("the hook was called %d times", n)
			}
		})
	}
}

// ofTomorrow is an event of a newer release.
type ofTomorrow struct{ added }

func (ofTomorrow) EventType() string { return "tally.of-tomorrow.v1" }

// An event of a newer release stops the projector of an older one. The newer one continues from
// there: nothing has to be rebuilt.
func TestRunner_StoppedEventBecomesKnown(t *testing.T) {
	w := newWorld(t)
	w.add(t, "apple-1", 1)
	bad := w.append(t, "apple-1", "tally.of-tomorrow.v1", added{N: 2})
	last := w.add(t, "apple-1", 4)
	old := w.runtime(t, nil, tally{family: "apple"})
	stop := run(t, old)
	wantUnavailable(t, old.Waiter().Wait(limited(t), last, "apples"), "has stopped")
	if s := status(t, old, "apples"); s.Stop == nil || s.Stop.Position != bad ||
		!strings.Contains(s.Stop.Error(), "tally.of-tomorrow.v1") {
		t.Fatalf("stopped at %+v", s.Stop)
	}
	stop()
	t.Run("not yet", func(t *testing.T) {
		again := w.start(t, nil, tally{family: "apple"})
		eventually(t, "it stops at the same event", func() bool {
			s := status(t, again, "apples")
			return s.Stop != nil && s.Stop.Position == bad && !s.Active
		})
		w.wantTotals(t, "apples", total{"apple-1", 1, 1})
	})

	var err error
	w.codec, err = eventstore.NewCodec([]domain.Constructor{
		func() event.Event { return new(added) },
		func() event.Event { return new(ofTomorrow) },
	})
	runtest.Must(t, err)
	newer := w.start(t, func(c *Config) {
		c.Hooks.Page = func(_ string, events, _ int, _ time.Duration) {
			if events > 2 {
				t.Errorf("a page of %d events: events before the stop came again", events)
			}
		}
	}, tally{family: "apple"})
	eventually(t, "it goes on", func() bool { return newer.Waiter().Wait(limited(t), last, "apples") == nil })
	w.wantTotals(t, "apples", total{"apple-1", 7, 3})
	if s := status(t, newer, "apples"); s.Stop != nil || !s.Active {
		t.Errorf("status %+v", s)
	}
	if stop := NewWaiter(w.db).Stopped(t.Context(), "apples"); stop != nil {
		t.Errorf("the checkpoint still has %v", stop)
	}
}

func TestRunner_EventsOfOtherFamilies(t *testing.T) {
	w := newWorld(t)
	rt := w.start(t, nil, tally{family: "apple"})
	w.add(t, "apple-1", 1)
	w.append(t, "pear-1", "tally.of-tomorrow.v1", added{})
	mustWait(t, rt.Waiter(), w.add(t, "apple-1", 2), "apples")
	w.wantTotals(t, "apples", total{"apple-1", 3, 2})
}

func TestRunner_AnotherLog(t *testing.T) {
	w := newWorld(t)
	first := w.logID
	stop := run(t, w.runtime(t, nil, tally{family: "apple"}))
	mustWait(t, NewWaiter(w.db), w.add(t, "apple-1", 1, 2), "apples")
	stop()

	t.Run("of another id", func(t *testing.T) {
		w := worldOver(t, w.db, eventstoretest.NewMemory())
		rt := w.start(t, nil, tally{family: "apple", version: 2}) // another version does not drop the rows either
		last := w.add(t, "apple-1", 1, 2, 3)
		wantUnavailable(t, rt.Waiter().Wait(limited(t), last, "apples"), "has stopped")
		s := status(t, rt, "apples")
		if s.Stop == nil || !strings.Contains(s.Stop.Error(), first.String()) ||
			!strings.Contains(s.Stop.Error(), w.logID.String()) {
			t.Errorf("stop %v, want both ids", s.Stop)
		}
		wantNoRebuild(t, rt, first.String())
		w.wantTotals(t, "apples", total{"apple-1", 3, 2})
	})
	t.Run("an older copy", func(t *testing.T) {
		w := worldOver(t, w.db, eventstoretest.NewMemory())
		w.logID = first
		rt := w.start(t, nil, tally{family: "apple"})
		wantStop(t, rt, "the event store is an older copy")
		wantNoRebuild(t, rt, "an older copy")
		w.wantTotals(t, "apples", total{"apple-1", 3, 2})
	})
	t.Run("a copy that went on", func(t *testing.T) {
		w := worldOver(t, w.db, eventstoretest.NewMemory())
		w.logID = first
		w.add(t, "apple-1", 1, 2, 3)
		rt := w.start(t, nil, tally{family: "apple"})
		wantStop(t, rt, "has diverged")
		wantNoRebuild(t, rt, "has diverged")
		w.wantTotals(t, "apples", total{"apple-1", 3, 2})
	})
}

// wantStop waits for the stop, since the checkpoint has the stop of an earlier process until this
// one takes the lease.
func wantStop(t *testing.T, rt *Runtime, says string) {
	t.Helper()
	eventually(t, "it stops and says "+says, func() bool {
		s := status(t, rt, "apples")
		return s.Stop != nil && strings.Contains(s.Stop.Error(), says)
	})
	wantUnavailable(t, rt.Waiter().Wait(limited(t), 1<<40, "apples"), "has stopped")
}

func TestRuntime_LogOpenedLater(t *testing.T) {
	w := newWorld(t)
	rt := w.start(t, func(c *Config) { c.LogID = LogIDOf(w.store, w.codec) }, tally{family: "apple"})
	eventually(t, "the runner says what it lacks", func() bool { return status(t, rt, "apples").LastErr != nil })
	id := uuid.New()
	w.append(t, stream.Registry, event.Event(registry.LogOpened{}).EventType(),
		registry.LogOpened{LogID: id, OpenedAt: time.Unix(1, 0).UTC()})
	mustWait(t, rt.Waiter(), w.add(t, "apple-1", 1), "apples")
	var got uuid.UUID
	if err := w.db.QueryRow(t.Context(), "select log_id from apples.checkpoint").Scan(&got); err != nil || got != id {
		t.Errorf("checkpoint holds log %s, %v; want %s", got, err, id)
	}
}

// Both processes know the holder of the lease and whether it is alive. Each lease has a new epoch.
func TestStandby_LeaseHolder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	// Long enough for a slow machine: a lease that is lost and taken again has a new epoch.
	a := w.runtime(t, func(c *Config) { c.Holder, c.Lease = "a", 10*time.Second }, tally{family: "apple"})
	b := w.runtime(t, func(c *Config) { c.Holder = "b" }, tally{family: "apple"})
	if turn, err := a.LeaseOf(t.Context(), "apples"); err != nil || turn.Holder != "" {
		t.Errorf("before the first lease: %+v, %v", turn, err)
	}
	if epoch, active := a.Active("apples"); epoch != 0 || active {
		t.Errorf("before the first lease: %d, %v", epoch, active)
	}
	stop := run(t, a)
	mustWait(t, a.Waiter(), w.add(t, "apple-1", 1), "apples")
	first, err := b.LeaseOf(t.Context(), "apples")
	epoch, active := a.Active("apples")
	if err != nil || first.Holder != "a" || !active || epoch != first.Epoch {
		t.Fatalf("lease %+v, %v; a is active: %v, in %d", first, err, active, epoch)
	}
	if _, active := b.Active("apples"); active || a.StoppedHere(t.Context(), "apples") {
		t.Error("b is active, or a stopped")
	}
	eventually(t, "the turn is prolonged while its holder lives", func() bool {
		turn, err := b.LeaseOf(t.Context(), "apples")
		if err != nil || turn.Epoch != first.Epoch {
			t.Fatalf("lease %+v, %v", turn, err)
		}
		return turn.Until.After(first.Until)
	})
	stop()
	run(t, b)
	mustWait(t, b.Waiter(), w.add(t, "apple-1", 2), "apples")
	second, err := a.LeaseOf(t.Context(), "apples")
	epoch, active = b.Active("apples")
	if err != nil || second.Holder != "b" || second.Epoch <= first.Epoch || !active || epoch != second.Epoch {
		t.Errorf("lease %+v, %v; b is active: %v, in %d", second, err, active, epoch)
	}
	if _, known := a.Active("pears"); known {
		t.Error("an unknown projection is active")
	}
}

// The target of this process is emptied once for each target of another lease holder. It is not
// emptied for its own lease from before a crash.
func TestStandby_TargetOfAnotherProcess(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.once(t, nil, external{tally: tally{family: "apple"}, target: "own"})
	hold := func(target string) {
		t.Helper()
		w.exec(t, `update apples.checkpoint
			set holder = 'another', until = clock_timestamp() + interval '1 hour', target = $1`, target)
	}
	var reset, looked atomic.Int64
	second := w.runtime(t, func(c *Config) {
		c.LogID = func(context.Context) (uuid.UUID, error) {
			looked.Add(1)
			return w.logID, nil
		}
	}, external{tally: tally{family: "apple"}, target: "own", reset: &reset})
	// look waits for several checks of the lease after a change: one of them has acted on it.
	look := func(want int64) {
		t.Helper()
		until := looked.Load() + 5
		eventually(t, "it checks the lease", func() bool { return looked.Load() >= until })
		if n := reset.Load(); n != want {
			t.Errorf("emptied %d times, want %d", n, want)
		}
	}
	hold("own")
	run(t, second)
	look(0)
	hold("theirs")
	look(1)
	look(1)
	hold("another one")
	look(2)
	// Its next lease rebuilds the target from the whole log.
	w.exec(t, `update apples.checkpoint set until = clock_timestamp()`)
	mustWait(t, second.Waiter(), w.add(t, "apple-1", 2), "apples")
	if n := reset.Load(); n != 3 {
		t.Errorf("emptied %d times", n)
	}
	w.wantTotals(t, "apples", total{"apple-1", 3, 2})
}

// StoppedHere distinguishes a projection that stopped here from one that runs in another process.
func TestStandby_StoppedHere(t *testing.T) {
	w := newWorld(t)
	a := w.start(t, nil, tally{family: "apple"})
	mustWait(t, a.Waiter(), w.add(t, "apple-1", 1), "apples")
	w.add(t, "apple-1", refusedByApply)
	eventually(t, "it stops", func() bool { return a.StoppedHere(t.Context(), "apples") })
	eventually(t, "it releases its lease", func() (given bool) {
		runtest.Must(t, w.db.QueryRow(t.Context(), `select stopped is not null from apples.checkpoint`).Scan(&given))
		return given
	})
	if _, active := a.Active("apples"); active {
		t.Error("it stopped and is active")
	}
	w.exec(t,
		`update apples.checkpoint set holder = 'another', stopped = null, until = clock_timestamp() + interval '1 hour'`)
	if a.StoppedHere(t.Context(), "apples") {
		t.Error("it runs in another process, and counts as stopped here")
	}
}

// A page that failed here is no failure of this process once another one has the lease: a process that was
// suspended in a page would never be ready again.
func TestStandby_FailedPageIsOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.start(t, nil, tally{family: "apple", apply: func(context.Context, []eventstore.DecodedEvent) error {
		return projections.Transient(errors.New("database is away"))
	}})
	w.add(t, "apple-1", 1)
	eventually(t, "its page fails", func() bool { return status(t, a, "apples").LastErr != nil })
	w.exec(t, `update apples.checkpoint set epoch = epoch + 1, holder = 'another', until = clock_timestamp() + interval '1 hour'`)
	eventually(t, "it stands by without a failure", func() bool {
		s := status(t, a, "apples")
		return !s.Active && s.LastErr == nil && s.Repeat == nil
	})
}
