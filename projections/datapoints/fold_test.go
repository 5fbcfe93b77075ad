package datapoints_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/projections/datapoints"
)

// foldCase is a history of events with the sends, items and readiness that it yields.
type foldCase struct {
	name  string
	given func(w *fixture)
	sends map[string]sendRow
	items map[string][]datapoints.Item
	ready datapoints.Readiness
}

var (
	created   = ingestion.Outcome{Outcome: ingestion.Created, Revision: 1}
	updated   = ingestion.Outcome{Outcome: ingestion.Updated, Revision: 2}
	unchanged = ingestion.Outcome{Outcome: ingestion.Unchanged, Revision: 1}
)

// checkFold applies each history as one page, and then with a page for each event.
func checkFold(t *testing.T, cases []foldCase) {
	t.Helper()
	t.Parallel()
	db := pgtest.Database(t)
	makeSchemas(t, db)
	for _, c := range cases {
		for _, whole := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, in one page %v", c.name, whole), func(t *testing.T) {
				projectiontest.Empty(t, db, datapoints.New(nil))
				w := fixtureOf(t, db)
				c.given(w)
				if whole {
					w.apply()
				} else {
					for _, f := range w.Facts {
						projectiontest.Apply(t, db, datapoints.New(nil), f)
					}
				}
				c.check(t, w)
			})
		}
	}
}

func (c foldCase) check(t *testing.T, w *fixture) {
	t.Helper()
	want := map[uuid.UUID]sendRow{}
	for name, row := range c.sends {
		want[id(name)] = row
	}
	if diff := cmp.Diff(want, w.sends()); diff != "" {
		t.Errorf("sends (-want +got):\n%s", diff)
	}
	for name, items := range c.items {
		got := w.shown(name)
		if len(items) == 0 && len(got) == 0 {
			continue
		}
		if diff := cmp.Diff(items, got); diff != "" {
			t.Errorf("items of %s (-want +got):\n%s", name, diff)
		}
	}
	ready, err := w.Queries.Readiness(t.Context(), project)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c.ready, ready); diff != "" {
		t.Errorf("readiness (-want +got):\n%s", diff)
	}
}

func TestFold_SingleSends(t *testing.T) {
	checkFold(t, []foldCase{
		{
			name:  "one revision",
			given: func(w *fixture) { w.revised("s", "a", alone) },
			sends: map[string]sendRow{"s": {Phase: "queued"}},
			items: map[string][]datapoints.Item{"s": {{DataPoint: id("a"), Revision: 1, Outcome: "created", Phase: "queued"}}},
			ready: datapoints.Readiness{Raw: 1},
		},
		{
			name: "an attempt is started",
			given: func(w *fixture) {
				w.revised("s", "a", alone)
				w.started("s", "a", 0, 1, 1, 0)
			},
			sends: map[string]sendRow{"s": {Phase: "processing"}},
			items: map[string][]datapoints.Item{
				"s": {{DataPoint: id("a"), Revision: 1, Outcome: "created", Phase: "processing"}},
			},
			ready: datapoints.Readiness{Comprehension: 1},
		},
		{
			name: "an attempt failed and another follows",
			given: func(w *fixture) {
				w.revised("s", "a", alone)
				w.started("s", "a", 0, 1, 1, 0)
				w.missed("s", "a", 0, 1, 1, 0, false)
			},
			sends: map[string]sendRow{"s": {Phase: "queued"}},
			items: map[string][]datapoints.Item{"s": {{DataPoint: id("a"), Revision: 1, Outcome: "created", Phase: "queued"}}},
			ready: datapoints.Readiness{Raw: 1},
		},
		{
			name: "captured and confirmed",
			given: func(w *fixture) {
				w.revised("s", "a", alone)
				w.started("s", "a", 0, 1, 1, 0)
				w.derived("s", "a", 0, 1)
				w.indexed("s")
			},
			sends: map[string]sendRow{"s": {Phase: "indexed", Settled: at(3)}},
			items: map[string][]datapoints.Item{"s": {{DataPoint: id("a"), Revision: 1, Outcome: "created", Phase: "captured"}}},
		},
		{
			name: "unchanged, or only moved",
			given: func(w *fixture) {
				w.revised("s", "a", alone)
				w.derived("s", "a", 0, 1)
				w.resent("again", "a", alone)
				w.moved("move", "a", id("team"), alone)
			},
			sends: map[string]sendRow{
				"s": {Phase: "captured"}, "again": {Phase: "nothing-changed", Settled: at(2)}, "move": {Phase: "nothing-changed", Settled: at(3)},
			},
			items: map[string][]datapoints.Item{
				"again": {{DataPoint: id("a"), Revision: 1, Outcome: "unchanged", Phase: "done"}},
				"move":  {{DataPoint: id("a"), Revision: 1, Outcome: "moved", Phase: "done"}},
			},
			ready: datapoints.Readiness{Comprehension: 1},
		},
	})
}

func TestFold_FailedSends(t *testing.T) {
	checkFold(t, []foldCase{
		{
			name: "failed",
			given: func(w *fixture) {
				w.revised("s", "a", alone)
				w.started("s", "a", 0, 1, 1, 0)
				w.missed("s", "a", 0, 1, 1, 0, true)
				w.stopped("s", ingestion.ModelUnavailable)
			},
			sends: map[string]sendRow{"s": {Phase: "failed", Settled: at(3), Code: "model-unavailable", FailureOpen: true}},
			items: map[string][]datapoints.Item{"s": {{DataPoint: id("a"), Revision: 1, Outcome: "created", Phase: "failed"}}},
			ready: datapoints.Readiness{Failed: 1},
		},
		{
			name: "failed, then a newer revision is captured: the failure does not count",
			given: func(w *fixture) {
				w.revised("s", "a", alone)
				w.missed("s", "a", 0, 1, 1, 0, true)
				w.stopped("s", ingestion.ModelUnavailable)
				w.revised("newer", "a", alone)
				w.derived("newer", "a", 0, 2)
				w.indexed("newer")
			},
			sends: map[string]sendRow{
				"s":     {Phase: "failed", Settled: at(2), Code: "model-unavailable"},
				"newer": {Phase: "indexed", Settled: at(5)},
			},
		},
		{
			name: "a retry fails after a newer revision was captured: the failure does not count",
			given: func(w *fixture) {
				w.revised("s", "a", alone)
				w.missed("s", "a", 0, 1, 1, 0, true)
				w.stopped("s", ingestion.ModelUnavailable)
				w.revised("newer", "a", alone)
				w.derived("newer", "a", 0, 2)
				w.retried("s", 1)
				w.missed("s", "a", 0, 1, 1, 1, true)
				w.stopped("s", ingestion.ModelUnavailable)
			},
			sends: map[string]sendRow{
				"s":     {Phase: "failed", Settled: at(7), Code: "model-unavailable", Round: 1},
				"newer": {Phase: "captured"},
			},
			ready: datapoints.Readiness{Comprehension: 1},
		},
	})
}

func TestFold_RetriedSends(t *testing.T) {
	checkFold(t, []foldCase{
		{
			name: "failed, then its data point is deleted: it polls completed",
			given: func(w *fixture) {
				w.revised("s", "a", alone)
				w.missed("s", "a", 0, 1, 1, 0, true)
				w.stopped("s", ingestion.ModelUnavailable)
				w.deleted("d", "a", true)
			},
			sends: map[string]sendRow{"s": {Phase: "indexed", Settled: at(3)}},
			items: map[string][]datapoints.Item{"s": {{DataPoint: id("a"), Revision: 1, Outcome: "deleted", Phase: "done"}}},
		},
		{
			name: "failed and retried",
			given: func(w *fixture) {
				w.revised("s", "a", alone)
				w.started("s", "a", 0, 1, 1, 0)
				w.missed("s", "a", 0, 1, 1, 0, true)
				w.stopped("s", ingestion.ModelUnavailable)
				w.retried("s", 1)
			},
			sends: map[string]sendRow{"s": {Phase: "queued", Round: 1}},
			items: map[string][]datapoints.Item{"s": {{DataPoint: id("a"), Revision: 1, Outcome: "created", Phase: "queued"}}},
			ready: datapoints.Readiness{Raw: 1},
		},
		{
			name: "an attempt from before the retry changes nothing",
			given: func(w *fixture) {
				w.revised("s", "a", alone)
				w.missed("s", "a", 0, 1, 5, 0, true)
				w.stopped("s", ingestion.ModelUnavailable)
				w.retried("s", 1)
				w.started("s", "a", 0, 1, 6, 0)
				w.missed("s", "a", 0, 1, 6, 0, true)
			},
			sends: map[string]sendRow{"s": {Phase: "queued", Round: 1}},
			ready: datapoints.Readiness{Raw: 1},
		},
		{
			name: "the index failed: a retry derives nothing again",
			given: func(w *fixture) {
				w.revised("s", "a", alone)
				w.derived("s", "a", 0, 1)
				w.stopped("s", ingestion.IndexUnavailable)
				w.revised("t", "b", alone)
				w.derived("t", "b", 0, 1)
				w.stopped("t", ingestion.IndexUnavailable)
				w.retried("t", 1)
			},
			sends: map[string]sendRow{
				"s": {Phase: "failed", Settled: at(2), Code: "index-unavailable", FailureOpen: true},
				"t": {Phase: "captured", Round: 1},
			},
			items: map[string][]datapoints.Item{
				"s": {{DataPoint: id("a"), Revision: 1, Outcome: "created", Phase: "unindexed"}},
				"t": {{DataPoint: id("b"), Revision: 1, Outcome: "created", Phase: "captured"}},
			},
			ready: datapoints.Readiness{Failed: 1, Comprehension: 1},
		},
		{
			name: "the index failed on outdated and historic revisions: the failure does not count",
			given: func(w *fixture) {
				in := w.committed("s", "a", "b")
				w.revised("later", "b", alone)
				w.revised("s", "a", in(0))
				w.revised("s", "b", in(1), true)
				w.fannedOut("s", created, updated)
				w.derived("s", "a", 0, 1)
				w.revised("newer", "a", alone)
				w.derived("newer", "a", 0, 2)
				w.stopped("s", ingestion.IndexUnavailable)
			},
			sends: map[string]sendRow{
				"s":     {Phase: "failed", Settled: at(8), Code: "index-unavailable"},
				"later": {Phase: "queued"}, "newer": {Phase: "captured"},
			},
			ready: datapoints.Readiness{Raw: 1, Comprehension: 1},
		},
	})
}
