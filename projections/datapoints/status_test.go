package datapoints_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/datapoints"
)

func TestStatus(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		given func(w *fixture) // applied
		late  func(w *fixture) // in the log, applied once it is waited for
		want  datapoints.Status
		waits bool
	}{
		{
			name:  "under way: nothing is waited for",
			given: func(w *fixture) { w.revised("s", "a", alone) },
			late:  func(w *fixture) { w.derived("s", "a", 0, 1) },
			want:  datapoints.Status{Status: "processing", Readiness: datapoints.Readiness{Raw: 1}},
		},
		{
			name: "settled",
			given: func(w *fixture) {
				w.revised("s", "a", alone)
				w.derived("s", "a", 0, 1)
				w.indexed("s")
			},
			want:  datapoints.Status{Status: "completed", Settled: true},
			waits: true,
		},
		{
			name: "settled as far as the projection is, but another send was answered meanwhile",
			given: func(w *fixture) {
				w.revised("s", "a", alone)
				w.derived("s", "a", 0, 1)
				w.indexed("s")
			},
			late:  func(w *fixture) { w.revised("other", "b", alone) },
			want:  datapoints.Status{Status: "completed", Readiness: datapoints.Readiness{Raw: 1}},
			waits: true,
		},
		{
			name: "blocked",
			given: func(w *fixture) {
				w.revised("s", "a", alone)
				w.missed("s", "a", 0, 1, 1, 0, true)
				w.stopped("s", ingestion.ContentRejected)
			},
			want: datapoints.Status{
				Status: "failed", Blocked: true, Readiness: datapoints.Readiness{Failed: 1}, Failure: &datapoints.Failure{
					Code: "content-rejected", Message: "s stopped",
				},
			},
			waits: true,
		},
		{
			name: "blocked as far as the projection is, but it was retried",
			given: func(w *fixture) {
				w.revised("s", "a", alone)
				w.missed("s", "a", 0, 1, 1, 0, true)
				w.stopped("s", ingestion.ContentRejected)
			},
			late:  func(w *fixture) { w.retried("s", 1) },
			want:  datapoints.Status{Status: "processing", Readiness: datapoints.Readiness{Raw: 1}},
			waits: true,
		},
		{
			name:  "answered, and the projection is behind",
			given: func(*fixture) {},
			late:  func(w *fixture) { w.revised("s", "a", alone) },
			want:  datapoints.Status{Status: "processing", Readiness: datapoints.Readiness{Raw: 1}},
			waits: true,
		},
		{
			name: "nothing changed",
			given: func(w *fixture) {
				w.revised("first", "a", alone)
				w.resent("s", "a", alone)
			},
			want: datapoints.Status{Status: "completed", Readiness: datapoints.Readiness{Raw: 1}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newFixture(t)
			c.given(w)
			w.apply()
			if c.late != nil {
				c.late(w)
			}
			waiter := &waits{fixture: w}
			w.Queries.Wait = waiter
			got, err := w.Queries.Status(t.Context(), project, id("s"))
			runtest.Must(t, err)
			same(t, "status", c.want, got)
			if waited := waiter.position == w.last && w.last > 0; waited != c.waits {
				t.Errorf("waited for the head: %v, want %v (position %d)", waited, c.waits, waiter.position)
			}
		})
	}
}

// waits records what is waited for.
type waits struct {
	*fixture
	position eventstore.Position
	err      error
}

func (w *waits) Wait(ctx context.Context, position eventstore.Position, names ...string) error {
	if len(names) != 1 || names[0] != datapoints.Name {
		w.t.Errorf("waits for %v", names)
	}
	w.position = position
	if w.err != nil {
		return w.err
	}
	return w.fixture.Wait(ctx, position, names...)
}

func wantFault(t *testing.T, err error, code string) {
	t.Helper()
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != code {
		t.Errorf("error is %v, want fault %s", err, code)
	}
}

func TestStatus_LateProjection(t *testing.T) {
	w := newFixture(t)
	w.revised("s", "a", alone)
	w.derived("s", "a", 0, 1)
	w.indexed("s")
	w.apply()
	w.Queries.Wait = &waits{fixture: w, err: fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "late")}
	for _, send := range []string{"s", "unknown"} {
		_, err := w.Queries.Status(t.Context(), project, id(send))
		wantFault(t, err, fault.CodeServiceUnavailable)
	}
	if _, found, err := w.Queries.Targets(t.Context(), project, id("unknown")); found || err == nil {
		t.Errorf("targets: found %v, %v", found, err)
	}
}

func TestQueries_OtherProject(t *testing.T) {
	w := newFixture(t)
	w.revised("s", "a", alone)
	w.missed("s", "a", 0, 1, 1, 0, true)
	w.stopped("s", ingestion.Internal)
	w.apply()
	ctx := t.Context()
	_, err := w.Queries.Status(ctx, neighbour, id("s"))
	wantFault(t, err, fault.CodeNotFound)
	_, err = w.Queries.Status(ctx, project, id("unknown"))
	wantFault(t, err, fault.CodeNotFound)
	if _, ok, err := w.Queries.Send(ctx, neighbour, id("s")); ok || err != nil {
		t.Errorf("send: %v, %v", ok, err)
	}
	if _, found, err := w.Queries.Targets(ctx, neighbour, id("s")); found || err != nil {
		t.Errorf("targets: %v, %v", found, err)
	}
	for _, of := range []string{"s", "request of s"} {
		if s, ok, err := w.Queries.Explain(ctx, neighbour, id(of), 10, 0); ok || len(s.Items) != 0 || err != nil {
			t.Errorf("explain %s: %+v, %v, %v", of, s, ok, err)
		}
	}
	if ready, err := w.Queries.Readiness(ctx, neighbour); ready != (datapoints.Readiness{}) || err != nil {
		t.Errorf("readiness: %v, %v", ready, err)
	}
	if sends, err := w.Queries.FailedSends(ctx, neighbour.ID, 10, uuid.Nil); len(sends) != 0 || err != nil {
		t.Errorf("failed sends: %v, %v", sends, err)
	}
}

func TestTargets(t *testing.T) {
	w := newFixture(t)
	w.revised("first", "same", alone)
	in := w.committed("s", "same", "b", "a")
	w.resent("s", "same", in(0))
	w.revised("s", "b", in(1))
	w.revised("s", "a", in(2))
	w.apply()
	want := func(targets ...uuid.UUID) {
		t.Helper()
		got, found, err := w.Queries.Targets(t.Context(), project, id("s"))
		if err != nil || !found {
			t.Fatal(found, err)
		}
		same(t, "targets", targets, got)
	}
	want(id("same"), id("b"), id("a")) // not fanned out: any item may create a revision
	created := ingestion.Outcome{Outcome: ingestion.Created, Revision: 1}
	w.fannedOut("s", ingestion.Outcome{Outcome: ingestion.Unchanged, Revision: 1}, created, created)
	w.deleted("d", "b", true)
	w.apply()
	want(id("b"), id("a"))
}

func TestSourceIDs_LiveOnesOfTheProject(t *testing.T) {
	w := newFixture(t)
	w.revised("s", "a", alone)
	w.revised("t", "b", alone)
	w.deleted("d", "b", true)
	w.apply()
	asked := []uuid.UUID{id("a"), id("b"), id("none")}
	got, err := w.Queries.SourceIDs(t.Context(), project, asked)
	if diff := cmp.Diff(map[uuid.UUID]string{id("a"): "a"}, got); err != nil || diff != "" {
		t.Errorf("source ids (-want +got): %v\n%s", err, diff)
	}
	if got, err := w.Queries.SourceIDs(t.Context(), auth.Project{ID: uuid.New()}, asked); err != nil || len(got) > 0 {
		t.Errorf("of another project: %v, %v", got, err)
	}
}

// The sends that failed after a time are counted over all projects, without those whose failure counts no more.
func TestRecentFailures(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	fail := func(name, code string) {
		w.revised("send of "+name, name, alone)
		w.missed("send of "+name, name, 0, w.states[name].Revision, 1, 0, true)
		w.stopped("send of "+name, code)
	}
	count := func(after time.Time) datapoints.RecentFailures {
		t.Helper()
		got, err := w.Queries.RecentFailures(t.Context(), after)
		runtest.Must(t, err)
		return got
	}
	if got := count(noon); got != (datapoints.RecentFailures{}) {
		t.Errorf("of nothing: %+v", got)
	}
	fail("a", ingestion.ModelUnavailable)
	w.project = neighbour.ID
	fail("b", ingestion.Internal)
	w.apply()
	newest := datapoints.Failure{Code: ingestion.Internal, Message: "send of b stopped"}
	if got := count(noon); got != (datapoints.RecentFailures{Sends: 2, Newest: newest}) {
		t.Errorf("of two: %+v", got)
	}
	if got := count(at(2)); got != (datapoints.RecentFailures{Sends: 1, Newest: newest}) { // a failed at that time
		t.Errorf("after the first: %+v", got)
	}
	if got := count(at(100)); got != (datapoints.RecentFailures{}) {
		t.Errorf("after both: %+v", got)
	}
	w.deleted("d", "b", true)
	w.apply()
	if got := count(noon); got.Sends != 1 || got.Newest.Code != ingestion.ModelUnavailable {
		t.Errorf("after a deletion: %+v", got)
	}
}

func TestCountAll_OldestErasure(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	check := func(when string, points int64, oldest time.Time) {
		t.Helper()
		w.apply()
		n, err := w.Queries.CountAll(t.Context())
		if err != nil || n != points {
			t.Errorf("%s: %d data points, %v", when, n, err)
		}
		if got, err := w.Queries.OldestErasure(t.Context()); err != nil || !got.Equal(oldest) {
			t.Errorf("%s: oldest deletion %s, %v", when, got, err)
		}
	}
	w.revised("send of a", "a", alone)
	check("one", 1, time.Time{})
	w.revised("send of b", "b", alone)
	accepted := w.at()
	w.wiped("first", "", "a")
	w.deleted("first", "a", false)
	w.wipeFannedOut("first")
	check("a deletion", 1, accepted)
	w.kept("first", "a")
	w.cleaned("first")
	check("after its erasure", 1, time.Time{})
}
