package datapoints_test

import (
	"testing"

	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/projections/datapoints"
)

func TestFold_Deletions(t *testing.T) {
	checkFold(t, []foldCase{
		{
			name: "one of two items is deleted: the other still waits",
			given: func(w *fixture) {
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
			name: "a deleted send lists neither unchanged nor revised items, even if they are deleted later",
			given: func(w *fixture) {
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
			items: map[string][]datapoints.Item{
				"s": {{Ordinal: 0, DataPoint: id("taken"), Revision: 1, Outcome: "deleted", Phase: "done"}},
			},
			ready: datapoints.Readiness{Raw: 1},
		},
		{
			name: "events after the deletion of their data point change nothing",
			given: func(w *fixture) {
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
	})
}

func TestFold_RetainedFacts(t *testing.T) {
	checkFold(t, []foldCase{
		{
			name: "facts are retained in another order than the deletions",
			given: func(w *fixture) {
				w.committed("s", "a", "b")
				w.fannedOut("s", created, created)
				w.kept("d2", "b",
					deletion.RetainedFact{IngestionID: id("s"), Ordinal: 1, Items: 2, Outcome: ingestion.Created, Revision: 1})
				w.keptOf(at(1), "d1", "a",
					deletion.RetainedFact{IngestionID: id("s"), Ordinal: 0, Items: 2, Outcome: ingestion.Created, Revision: 1})
			},
			sends: map[string]sendRow{"s": {Phase: "indexed", Settled: at(2)}},
		},
		{
			name: "only retained facts are left of an erased data point",
			given: func(w *fixture) {
				w.indexed("s")
				w.stopped("again", ingestion.Internal)
				w.kept("d", "a",
					deletion.RetainedFact{IngestionID: id("s"), Items: 1, AcceptedAt: noon, Outcome: ingestion.Created, Revision: 1},
					deletion.RetainedFact{
						IngestionID: id("again"), Items: 1, AcceptedAt: noon, Outcome: ingestion.Updated, Revision: 2,
					},
					deletion.RetainedFact{
						IngestionID: id("same"), Items: 1, AcceptedAt: noon, Outcome: ingestion.Unchanged, Revision: 2,
					})
			},
			sends: map[string]sendRow{
				"s": {Phase: "indexed", Settled: at(0)}, "again": {Phase: "indexed", Settled: at(2)}, "same": {Phase: "nothing-changed", Settled: noon},
			},
			items: map[string][]datapoints.Item{
				"s":    {{DataPoint: id("a"), Revision: 1, Outcome: "deleted", Phase: "done"}},
				"same": {{DataPoint: id("a"), Revision: 2, Outcome: "deleted", Phase: "done"}},
			},
		},
	})
}
