package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/erasure"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/work"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/usage"
	"github.com/annals-project/annals/projections/usage/limiter"
)

// heldStore is a store whose scavenge takes until it is released.
type heldStore struct{ begun, release chan struct{} }

func (h heldStore) Scavenge(ctx context.Context) error {
	select {
	case h.begun <- struct{}{}:
	default:
	}
	select {
	case <-h.release:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// While a scavenge takes long, what crashes left of batches and deletions is completed all the same.
func TestFinisher_FanOutsDuringAScavenge(t *testing.T) {
	t.Parallel()
	w := newIdleNodeHarness(t)
	w.clock.move(finishAfter)
	held := heldStore{make(chan struct{}, 1), make(chan struct{})}
	w.finisher.Eraser.Store = held
	w.ingestBatch(item("a", "one"), item("b", "two"), item("c", "three"))
	w.remove("a")
	runtest.Part(t, w.finisher.Run)
	<-held.begun
	w.commitDeletion("b", "c")
	w.commitBatch("key", item("d", "four"), item("e", "five"))
	for id, want := range map[string]bool{"b": false, "c": false, "d": true, "e": true} {
		w.until(id+" is finished", func() bool {
			last, ok, err := w.log.Last(t.Context(), w.pointName(id))
			runtest.Must(t, err)
			_, deleted := last.Event.(*datapoint.Deleted)
			return ok && deleted != want
		})
	}
	select {
	case <-held.begun:
		t.Error("a second scavenge began during the first")
	default:
	}
	close(held.release)
	if done, err := w.finisher.EraseNow(t.Context()); err != nil || done.Left.Deletions != 0 {
		t.Errorf("left %+v, %v", done.Left, err)
	}
}

// What is deleted is not said to be cleaned by a process that cannot reach the files of the
// index: the one that feeds it does that.
func TestCleaned_ProcessWithTheIndex(t *testing.T) {
	t.Parallel()
	w := newIdleHarness(t)
	w.ingestBatch(item("a", "one"))
	w.remove("a")
	has := false
	w.finisher.Eraser.HasIndex = func() bool { return has }
	w.passHead()
	if done, err := w.finisher.EraseNow(t.Context()); err == nil || done.Deletions != 0 || done.Left.Deletions != 1 {
		t.Errorf("erased %+v, %v", done, err)
	}
	var done erasure.Report
	if w.finisher.round(t.Context(), false, &done); done.Deletions != 0 || len(done.Trouble) > 0 {
		t.Errorf("a round of its own did %+v", done)
	}
	has = true
	if done, err := w.finisher.EraseNow(t.Context()); err != nil || done.Deletions != 1 || done.Left.Deletions != 0 {
		t.Errorf("erased %+v, %v", done, err)
	}
}

// A deletion is recorded as cleaned only after the follow-ups that delete its rows, also those of another
// projection. Deletions without follow-ups do not wait for it.
func TestErase_WaitsForFollowUps(t *testing.T) {
	t.Parallel()
	w := newIdleHarness(t)
	for _, source := range []string{"a", "b"} {
		w.ingest(item(source, "text"))
	}
	var dataPoint string
	w.until("the data points are projected", func() bool {
		return w.db.QueryRow(t.Context(), `select id::text from datapoints.data_points where source_id = 'a'
			and exists (select from datapoints.data_points where source_id = 'b')`).Scan(&dataPoint) == nil
	})
	for _, source := range []string{"a", "b"} {
		w.remove(source)
	}
	for n, schema := range []string{"datapoints", "memories"} {
		// As if the slices went on: no projector knows this kind of follow-up.
		if _, err := w.db.Exec(t.Context(), `insert into `+schema+`.follow_ups (kind, key, project_id, position, data, cursor)
			values ('test', $1::uuid, '00000000-0000-0000-0000-000000000000', 1, '', '')`, dataPoint); err != nil {
			t.Fatal(err)
		}
		runtest.Must(t, w.finisher.waitHead(t.Context(), projection.DataPoints, projection.Memories))
		var done erasure.Report
		w.finisher.round(t.Context(), true, &done)
		left, err := w.finisher.Pending(t.Context())
		if err = errors.Join(append(done.Errs(), err)...); err != nil || done.Deletions != 1-n || left.Deletions != 1 {
			t.Errorf("with a follow-up of %s: %+v, %d left, %v", schema, done, left.Deletions, err)
		}
		w.ok(w.db.Exec(t.Context(), `delete from `+schema+`.follow_ups`))
	}
	done, err := w.finisher.EraseNow(t.Context())
	if err != nil || done.Deletions != 1 || done.Left.Deletions != 0 {
		t.Errorf("without follow-ups: %+v, %v", done, err)
	}
}

// A data point with more revisions than a page deletes is erased like any other: nothing of it is left, the
// deletion is cleaned, and a rebuild has the same rows. ANNALS_TEST_REVISIONS sets how many there are.
func TestErase_ManyRevisions(t *testing.T) {
	t.Parallel()
	w := newIdleHarness(t)
	revisions := projections.SliceRows + 200
	if text := os.Getenv("ANNALS_TEST_REVISIONS"); text != "" {
		var err error
		if revisions, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	for n := range revisions {
		w.ingest(item("a", "text "+strconv.Itoa(n)))
	}
	w.remove("a")
	var live int
	if err := w.db.QueryRow(t.Context(), `select count(*) from datapoints.data_points`).Scan(&live); err != nil || live != 0 {
		t.Errorf("%d data points are live after the answer, %v", live, err)
	}
	w.until("the deletion is cleaned", func() bool {
		done, err := w.finisher.EraseNow(t.Context())
		runtest.Must(t, err)
		return done.Left.Deletions == 0
	})
	counts := func() (all string) {
		t.Helper()
		runtest.Must(t, w.db.QueryRow(t.Context(), `select format('%s revisions, %s items, %s deleted, %s indexed, %s ready',
			(select count(*) from datapoints.revisions), (select count(*) from datapoints.items),
			(select count(*) from datapoints.items where deleted_at is not null and phase = 'done'),
			(select count(*) from datapoints.sends where phase = 'indexed' and deleted = 1),
			(select sum(raw + comprehension + failed) from datapoints.readiness))`).Scan(&all))
		return all
	}
	want := fmt.Sprintf("0 revisions, %[1]d items, %[1]d deleted, %[1]d indexed, 0 ready", revisions)
	if got := counts(); got != want {
		t.Errorf("erased: %s, want %s", got, want)
	}
	runtest.Must(t, w.runtime.Rebuild(t.Context(), projection.DataPoints, nil))
	if got := counts(); got != want {
		t.Errorf("rebuilt: %s, want %s", got, want)
	}
}

// A finisher rests only after its machine was suspended, so that earlier commands are over before
// the next sweep.
func TestSuspendWatch(t *testing.T) {
	wall, timers := at, time.Duration(0)
	w := suspendWatch{clocks: func() (time.Time, time.Duration) { return wall, timers }}
	pass := func(onWall, onTimers time.Duration) time.Duration {
		wall, timers = wall.Add(onWall), timers+onTimers
		return w.rest()
	}
	for _, step := range []struct {
		name         string
		wall, timers time.Duration
		want         time.Duration
	}{
		{"the first look", 0, 0, 0},
		{"a day awake", 24 * time.Hour, 24 * time.Hour, 0},
		{"a clock that is set a little", time.Minute + clockJump, time.Minute, 0},
		{"a clock that is set back", time.Minute, time.Hour, 0},
		{"a night asleep", 8 * time.Hour, time.Second, sweepRest},
		{"awake again", time.Minute, time.Minute, sweepRest - time.Minute},
		{"asleep once more", time.Hour, 0, sweepRest},
		{"rested", sweepRest, sweepRest, 0},
		{"and on", time.Hour, time.Hour, 0},
	} {
		if got := pass(step.wall, step.timers); got != step.want {
			t.Errorf("%s: rests %v, want %v", step.name, got, step.want)
		}
	}
}

// After a suspension nothing is swept before earlier commands are over, even if an operator asks
// for it.
func TestSweep_MachineSlept(t *testing.T) {
	w := newIdleHarness(t)
	var timers time.Duration
	w.finisher.suspension.clocks = func() (time.Time, time.Duration) { return w.clock.now(), timers }
	if n := w.swept(); n != 0 { // the first reading
		t.Fatalf("%d blobs were taken of none", n)
	}
	w.dead(w.stop(1).Ingest(t.Context(), w.call, item("b", big), ""))
	w.clock.move(2 * blob.Keep)
	if n := w.swept(); n != 0 || w.blobs() != 1 {
		t.Errorf("%d blobs were taken right after the machine slept", n)
	}
	timers += sweepRest
	w.clock.move(sweepRest)
	if n := w.swept(); n != 1 || w.blobs() != 0 {
		t.Errorf("%d blobs were taken once it had rested", n)
	}
}

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
	w.ok(w.finisher.dropReservations(w.t.Context()))
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
		Journal: engine.NewJournal(heads{told: r}, nil, nil), Progress: r, Reservations: r,
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
