package datapoints_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/projections/datapoints"
)

func TestFacts(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	projectiontest.Make(t, db, datapoints.New(nil))
	created, updated := ingestion.Outcome{Outcome: ingestion.Created, Revision: 1}, ingestion.Outcome{Outcome: ingestion.Updated, Revision: 2}
	unchanged := ingestion.Outcome{Outcome: ingestion.Unchanged, Revision: 1}
	for _, c := range []struct {
		name  string
		given func(w *world)
		sends map[string]sendRow
		items map[string][]datapoints.Item
		ready datapoints.Readiness
	}{
		{
			name:  "a first send waits",
			given: func(w *world) { w.revised("s", "a", alone) },
			sends: map[string]sendRow{"s": {Phase: "queued"}},
			items: map[string][]datapoints.Item{"s": {{DataPoint: id("a"), Revision: 1, Outcome: "created", Phase: "queued"}}},
			ready: datapoints.Readiness{Raw: 1},
		},
		{
			name: "a worker began",
			given: func(w *world) {
				w.revised("s", "a", alone)
				w.started("s", "a", 0, 1, 1, 0)
			},
			sends: map[string]sendRow{"s": {Phase: "processing"}},
			items: map[string][]datapoints.Item{"s": {{DataPoint: id("a"), Revision: 1, Outcome: "created", Phase: "processing"}}},
			ready: datapoints.Readiness{Comprehension: 1},
		},
		{
			name: "an attempt failed and another is to come",
			given: func(w *world) {
				w.revised("s", "a", alone)
				w.started("s", "a", 0, 1, 1, 0)
				w.missed("s", "a", 0, 1, 1, 0, false)
			},
			sends: map[string]sendRow{"s": {Phase: "queued"}},
			items: map[string][]datapoints.Item{"s": {{DataPoint: id("a"), Revision: 1, Outcome: "created", Phase: "queued"}}},
			ready: datapoints.Readiness{Raw: 1},
		},
		{
			name: "captured and verified",
			given: func(w *world) {
				w.revised("s", "a", alone)
				w.started("s", "a", 0, 1, 1, 0)
				w.derived("s", "a", 0, 1)
				w.indexed("s")
			},
			sends: map[string]sendRow{"s": {Phase: "indexed", Settled: at(3)}},
			items: map[string][]datapoints.Item{"s": {{DataPoint: id("a"), Revision: 1, Outcome: "created", Phase: "captured"}}},
		},
		{
			name: "nothing changed, or the audience only",
			given: func(w *world) {
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
		{
			name: "stopped",
			given: func(w *world) {
				w.revised("s", "a", alone)
				w.started("s", "a", 0, 1, 1, 0)
				w.missed("s", "a", 0, 1, 1, 0, true)
				w.stopped("s", ingestion.ModelUnavailable)
			},
			sends: map[string]sendRow{"s": {Phase: "failed", Settled: at(3), Code: "model-unavailable", Stands: true}},
			items: map[string][]datapoints.Item{"s": {{DataPoint: id("a"), Revision: 1, Outcome: "created", Phase: "failed"}}},
			ready: datapoints.Readiness{Failed: 1},
		},
		{
			name: "stopped, and a newer revision is captured: it no longer counts",
			given: func(w *world) {
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
			name: "a retry that fails again behind a newer captured revision does not count either",
			given: func(w *world) {
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
		{
			name: "stopped, and its data point is deleted: it polls completed",
			given: func(w *world) {
				w.revised("s", "a", alone)
				w.missed("s", "a", 0, 1, 1, 0, true)
				w.stopped("s", ingestion.ModelUnavailable)
				w.deleted("d", "a", true)
			},
			sends: map[string]sendRow{"s": {Phase: "indexed", Settled: at(3)}},
			items: map[string][]datapoints.Item{"s": {{DataPoint: id("a"), Revision: 1, Outcome: "deleted", Phase: "done"}}},
		},
		{
			name: "stopped and retried",
			given: func(w *world) {
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
			name: "an attempt of the round before a retry moves nothing",
			given: func(w *world) {
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
			name: "the index failed: retry derives nothing again",
			given: func(w *world) {
				w.revised("s", "a", alone)
				w.derived("s", "a", 0, 1)
				w.stopped("s", ingestion.IndexUnavailable)
				w.revised("t", "b", alone)
				w.derived("t", "b", 0, 1)
				w.stopped("t", ingestion.IndexUnavailable)
				w.retried("t", 1)
			},
			sends: map[string]sendRow{
				"s": {Phase: "failed", Settled: at(2), Code: "index-unavailable", Stands: true},
				"t": {Phase: "captured", Round: 1},
			},
			items: map[string][]datapoints.Item{
				"s": {{DataPoint: id("a"), Revision: 1, Outcome: "created", Phase: "unindexed"}},
				"t": {{DataPoint: id("b"), Revision: 1, Outcome: "created", Phase: "captured"}},
			},
			ready: datapoints.Readiness{Failed: 1, Comprehension: 1},
		},
		{
			name: "the index failed on what is overtaken already, or history: it does not count",
			given: func(w *world) {
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
		{
			name:  "a batch that is committed only",
			given: func(w *world) { w.committed("s", "a", "b") },
			sends: map[string]sendRow{"s": {Phase: "queued"}},
			items: map[string][]datapoints.Item{"s": {}},
			ready: datapoints.Readiness{Raw: 1},
		},
		{
			name: "a batch is as far as its last item",
			given: func(w *world) {
				in := w.committed("s", "a", "b")
				w.revised("s", "a", in(0))
				w.revised("s", "b", in(1))
				w.fannedOut("s", created, created)
				w.derived("s", "a", 0, 1)
				w.started("s", "b", 1, 1, 1, 0)
			},
			sends: map[string]sendRow{"s": {Phase: "processing"}},
			items: map[string][]datapoints.Item{"s": {
				{Ordinal: 0, DataPoint: id("a"), Revision: 1, Outcome: "created", Phase: "captured"},
				{Ordinal: 1, DataPoint: id("b"), Revision: 1, Outcome: "created", Phase: "processing"},
			}},
			ready: datapoints.Readiness{Comprehension: 1},
		},
		{
			name: "a batch whose items are all unchanged",
			given: func(w *world) {
				w.revised("first", "a", alone)
				in := w.committed("s", "a")
				w.resent("s", "a", in(0))
				w.fannedOut("s", unchanged)
			},
			sends: map[string]sendRow{"first": {Phase: "queued"}, "s": {Phase: "nothing-changed", Settled: at(1)}},
			ready: datapoints.Readiness{Raw: 1},
		},
		{
			name: "an item that became history is captured at once, and never the newest",
			given: func(w *world) {
				in := w.committed("s", "a")
				w.revised("later", "a", alone)
				w.revised("s", "a", in(0), true)
				w.fannedOut("s", updated)
			},
			sends: map[string]sendRow{"s": {Phase: "captured"}, "later": {Phase: "queued"}},
			items: map[string][]datapoints.Item{"s": {{DataPoint: id("a"), Revision: 2, Outcome: "updated", Phase: "captured"}}},
			ready: datapoints.Readiness{Raw: 1, Comprehension: 1},
		},
		{
			name: "an item that met a deletion",
			given: func(w *world) {
				w.revised("first", "a", alone)
				w.committed("s", "a")
				w.deleted("d", "a", true)
				w.fannedOut("s", ingestion.Outcome{Outcome: ingestion.Deleted})
			},
			sends: map[string]sendRow{"first": {Phase: "indexed", Settled: at(2)}, "s": {Phase: "indexed", Settled: at(1)}},
			items: map[string][]datapoints.Item{"s": {{DataPoint: id("a"), Outcome: "deleted", Phase: "done"}}},
		},
		{
			name: "a deletion takes one of two items: the other is waited for",
			given: func(w *world) {
				in := w.committed("s", "a", "b")
				w.revised("s", "a", in(0))
				w.revised("s", "b", in(1))
				w.fannedOut("s", created, created)
				w.deleted("d", "a", true)
			},
			sends: map[string]sendRow{"s": {Phase: "queued"}},
			items: map[string][]datapoints.Item{"s": {
				{Ordinal: 0, DataPoint: id("a"), Revision: 1, Outcome: "deleted", Phase: "done"},
				{Ordinal: 1, DataPoint: id("b"), Revision: 1, Outcome: "created", Phase: "queued"},
			}},
			ready: datapoints.Readiness{Raw: 1},
		},
		{
			name: "the deletion of a send: what is unchanged or revised since stays and leaves its list, also when it is deleted later",
			given: func(w *world) {
				w.revised("first", "same", alone)
				in := w.committed("s", "taken", "revised", "same")
				w.revised("s", "taken", in(0))
				w.revised("s", "revised", in(1))
				w.resent("s", "same", in(2))
				w.fannedOut("s", created, created, unchanged)
				w.revised("newer", "revised", alone)
				w.wiped("d", "s", "taken")
				w.deleted("d", "taken", false)
				w.wipeFannedOut("d")
				w.deleted("later", "revised", true)
			},
			sends: map[string]sendRow{
				"first": {Phase: "queued"}, "s": {Phase: "indexed", Settled: at(7)}, "newer": {Phase: "indexed", Settled: at(10)},
			},
			items: map[string][]datapoints.Item{"s": {{Ordinal: 0, DataPoint: id("taken"), Revision: 1, Outcome: "deleted", Phase: "done"}}},
			ready: datapoints.Readiness{Raw: 1},
		},
		{
			name: "what comes too late for a deleted data point changes nothing",
			given: func(w *world) {
				w.revised("s", "a", alone)
				w.started("s", "a", 0, 1, 1, 0)
				w.deleted("d", "a", true)
				w.derived("s", "a", 0, 1)
				w.started("s", "a", 0, 1, 2, 0)
				w.missed("s", "a", 0, 1, 2, 0, true)
				w.stopped("s", ingestion.ModelUnavailable)
			},
			sends: map[string]sendRow{"s": {Phase: "indexed", Settled: at(2)}},
			items: map[string][]datapoints.Item{"s": {{DataPoint: id("a"), Revision: 1, Outcome: "deleted", Phase: "done"}}},
		},
		{
			name: "facts that are kept in another order than the deletions came in",
			given: func(w *world) {
				w.committed("s", "a", "b")
				w.fannedOut("s", created, created)
				w.kept("d2", "b", deletion.Fact{IngestionID: id("s"), Ordinal: 1, Items: 2, Outcome: ingestion.Created, Revision: 1})
				w.keptOf(at(1), "d1", "a", deletion.Fact{IngestionID: id("s"), Ordinal: 0, Items: 2, Outcome: ingestion.Created, Revision: 1})
			},
			sends: map[string]sendRow{"s": {Phase: "indexed", Settled: at(2)}},
		},
		{
			name: "only the kept facts are left of an erased data point",
			given: func(w *world) {
				w.indexed("s")
				w.stopped("again", ingestion.Internal)
				w.kept("d", "a",
					deletion.Fact{IngestionID: id("s"), Items: 1, AcceptedAt: noon, Outcome: ingestion.Created, Revision: 1},
					deletion.Fact{IngestionID: id("again"), Items: 1, AcceptedAt: noon, Outcome: ingestion.Updated, Revision: 2},
					deletion.Fact{IngestionID: id("same"), Items: 1, AcceptedAt: noon, Outcome: ingestion.Unchanged, Revision: 2})
			},
			sends: map[string]sendRow{
				"s": {Phase: "indexed", Settled: at(0)}, "again": {Phase: "indexed", Settled: at(2)}, "same": {Phase: "nothing-changed", Settled: noon},
			},
			items: map[string][]datapoints.Item{
				"s":    {{DataPoint: id("a"), Revision: 1, Outcome: "deleted", Phase: "done"}},
				"same": {{DataPoint: id("a"), Revision: 2, Outcome: "deleted", Phase: "done"}},
			},
		},
	} {
		for _, whole := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, in one page %v", c.name, whole), func(t *testing.T) {
				projectiontest.Empty(t, db, datapoints.New(nil))
				w := worldOf(t, db)
				c.given(w)
				if whole {
					w.apply()
				} else {
					for _, f := range w.Facts {
						projectiontest.Apply(t, db, datapoints.New(nil), f)
					}
				}
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
			})
		}
	}
}
