package datapoints_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/eventstore"
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
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("confirmable (-want +got):\n%s", diff)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("open fan-outs (-want +got):\n%s", diff)
	}
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
		if err != nil {
			t.Fatal(err)
		}
		gotDeletions, err := w.Queries.CleanableDeletions(t.Context(), nil, 10)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(erasures, gotErasures); diff != "" {
			t.Errorf("erasures (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(deletions, gotDeletions); diff != "" {
			t.Errorf("deletions to clean (-want +got):\n%s", diff)
		}
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
		if err != nil {
			t.Fatal(err)
		}
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
	if diff := cmp.Diff([]string{one + ", true", one + ", true", other + ", true"}, each); diff != "" {
		t.Errorf("each (-want +got):\n%s", diff)
	}
	sends, err := w.Queries.FailedSends(t.Context(), project.ID, 1, uuid.Nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []datapoints.FailedSend{{
		ProjectID: project.ID, IngestionID: id("send of a"), Failure: datapoints.Failure{
			Code: ingestion.ModelUnavailable, Message: "send of a stopped",
		},
		Items: 1, Failed: 1, Sources: []string{"a"}, AcceptedAt: at(0), FailedAt: at(2),
	}}
	if diff := cmp.Diff(want, sends); diff != "" {
		t.Errorf("first (-want +got):\n%s", diff)
	}
}

// slugs are projects whose slug is their id.
type slugs struct{}

func (slugs) SlugOf(_ context.Context, project uuid.UUID) (string, error) {
	return project.String(), nil
}
