package datapoints_test

import (
	"testing"

	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/projections/datapoints"
)

func TestFold_Batches(t *testing.T) {
	checkFold(t, []foldCase{
		{
			name:  "a committed batch",
			given: func(w *fixture) { w.committed("s", "a", "b") },
			sends: map[string]sendRow{"s": {Phase: "queued"}},
			items: map[string][]datapoints.Item{"s": {}},
			ready: datapoints.Readiness{Raw: 1},
		},
		{
			name: "a batch has the phase of its last item",
			given: func(w *fixture) {
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
			name: "all items of a batch are unchanged",
			given: func(w *fixture) {
				w.revised("first", "a", alone)
				in := w.committed("s", "a")
				w.resent("s", "a", in(0))
				w.fannedOut("s", unchanged)
			},
			sends: map[string]sendRow{"first": {Phase: "queued"}, "s": {Phase: "nothing-changed", Settled: at(1)}},
			ready: datapoints.Readiness{Raw: 1},
		},
		{
			name: "a historic item is captured at once and never the newest",
			given: func(w *fixture) {
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
			name: "an item meets a deletion",
			given: func(w *fixture) {
				w.revised("first", "a", alone)
				w.committed("s", "a")
				w.deleted("d", "a", true)
				w.fannedOut("s", ingestion.Outcome{Outcome: ingestion.Deleted})
			},
			sends: map[string]sendRow{"first": {Phase: "indexed", Settled: at(2)}, "s": {Phase: "indexed", Settled: at(1)}},
			items: map[string][]datapoints.Item{"s": {{DataPoint: id("a"), Outcome: "deleted", Phase: "done"}}},
		},
	})
}
