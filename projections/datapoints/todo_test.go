package datapoints_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/todo"
	"github.com/annals-project/annals/projections/datapoints"
)

// claimed claims and answers "source revision attempt" of each item.
func (w *world) claimed(holder string, limit int, now time.Time) []string {
	w.t.Helper()
	items, _, err := w.Queries.Claim(w.t.Context(), todo.Claim{
		Holder: holder, Limit: limit, Now: now, Until: now.Add(time.Minute),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	names := map[uuid.UUID]string{}
	for name := range w.states {
		names[id(name)] = name
	}
	list := []string{}
	for _, i := range items {
		list = append(list, fmt.Sprintf("%s %d %s", names[i.DataPoint], i.Revision, i.Phase))
	}
	return list
}

func (w *world) wantClaimed(want []string, holder string, limit int, now time.Time) {
	w.t.Helper()
	if diff := cmp.Diff(want, w.claimed(holder, limit, now)); diff != "" {
		w.t.Errorf("claimed by %s (-want +got):\n%s", holder, diff)
	}
}

func TestClaimTakesTurnsBetweenProjects(t *testing.T) {
	w := newWorld(t)
	for n := range 5 {
		w.revised(fmt.Sprintf("big %d", n), fmt.Sprintf("big %d", n), alone)
	}
	w.project = neighbour.ID
	w.revised("small 0", "small 0", alone)
	w.revised("small 1", "small 1", alone)
	w.apply()
	w.wantClaimed([]string{"big 0 1 queued", "small 0 1 queued", "big 1 1 queued"}, "one", 3, noon)
	w.wantClaimed([]string{"big 2 1 queued", "small 1 1 queued", "big 3 1 queued", "big 4 1 queued"}, "two", 100, noon)
	w.wantClaimed([]string{}, "two", 100, noon)
}

func TestClaimTakesTheLowestOpenRevisionOfADataPoint(t *testing.T) {
	w := newWorld(t)
	w.revised("s1", "a", alone)
	w.revised("s2", "a", alone)
	w.apply()
	w.wantClaimed([]string{"a 1 queued"}, "one", 100, noon)
	w.started("s1", "a", 0, 1, 1, 0)
	w.derived("s1", "a", 0, 1)
	w.apply()
	w.wantClaimed([]string{}, "two", 100, noon) // the data point is leased
	if err := w.Queries.Release(t.Context(), "one", []uuid.UUID{id("a")}); err != nil {
		t.Fatal(err)
	}
	w.wantClaimed([]string{"a 2 queued"}, "two", 100, noon)
}

func TestClaimTakesOverWhatALostWorkerLeft(t *testing.T) {
	w := newWorld(t)
	w.revised("s", "a", alone)
	w.apply()
	w.wantClaimed([]string{"a 1 queued"}, "one", 100, noon)
	w.started("s", "a", 0, 1, 1, 0)
	w.apply()
	w.wantClaimed([]string{}, "two", 100, noon.Add(59*time.Second))
	w.wantClaimed([]string{"a 1 processing"}, "two", 100, noon.Add(60*time.Second))
	if err := w.Queries.Release(t.Context(), "one", []uuid.UUID{id("a")}); err != nil { // it is no longer one's
		t.Fatal(err)
	}
	if err := w.Queries.Extend(t.Context(), "one", []uuid.UUID{id("a")}, noon); err != nil {
		t.Fatal(err)
	}
	w.wantClaimed([]string{}, "one", 100, noon.Add(61*time.Second))
	if err := w.Queries.Extend(t.Context(), "two", []uuid.UUID{id("a")}, noon.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	w.wantClaimed([]string{}, "one", 100, noon.Add(59*time.Minute))
	if err := w.Queries.AbandonLeases(t.Context(), noon); err != nil {
		t.Fatal(err)
	}
	w.wantClaimed([]string{"a 1 processing"}, "one", 100, noon)
}

func TestClaimSuspectsWhatAnEarlierLeaseRanOutOn(t *testing.T) {
	w := newWorld(t)
	w.revised("s", "a", alone)
	w.revised("t", "b", alone)
	w.apply()
	suspects := func(holder string, now time.Time, want map[string]bool) {
		t.Helper()
		items, _, err := w.Queries.Claim(t.Context(), todo.Claim{
			Holder: holder, Limit: 10, Now: now, Until: now.Add(time.Minute),
		})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]bool{}
		for _, i := range items {
			for name := range w.states {
				if id(name) == i.DataPoint {
					got[name] = i.Suspect
				}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("claimed by %s, and whether it is suspect (-want +got):\n%s", holder, diff)
		}
	}
	suspects("one", noon, map[string]bool{"a": false, "b": false})
	if err := w.Queries.Release(t.Context(), "one", []uuid.UUID{id("b")}); err != nil {
		t.Fatal(err)
	}
	suspects("two", noon.Add(time.Minute), map[string]bool{"a": true, "b": false})
	w.derived("t", "b", 0, 1)
	w.revised("v", "c", alone)
	w.apply()
	suspects("two", noon.Add(time.Minute), map[string]bool{"c": false})
	w.derived("v", "c", 0, 1)
	w.apply()
	// A lease of a process that has ended is suspect at once. A lease of finished work is
	// forgotten.
	later := noon.Add(90 * time.Second)
	if err := w.Queries.AbandonLeases(t.Context(), later); err != nil {
		t.Fatal(err)
	}
	if err := w.Queries.ForgetLeases(t.Context(), later); err != nil {
		t.Fatal(err)
	}
	w.revised("x", "b", alone)
	w.revised("y", "c", alone)
	w.apply()
	suspects("three", later, map[string]bool{"a": true, "b": false, "c": false})
}

func TestClaimGivesAnItemToOneOfManyHolders(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const items, holders = 60, 8
	for n := range items {
		w.revised(fmt.Sprint(n), fmt.Sprint(n), alone)
	}
	w.apply()
	type result struct {
		items []todo.Item
		err   error
	}
	results := make(chan result, holders)
	for n := range holders {
		go func() {
			var all []todo.Item
			for range items {
				got, _, err := w.Queries.Claim(t.Context(), todo.Claim{
					Holder: fmt.Sprint(n), Limit: 3, Now: noon, Until: noon.Add(time.Minute),
				})
				if err != nil {
					results <- result{err: err}
					return
				}
				all = append(all, got...)
			}
			results <- result{items: all}
		}()
	}
	seen := map[uuid.UUID]int{}
	for range holders {
		r := <-results
		if r.err != nil {
			t.Fatal(r.err)
		}
		for _, i := range r.items {
			seen[i.DataPoint]++
		}
	}
	for dataPoint, times := range seen {
		if times != 1 {
			t.Errorf("data point %s was claimed %d times", dataPoint, times)
		}
	}
	if len(seen) != items {
		t.Errorf("%d of %d items were claimed", len(seen), items)
	}
}

func TestClaimSaysAttemptAndRound(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	in := w.committed("s", "a", "b")
	w.revised("s", "a", in(0))
	w.revised("s", "b", in(1))
	w.fannedOut("s", ingestion.Outcome{Outcome: ingestion.Created, Revision: 1}, ingestion.Outcome{Outcome: ingestion.Created, Revision: 1})
	w.derived("s", "a", 0, 1)
	w.missed("s", "b", 1, 1, 5, 0, true)
	w.stopped("s", ingestion.ModelUnavailable)
	w.retried("s", 1)
	w.missed("s", "b", 1, 1, 1, 1, false)
	last := w.last
	w.apply()
	got, _, err := w.Queries.Claim(t.Context(), todo.Claim{
		Holder: "one", Limit: 10, Now: noon, Until: noon.Add(time.Minute),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []todo.Item{{
		ProjectID: project.ID, IngestionID: id("s"), DataPoint: id("b"), Ordinal: 1, Revision: 1, Attempt: 1, Round: 1, Phase: todo.Queued, Position: last,
		Text: &todo.Text{Content: "content of b", OccurredAt: noon},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("claimed (-want +got):\n%s", diff)
	}
}

func TestConfirmable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
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
	want := []todo.Send{
		{ProjectID: project.ID, IngestionID: id("mixed"), Position: mixed, Failure: &todo.Failure{Code: ingestion.ModelUnavailable, Message: "d failed"}},
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
		upTo  eventstore.Position
		limit int
		want  eventstore.Position
	}{
		{captured - 1, 10, 0},
		{captured, 10, captured},
		{again, 10, again},
		{again, 1, captured},
		{again - 1, 10, captured},
	} {
		if got, err := w.Queries.Searchable(t.Context(), c.upTo, c.limit); err != nil || got != c.want {
			t.Errorf("up to %d, %d at most: searchable up to %d, %v; want %d", c.upTo, c.limit, got, err, c.want)
		}
	}
	want = []todo.Send{{ProjectID: project.ID, IngestionID: id("retried"), Position: again, Round: 1}}
	if got, err = w.Queries.Unsearchable(t.Context(), captured, 10); err != nil || !cmp.Equal(want, got) {
		t.Errorf("behind %d wait %+v, %v", captured, got, err)
	}
	got, err = w.Queries.Unsearchable(t.Context(), 0, 1)
	if err != nil || len(got) != 1 || got[0].IngestionID != id("captured") {
		t.Errorf("the first that waits: %v, %v", got, err)
	}
}

func TestUnfanned(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.committed("batch", "a")
	batch := w.last
	w.committed("finished", "b")
	w.fannedOut("finished", ingestion.Outcome{Outcome: ingestion.Unchanged, Revision: 1})
	w.revised("s", "c", alone)
	w.wiped("wipe", "", "c", "d")
	wipe := w.last
	w.deleted("single", "e", true)
	w.apply()
	want := []todo.Operation{
		{ProjectID: project.ID, Family: "deletion", ID: id("wipe"), AcceptedAt: at(4), Position: wipe},
		{ProjectID: project.ID, Family: "ingestion", ID: id("batch"), AcceptedAt: at(0), Position: batch},
	}
	got, err := w.Queries.Unfanned(t.Context(), 10)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("open fan-outs (-want +got):\n%s", diff)
	}
}

func TestErasureFromDeletionToItsEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.revised("s", "a", alone)
	w.revised("s2", "b", alone)
	w.wiped("wipe", "", "a", "b")
	wipe := w.last
	w.deleted("wipe", "a", false)
	deletedA := w.last
	w.deleted("wipe", "b", false)
	deletedB := w.last
	lists := func(erasures []todo.Erasure, deletions []todo.Deletion) {
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
	erasure := func(source string, at eventstore.Position) todo.Erasure {
		return todo.Erasure{ProjectID: project.ID, DataPoint: id(source), DeletionID: id("wipe"), Position: at}
	}
	lists([]todo.Erasure{}, []todo.Deletion{}) // not before the fan-out is complete
	w.wipeFannedOut("wipe")
	lists([]todo.Erasure{erasure("a", deletedA), erasure("b", deletedB)}, []todo.Deletion{})
	w.kept("wipe", "a", deletion.Fact{IngestionID: id("s"), Items: 1, Outcome: ingestion.Created, Revision: 1})
	lists([]todo.Erasure{erasure("b", deletedB)}, []todo.Deletion{})
	w.kept("wipe", "b", deletion.Fact{IngestionID: id("s2"), Items: 1, Outcome: ingestion.Created, Revision: 1})
	dataPoints := []uuid.UUID{id("a"), id("b")}
	if dataPoints[1].String() < dataPoints[0].String() {
		dataPoints[0], dataPoints[1] = dataPoints[1], dataPoints[0]
	}
	lists([]todo.Erasure{}, []todo.Deletion{{
		ProjectID: project.ID, ID: id("wipe"), AcceptedAt: at(2), DataPoints: dataPoints, Blobs: []string{"blob-of-a", "blob-of-b"}, Position: wipe,
	}})
	w.cleaned("wipe")
	lists([]todo.Erasure{}, []todo.Deletion{})
}

func TestADeletionThatTookNothingIsCleaned(t *testing.T) {
	w := newWorld(t)
	w.revised("s", "a", alone)
	w.wiped("wipe", "s", "a")
	w.revised("newer", "a", alone)
	w.wipeFannedOut("wipe")
	w.apply()
	got, err := w.Queries.CleanableDeletions(t.Context(), nil, 10)
	if err != nil || len(got) != 1 || got[0].ID != id("wipe") || len(got[0].DataPoints) != 0 || len(got[0].Blobs) != 0 {
		t.Errorf("deletions to clean: %v, %v", got, err)
	}
}

func TestFailedSends(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
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
	sends, err := w.Queries.FailedSends(t.Context(), project.ID, 1, uuid.Nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []datapoints.FailedSend{{
		ProjectID: project.ID, IngestionID: id("send of a"), Failure: datapoints.Failure{Code: ingestion.ModelUnavailable, Message: "send of a stopped"},
		Items: 1, Failed: 1, Sources: []string{"a"}, AcceptedAt: at(0), FailedAt: at(2),
	}}
	if diff := cmp.Diff(want, sends); diff != "" {
		t.Errorf("first (-want +got):\n%s", diff)
	}
}
