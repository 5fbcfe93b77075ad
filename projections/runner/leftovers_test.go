package runner

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/projections"
)

// killedRebuild leaves the shadow of a process that was killed a moment ago, with a row in it.
func (w *fixture) killedRebuild(t *testing.T, p projections.Projector) {
	t.Helper()
	shadow := newCheckpoints(w.db, p.Name()+shadowSuffix)
	live, err := newCheckpoints(w.db, p.Name()).read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := pgx.BeginFunc(t.Context(), w.db, func(tx pgx.Tx) error {
		if _, err := shadow.create(t.Context(), tx, p, 0, live.logID); err != nil {
			return err
		}
		_, err := shadow.takeLease(t.Context(), tx, "killed", time.Hour)
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// A vacuum retains the shadow of a killed process until its lease is over, and then drops it.
func TestVacuum_RebuildOfAKilledProcess(t *testing.T) {
	for name, hooked := range map[string]bool{"of this process's projection": true, "of a projection that this process does not run": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			apples := tally{family: "apple"}
			rt := w.runtime(t, nil, apples)
			run(t, rt)
			mustWait(t, rt.Waiter(), w.add(t, "apple-1", 1), "apples")
			w.killedRebuild(t, apples)
			v := Vacuum{DB: w.db, LogID: w.id}
			if hooked {
				v.Leftovers = rt.DropLeftovers
			}
			short, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := v.Vacuum(short); err == nil {
				t.Fatal("vacuumed within the lease of a rebuild")
			}
			if n := w.schemas(t, "apples"); n != 2 {
				t.Fatalf("%d schemas, want that of a rebuild that may be at work among them", n)
			}
			w.exec(t, `update apples_next.checkpoint set until = clock_timestamp()`)
			if _, err := v.Vacuum(t.Context()); err != nil {
				t.Fatalf("after the lease: %v", err)
			}
			if n := w.schemas(t, "apples"); n != 1 {
				t.Errorf("%d schemas are left", n)
			}
		})
	}
}

// The shadow of a rebuild in progress is not a leftover, even if its lease is over.
func TestDropLeftovers_RebuildAtWork(t *testing.T) {
	w := newWorld(t)
	rt := w.runtime(t, nil, tally{family: "apple"})
	run(t, rt)
	mustWait(t, rt.Waiter(), w.add(t, "apple-1", 1), "apples")
	built := false
	if err := rt.Rebuild(t.Context(), "apples", func(p RebuildProgress) {
		if built || p.Done {
			return
		}
		built = true
		if err := rt.DropLeftovers(t.Context()); err != nil {
			t.Error(err)
		}
		if n := w.schemas(t, "apples"); n != 2 {
			t.Errorf("%d schemas during a rebuild", n)
		}
		at, err := Rebuilds(t.Context(), rt.db, w.id)
		if err != nil || len(at) != 1 || at[0].Projection != "apples" || !at[0].IsRunning {
			t.Errorf("the rebuilds are %+v, %v", at, err)
		}
	}); err != nil || !built {
		t.Fatalf("rebuilt %t, %v", built, err)
	}
	w.wantTotals(t, "apples", total{"apple-1", 1, 1})
}

// A process that starts while the lease of a killed rebuild lasts drops its shadow later, by
// itself.
func TestRuntime_DropsLeftoversAfterTheirLease(t *testing.T) {
	w := newWorld(t)
	apples := tally{family: "apple"}
	rt := w.runtime(t, nil, apples)
	stop := run(t, rt)
	mustWait(t, rt.Waiter(), w.add(t, "apple-1", 1), "apples")
	stop()
	w.killedRebuild(t, apples)
	next := w.runtime(t, nil, apples)
	run(t, next)
	mustWait(t, next.Waiter(), w.add(t, "apple-1", 1), "apples")
	if n := w.schemas(t, "apples"); n != 2 {
		t.Fatalf("%d schemas within the lease, want 2", n)
	}
	w.exec(t, `update apples_next.checkpoint set until = clock_timestamp()`)
	eventually(t, "the shadow is dropped", func() bool { return w.schemas(t, "apples") == 1 })
}
