package datapoints_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/ingestion"
)

// phases returns the phase of each send, with the second of noon at which it settled.
func (w *fixture) phases(sends ...string) map[string]string {
	w.t.Helper()
	w.apply()
	phases := map[string]string{}
	for _, name := range sends {
		var phase string
		var settled *time.Time
		row := w.Queries.DB.QueryRow(w.t.Context(), `select phase, settled_at from datapoints.sends
			where id = $1`, id(name))
		if err := row.Scan(&phase, &settled); err != nil {
			w.t.Fatalf("%s: %v", name, err)
		}
		if settled != nil {
			phase += settled.UTC().Format(" 05")
		}
		phases[name] = phase
	}
	return phases
}

// A watermark ends the sends captured up to it, and no others.
func TestSearchable(t *testing.T) {
	w := newFixture(t)
	created := ingestion.Outcome{Outcome: ingestion.Created, Revision: 1}
	for _, name := range []string{"captured", "stopped", "retried"} {
		w.revised(name, name, alone)
		w.derived(name, name, 0, 1)
	}
	w.stopped("stopped", ingestion.IndexUnavailable)
	w.revised("failed", "failed", alone)
	w.missed("failed", "failed", 0, 1, 1, 0, true)
	w.revised("queued", "queued", alone)
	w.revised("begun", "begun", alone)
	w.started("begun", "begun", 0, 1, 1, 0)
	in := w.committed("halved", "a", "b")
	w.revised("halved", "a", in(0))
	w.revised("halved", "b", in(1))
	w.derived("halved", "a", 0, 1)
	w.derived("halved", "b", 1, 1)
	w.fannedOut("halved", created, created)
	w.deleted("d", "a", true)
	history := w.committed("historic", "captured", "queued", "failed")
	w.revised("historic", "captured", history(0), true)
	w.resent("historic", "queued", history(1))
	w.moved("historic", "failed", uuid.Nil, history(2))
	w.fannedOut("historic", ingestion.Outcome{Outcome: ingestion.Updated, Revision: 2},
		ingestion.Outcome{Outcome: ingestion.Unchanged, Revision: 1},
		ingestion.Outcome{Outcome: ingestion.Moved, Revision: 1})
	open := w.committed("open", "c")
	w.revised("open", "c", open(0))
	w.derived("open", "c", 0, 1)
	upTo := w.last
	w.revised("later", "later", alone)
	w.derived("later", "later", 0, 1)
	w.stopped("retried", ingestion.IndexUnavailable)
	w.retried("retried", 1)
	since := w.searchable(upTo).Format(" 05")
	want := map[string]string{
		"captured": "indexed" + since, "stopped": "failed 06", "failed": "captured", "queued": "queued",
		"begun": "processing", "halved": "captured", "historic": "indexed" + since, "open": "queued",
		"later": "captured", "retried": "captured",
	}
	names := []string{"captured", "stopped", "failed", "queued", "begun", "halved", "historic", "open", "later", "retried"}
	if diff := cmp.Diff(want, w.phases(names...)); diff != "" {
		t.Errorf("phases (-want +got):\n%s", diff)
	}
	w.searchable(upTo) // again, which changes nothing
	if diff := cmp.Diff(want, w.phases(names...)); diff != "" {
		t.Errorf("phases after it came again (-want +got):\n%s", diff)
	}
	since = w.searchable(w.last).Format(" 05")
	want["later"], want["retried"] = "indexed"+since, "indexed"+since
	if diff := cmp.Diff(want, w.phases(names...)); diff != "" {
		t.Errorf("phases after the next (-want +got):\n%s", diff)
	}
	asked := []uuid.UUID{id("later"), id("halved"), id("stopped"), id("unheard of")}
	times, err := w.Queries.SearchableSince(t.Context(), asked)
	if err != nil || len(times) != 1 || times[id("later")].Format(" 05") != since {
		t.Errorf("searchable since %v, %v", times, err)
	}
}

// A failure after a watermark changes nothing that a client reads, nor does its retry.
func TestSearchable_FailureComesTooLate(t *testing.T) {
	w := newFixture(t)
	w.revised("s", "a", alone)
	w.derived("s", "a", 0, 1)
	since := w.searchable(w.last).Format(" 05")
	check := func() {
		t.Helper()
		if diff := cmp.Diff(map[string]string{"s": "indexed" + since}, w.phases("s")); diff != "" {
			t.Errorf("phases (-want +got):\n%s", diff)
		}
		status, err := w.Queries.Status(t.Context(), project, id("s"))
		if err != nil || status.Status != "completed" || !status.Settled || status.Failure != nil {
			t.Errorf("status %+v, %v", status, err)
		}
		if items := w.shown("s"); len(items) != 1 || items[0].Phase != "captured" {
			t.Errorf("items %+v", items)
		}
		if failed, err := w.Queries.FailedSends(t.Context(), uuid.Nil, 10, uuid.Nil); err != nil || len(failed) > 0 {
			t.Errorf("failed sends %+v, %v", failed, err)
		}
		if completed, err := w.Queries.Completed(t.Context(), project, id("s")); err != nil || !completed {
			t.Errorf("completed %t, %v", completed, err)
		}
	}
	w.stopped("s", ingestion.IndexUnavailable)
	check()
	w.retried("s", 1)
	check()
}

// A worker that lost its lease may store memories of a failed item: the send waits for these too.
func TestSearchable_LateMemories(t *testing.T) {
	w := newFixture(t)
	w.revised("s", "a", alone)
	w.missed("s", "a", 0, 1, 1, 0, true)
	failed := w.last
	w.derived("s", "a", 0, 1)
	late := w.last
	w.searchable(failed)
	if diff := cmp.Diff(map[string]string{"s": "captured"}, w.phases("s")); diff != "" {
		t.Errorf("phases (-want +got):\n%s", diff)
	}
	since := w.searchable(late).Format(" 05")
	if diff := cmp.Diff(map[string]string{"s": "indexed" + since}, w.phases("s")); diff != "" {
		t.Errorf("phases (-want +got):\n%s", diff)
	}
}

// Retained facts correct what a replay without the streams of a data point missed or misapplied of
// watermarks.
func TestSearchable_RetainedFacts(t *testing.T) {
	w := newFixture(t)
	created := ingestion.Outcome{Outcome: ingestion.Created, Revision: 1}
	in := w.committed("before", "a", "b")
	w.revised("before", "b", in(1))
	w.derived("before", "b", 1, 1)
	w.fannedOut("before", created, created)
	in = w.committed("after", "c", "d")
	w.revised("after", "c", in(0)) // of this data point, only the deletion is known
	w.derived("after", "c", 0, 1)
	w.revised("after", "d", in(1))
	w.derived("after", "d", 1, 1)
	w.fannedOut("after", created, created)
	w.searchable(w.last)
	w.apply()
	fact := func(send string, since time.Time) deletion.RetainedFact {
		return deletion.RetainedFact{
			IngestionID: id(send), Items: 2, Bytes: 7, CreditTenths: 10, Month: "2026-11",
			Outcome: ingestion.Created, Revision: 1, SearchableAt: since,
		}
	}
	keep := func(source string, facts ...deletion.RetainedFact) {
		w.last = w.Append("deletion-"+id("deletion of "+source).String(), &deletion.FactsKept{
			ProjectID: w.project, DataPoint: id(source), Facts: facts, DeletedAt: at(50),
			To: int64(len(facts)), Complete: true, Newest: 1,
		})
	}
	single := fact("single", at(40))
	single.Items = 1
	keep("a", fact("before", at(40)))
	keep("c", fact("after", time.Time{}))
	keep("e", single)
	want := map[string]string{"before": "indexed 40", "after": "captured", "single": "indexed 40"}
	if diff := cmp.Diff(want, w.phases("before", "after", "single")); diff != "" {
		t.Errorf("phases (-want +got):\n%s", diff)
	}
}
