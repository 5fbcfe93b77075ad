package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/work"
	"github.com/annals-project/annals/projections/usage"
	"github.com/annals-project/annals/projections/usage/limiter"
)

// capped lets the project of the harness take so many data points a month.
func (w *harness) capped(items int64) *limiter.Limiter {
	w.t.Helper()
	p := &w.call.Principal
	p.OrganizationID = uuid.New()
	p.Limits = metering.Caps{IngestionCap: &items}
	projectiontest.Make(w.t, w.db, usage.New())
	var log projectiontest.Log
	log.Append(stream.Registry, &registry.ProjectCreated{ProjectID: p.Project.ID, OrganizationID: p.OrganizationID})
	projectiontest.Apply(w.t, w.db, usage.New(), log.Facts...)
	m := limiter.New(w.db, metering.DefaultPlanTerms(), w.waiter, slog.New(slog.DiscardHandler))
	w.config.Limits = m
	w.write, w.finisher.Reservations = commands.New(w.config), m
	return m
}

func (w *harness) refused(id string) bool {
	w.t.Helper()
	_, err := w.write.Ingest(w.t.Context(), w.call, item(id, "text of "+id), "")
	f, is := errors.AsType[*fault.Error](err)
	if err != nil && (!is || f.Code != fault.CodeProjectCapReached) {
		w.t.Fatal(err)
	}
	return err != nil
}

// reservations is how many are kept, after the finisher has looked.
func (w *harness) reservations() (n int) {
	w.t.Helper()
	w.passHead()
	if _, err := w.finisher.dropReservations(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	runtest.Must(w.t, w.db.QueryRow(w.t.Context(), `select count(*) from ops.reservations`).Scan(&n))
	return n
}

// age makes every reservation overdue.
func (w *harness) age() {
	w.t.Helper()
	if _, err := w.db.Exec(w.t.Context(),
		`update ops.reservations set until = clock_timestamp() - interval '1 second'`); err != nil {
		w.t.Fatal(err)
	}
}

// What a process that died had reserved is given back once its time is over, and not before; what
// it had stored in its last moment stays taken.
func TestReservations_DeadProcess(t *testing.T) {
	t.Parallel()
	w := newIdleHarness(t)
	w.capped(3)
	if w.refused("a") {
		t.Fatal("the first is refused")
	}
	if n := w.reservations(); n != 0 {
		t.Fatalf("%d reservations of what is a fact", n)
	}
	dead := w.stop(0)
	for range 2 {
		w.dead(dead.Ingest(t.Context(), w.call, item("lost", "a text that is lost"), ""))
	}
	if n := w.reservations(); n != 2 || !w.refused("b") {
		t.Fatalf("%d reservations, want those of the dead process, which fill the cap", n)
	}
	w.age()
	if n := w.reservations(); n != 0 {
		t.Fatalf("%d reservations are left", n)
	}
	if w.refused("b") || w.refused("c") || !w.refused("d") {
		t.Error("the cap is not met")
	}
}

// recorder records the order of the calls of the finisher.
type recorder struct {
	progress
	calls   []string
	overdue []work.Reservation
}

func (r *recorder) say(call string) { r.calls = append(r.calls, call) }

func (r *recorder) Wait(_ context.Context, p eventstore.Position, names ...string) error {
	for _, name := range names {
		r.say("wait for " + name)
	}
	if p == 0 {
		return errors.New("waits for nothing")
	}
	return nil
}

func (r *recorder) DropFacts(context.Context) (time.Duration, error) {
	r.say("facts")
	return time.Second, nil
}

func (r *recorder) Overdue(context.Context, int) ([]work.Reservation, error) {
	r.say("overdue")
	return r.overdue, nil
}

func (r *recorder) Drop(_ context.Context, some []work.Reservation) error {
	r.say("drop")
	r.overdue = r.overdue[len(some):]
	return nil
}

// heads records reads of the head of the log.
type heads struct {
	eventstore.Store
	told *recorder
}

func (h heads) Head(context.Context) (eventstore.Position, error) {
	h.told.say("head")
	return 7, nil
}

// A reservation is dropped once the projection has passed a head that was read after the reservation was found overdue.
func TestReservations_OverdueWaitForTheHead(t *testing.T) {
	r := &recorder{overdue: []work.Reservation{{SendID: uuid.New(), Try: uuid.New()}}}
	f := &Finisher{
		Journal: commands.NewJournal(heads{told: r}, nil, nil), Progress: r, Reservations: r,
		Logger: slog.New(slog.DiscardHandler), Now: time.Now,
	}
	next, err := f.dropReservations(t.Context())
	if err != nil || next != time.Second {
		t.Fatalf("next %s, %v", next, err)
	}
	want := []string{"facts", "overdue", "head", "wait for " + projection.DataPoints, "drop", "overdue"}
	if len(r.calls) != len(want) {
		t.Fatalf("calls %v, want %v", r.calls, want)
	}
	for i := range want {
		if r.calls[i] != want[i] {
			t.Errorf("calls %v, want %v", r.calls, want)
		}
	}
}
