package datapoints_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/work"
	"github.com/annals-project/annals/projections/datapoints"
)

func TestConfirmable(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.revised("captured", "a", alone)
	w.derived("captured", "a", 0, 1)
	captured := w.last
	in := w.committed("mixed", "b", "c", "d")
	w.revised("mixed", "b", in(0))
	w.revised("mixed", "c", in(1))
	w.revised("mixed", "d", in(2))
	created := ingestion.Outcome{Outcome: ingestion.Created, Revision: 1}
	w.fannedOut("mixed", created, created, created)
	w.missed("mixed", "d", 2, 1, 1, 0, true)
	w.missed("mixed", "b", 0, 1, 1, 0, true)
	w.derived("mixed", "c", 1, 1)
	mixed := w.last
	w.revised("running", "e", alone)
	w.revised("done", "f", alone)
	w.derived("done", "f", 0, 1)
	w.indexed("done")
	w.revised("gone", "g", alone)
	w.derived("gone", "g", 0, 1)
	w.deleted("deletion", "g", true)
	w.apply()
	halved := w.committed("halved", "h", "i")
	w.revised("halved", "h", halved(0))
	w.revised("halved", "i", halved(1))
	w.fannedOut("halved", created, created)
	w.derived("halved", "i", 1, 1)
	w.deleted("another deletion", "h", true)
	halvedAt := w.last
	w.revised("retried", "j", alone)
	w.derived("retried", "j", 0, 1)
	w.stopped("retried", ingestion.IndexUnavailable)
	w.retried("retried", 1)
	again := w.last
	w.apply()
	want := []work.Send{
		{ProjectID: project.ID, IngestionID: id("mixed"), Position: mixed, Failure: &work.Failure{Code: ingestion.ModelUnavailable, Message: "d failed"}},
		{ProjectID: project.ID, IngestionID: id("halved"), Position: halvedAt},
	}
	got, err := w.Queries.Confirmable(t.Context(), 10)
	runtest.Must(t, err)
	same(t, "confirmable", want, got)
	if got, err = w.Queries.Confirmable(t.Context(), 1); err != nil || len(got) != 1 || got[0].IngestionID != id("mixed") {
		t.Errorf("the first alone: %v, %v", got, err)
	}
	for _, c := range []struct {
		after, upTo eventstore.Position
		limit       int
		want        eventstore.Position
	}{
		{0, captured - 1, 10, 0},
		{0, captured, 10, captured},
		{0, again, 10, again},
		{0, again, 1, captured},
		{0, again - 1, 10, captured},
		{captured - 1, again, 1, captured},
		{captured, again, 1, again},
		{again, again, 10, 0},
	} {
		if got, err := w.Queries.Searchable(t.Context(), c.after, c.upTo, c.limit); err != nil || got != c.want {
			t.Errorf("after %d up to %d, %d at most: searchable up to %d, %v; want %d", c.after, c.upTo, c.limit, got, err, c.want)
		}
	}
	want = []work.Send{{ProjectID: project.ID, IngestionID: id("retried"), Position: again, Round: 1}}
	if got, err = w.Queries.Unsearchable(t.Context(), captured, 10); err != nil || !cmp.Equal(want, got) {
		t.Errorf("after %d wait %+v, %v", captured, got, err)
	}
	got, err = w.Queries.Unsearchable(t.Context(), 0, 1)
	if err != nil || len(got) != 1 || got[0].IngestionID != id("captured") {
		t.Errorf("the first that waits: %v, %v", got, err)
	}
}

func TestPendingFanOuts(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.committed("batch", "a")
	batch := w.last
	w.committed("finished", "b")
	w.fannedOut("finished", ingestion.Outcome{Outcome: ingestion.Unchanged, Revision: 1})
	w.revised("s", "c", alone)
	w.wiped("wipe", "", "c", "d")
	wipe := w.last
	w.deleted("single", "e", true)
	w.apply()
	want := []work.Operation{
		{ProjectID: project.ID, Category: "deletion", ID: id("wipe"), AcceptedAt: at(4), Position: wipe},
		{ProjectID: project.ID, Category: "ingestion", ID: id("batch"), AcceptedAt: at(0), Position: batch},
	}
	got, err := w.Queries.PendingFanOuts(t.Context(), 10)
	runtest.Must(t, err)
	same(t, "open fan-outs", want, got)
}

func TestErasures_FromDeletionToCleaned(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.revised("s", "a", alone)
	w.revised("s2", "b", alone)
	w.wiped("wipe", "", "a", "b")
	wipe := w.last
	w.deleted("wipe", "a", false)
	deletedA := w.last
	w.deleted("wipe", "b", false)
	deletedB := w.last
	lists := func(erasures []work.Erasure, deletions []work.Deletion) {
		t.Helper()
		w.apply()
		gotErasures, err := w.Queries.Erasures(t.Context(), 10)
		runtest.Must(t, err)
		gotDeletions, err := w.Queries.CleanableDeletions(t.Context(), nil, 10)
		runtest.Must(t, err)
		same(t, "erasures", erasures, gotErasures)
		same(t, "deletions to clean", deletions, gotDeletions)
	}
	erasure := func(source string, at eventstore.Position) work.Erasure {
		return work.Erasure{ProjectID: project.ID, DataPoint: id(source), DeletionID: id("wipe"), Position: at}
	}
	lists([]work.Erasure{}, []work.Deletion{}) // only after the fan-out
	w.wipeFannedOut("wipe")
	lists([]work.Erasure{erasure("a", deletedA), erasure("b", deletedB)}, []work.Deletion{})
	w.kept("wipe", "a", deletion.RetainedFact{IngestionID: id("s"), Items: 1, Outcome: ingestion.Created, Revision: 1})
	lists([]work.Erasure{erasure("b", deletedB)}, []work.Deletion{})
	w.kept("wipe", "b", deletion.RetainedFact{IngestionID: id("s2"), Items: 1, Outcome: ingestion.Created, Revision: 1})
	lists([]work.Erasure{}, []work.Deletion{{ProjectID: project.ID, ID: id("wipe"), AcceptedAt: at(2), Position: wipe}})
	w.cleaned("wipe")
	lists([]work.Erasure{}, []work.Deletion{})
}

func TestCleanableDeletions_WithoutTargets(t *testing.T) {
	w := newFixture(t)
	w.revised("s", "a", alone)
	w.wiped("wipe", "s", "a")
	w.revised("newer", "a", alone)
	w.wipeFannedOut("wipe")
	w.apply()
	got, err := w.Queries.CleanableDeletions(t.Context(), nil, 10)
	if err != nil || len(got) != 1 || got[0].ID != id("wipe") {
		t.Errorf("deletions to clean: %v, %v", got, err)
	}
}

func TestFailedSends(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	stop := func(name string) {
		w.revised("send of "+name, name, alone)
		w.missed("send of "+name, name, 0, w.states[name].Revision, 1, 0, true)
		w.stopped("send of "+name, ingestion.ModelUnavailable)
	}
	stop("a")
	stop("b")
	stop("deleted")
	w.deleted("d", "deleted", true)
	w.project = neighbour.ID
	stop("c")
	w.apply()
	list := func(in uuid.UUID, limit int, after uuid.UUID) (names []string) {
		t.Helper()
		sends, err := w.Queries.FailedSends(t.Context(), in, limit, after)
		runtest.Must(t, err)
		for _, s := range sends {
			names = append(names, fmt.Sprintf("%v %s %d %d", s.Sources, s.Failure.Code, s.Failed, s.Items))
		}
		return names
	}
	a, b, c := "[a] model-unavailable 1 1", "[b] model-unavailable 1 1", "[c] model-unavailable 1 1"
	for _, page := range []struct {
		in    uuid.UUID
		limit int
		after uuid.UUID
		want  []string
	}{
		{uuid.Nil, 10, uuid.Nil, []string{a, b, c}},
		{uuid.Nil, 2, uuid.Nil, []string{a, b}},
		{uuid.Nil, 2, id("send of b"), []string{c}},
		{neighbour.ID, 10, uuid.Nil, []string{c}},
		{project.ID, 10, id("send of a"), []string{b}},
	} {
		if diff := cmp.Diff(page.want, list(page.in, page.limit, page.after)); diff != "" {
			t.Errorf("%d of %s after %s (-want +got):\n%s", page.limit, page.in, page.after, diff)
		}
	}
	var each []string
	all := datapoints.StoppedSends{Queries: w.Queries, Projects: slugs{}, AtOnce: 1}
	if err := all.Each(t.Context(), uuid.Nil, func(s datapoints.StoppedSend) error {
		each = append(each, fmt.Sprintf("%s of %s, %t", s.Code, s.Project, s.Retryable))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	one, other := "model-unavailable of "+project.ID.String(), "model-unavailable of "+neighbour.ID.String()
	same(t, "each", []string{one + ", true", one + ", true", other + ", true"}, each)
	sends, err := w.Queries.FailedSends(t.Context(), project.ID, 1, uuid.Nil)
	runtest.Must(t, err)
	want := []datapoints.FailedSend{{
		ProjectID: project.ID, IngestionID: id("send of a"), Failure: datapoints.Failure{
			Code: ingestion.ModelUnavailable, Message: "send of a stopped",
		},
		Items: 1, Failed: 1, Sources: []string{"a"}, AcceptedAt: at(0), FailedAt: at(2),
	}}
	same(t, "first", want, sends)
}

// slugs are projects whose slug is their id.
type slugs struct{}

func (slugs) SlugOf(_ context.Context, project uuid.UUID) (string, error) {
	return project.String(), nil
}

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
	same(t, "phases", want, w.phases(names...))
	w.searchable(upTo) // again, which changes nothing
	same(t, "phases after it came again", want, w.phases(names...))
	since = w.searchable(w.last).Format(" 05")
	want["later"], want["retried"] = "indexed"+since, "indexed"+since
	same(t, "phases after the next", want, w.phases(names...))
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
		same(t, "phases", map[string]string{"s": "indexed" + since}, w.phases("s"))
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
	same(t, "phases", map[string]string{"s": "captured"}, w.phases("s"))
	since := w.searchable(late).Format(" 05")
	same(t, "phases", map[string]string{"s": "indexed" + since}, w.phases("s"))
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
	same(t, "phases", want, w.phases("before", "after", "single"))
}

func TestWaiting(t *testing.T) {
	w := newFixture(t)
	want := func(when string, before int, want datapoints.Waiting) {
		t.Helper()
		w.apply()
		got, err := w.Queries.Waiting(t.Context(), 0, before)
		runtest.Must(t, err)
		same(t, when, want, got)
	}
	want("nothing is there", 0, datapoints.Waiting{})
	accepted := map[string]time.Time{}
	for n := range 4 {
		name := fmt.Sprint("s", n)
		accepted[name] = w.at()
		w.revised(name, name, alone)
	}
	want("all wait", 2, datapoints.Waiting{Item: accepted["s0"], Backlogged: accepted["s2"]})
	want("all wait, and no crowd", 4, datapoints.Waiting{Item: accepted["s0"]})
	w.derived("s0", "s0", 0, 1)
	want("one is captured", 2,
		datapoints.Waiting{Item: accepted["s1"], Backlogged: accepted["s3"], Captured: accepted["s0"]})
	w.missed("s1", "s1", 0, 1, 1, 0, false)
	w.missed("s2", "s2", 0, 1, 5, 0, true)
	w.stopped("s2", ingestion.Internal)
	rest := datapoints.Waiting{Item: accepted["s3"], Backlogged: accepted["s3"], Captured: accepted["s0"]}
	want("one was tried, one failed", 0, rest)
	w.retried("s2", 1)
	want("a retry is not as old as its send", 0, rest)

	counts, err := w.Queries.WaitingByProject(t.Context(), 0, 10)
	runtest.Must(t, err)
	same(t, "whose they are", map[uuid.UUID]int{project.ID: 2}, counts)
	if got, err := w.Queries.Waiting(t.Context(), w.last, 0); err != nil || !got.Backlogged.IsZero() || got.Item.IsZero() {
		t.Errorf("after the head %+v, %v", got, err)
	}
}

func TestSent_DeletedAndErased(t *testing.T) {
	w := newFixture(t)
	w.revised("s1", "live", alone)
	w.revised("s2", "live", alone)
	w.revised("s3", "deleted", alone)
	w.deleted("d1", "deleted", true)
	w.revised("s4", "erased", alone)
	w.deleted("d2", "erased", true)
	w.kept("d2", "erased", deletion.RetainedFact{IngestionID: id("s4"), Outcome: ingestion.Created, Revision: 1, Items: 1})
	w.cleaned("d2")
	w.apply()
	// A replay after the erasure reads only the retained facts.
	w.kept("d3", "long erased",
		deletion.RetainedFact{IngestionID: id("s5"), Outcome: ingestion.Created, Revision: 1, Items: 1})
	w.cleaned("d3")
	w.apply()
	var ids []uuid.UUID
	for _, name := range []string{"never", "live", "deleted", "erased", "long erased"} {
		ids = append(ids, id(name))
	}
	got, err := w.Queries.Sent(t.Context(), append(ids, ids...))
	runtest.Must(t, err)
	want := map[uuid.UUID]struct{}{id("live"): {}, id("deleted"): {}, id("erased"): {}, id("long erased"): {}}
	same(t, "sent", want, got)
}
