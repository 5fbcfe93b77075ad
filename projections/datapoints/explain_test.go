package datapoints_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/projections/datapoints"
)

// everything is a position of the recall index above every event.
const everything = eventstore.Position(1 << 40)

// remembered stores a number of memories of a revision.
func (w *fixture) remembered(send, source string, ordinal, revision, count int) {
	e := &memory.Derived{
		ProjectID: w.project, IngestionID: id(send), Ordinal: ordinal, Revision: revision,
		Extractor: "builtin/1", DerivedAt: w.at(), OccurredAt: noon,
	}
	for n := range count {
		e.Memories = append(e.Memories, memory.Memory{
			ID: memory.ID(id(source), revision, n), Kind: memory.Claim, Content: "c", Excerpt: "c",
			Inputs: []uuid.UUID{datapoint.NodeID(id(source), revision)},
		})
	}
	w.last = w.Append(stream.Name(stream.Memory, id(source)), e)
}

// explained applies the log to both projections and explains a send.
func (w *fixture) explained(of string, limit int, indexed eventstore.Position) datapoints.Explained {
	w.t.Helper()
	w.apply()
	projectiontest.Empty(w.t, w.Queries.DB, memoryProjector)
	projectiontest.Apply(w.t, w.Queries.DB, memoryProjector, w.Facts...)
	s, ok, err := w.Queries.Explain(w.t.Context(), project, id(of), limit, indexed)
	if err != nil || !ok {
		w.t.Fatalf("explain %s: %t, %v", of, ok, err)
	}
	return s
}

func wantExplained(t *testing.T, what string, want, got datapoints.Explained) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// TestExplain_SingleSend follows a send through its phases. It is found by its id and by that of its
// request.
func TestExplain_SingleSend(t *testing.T) {
	w := newFixture(t)
	w.revised("s", "a", alone)
	item := datapoints.Item{DataPoint: id("a"), SourceID: "a", Revision: 1, Outcome: "created", Phase: "queued"}
	want := datapoints.Explained{
		ID: id("s"), RequestID: id("request of s"), AcceptedAt: noon, Phase: "queued", CreditTenths: 10,
		Items: []datapoints.Item{item},
	}
	wantExplained(t, "queued", want, w.explained("s", 100, everything))
	w.started("s", "a", 0, 1, 1, 0)
	want.Phase, want.Items[0].Phase = "processing", "processing"
	wantExplained(t, "processing", want, w.explained("request of s", 100, everything))
	w.remembered("s", "a", 0, 1, 3)
	want.Phase, want.Items[0].Phase, want.Items[0].Memories = "captured", "captured", 3
	wantExplained(t, "captured", want, w.explained("s", 100, w.last-1))
	want.Items[0].Searchable = true
	wantExplained(t, "captured and in the index", want, w.explained("s", 100, w.last))
	settled := w.searchable(w.last)
	want.Phase, want.SettledAt = "indexed", &settled
	wantExplained(t, "indexed", want, w.explained("request of s", 100, everything))

	// A newer revision replaces it once it is captured. The older one keeps its memories for trace.
	w.revised("t", "a", alone)
	wantExplained(t, "a newer revision is queued", want, w.explained("s", 100, everything))
	w.remembered("t", "a", 0, 2, 1)
	want.Items[0].Searchable = false
	wantExplained(t, "a newer revision is captured", want, w.explained("s", 100, everything))

	w.deleted("d", "a", true)
	want.Items[0] = datapoints.Item{DataPoint: id("a"), Revision: 1, Outcome: "deleted", Phase: "done"}
	want.Deleted = true
	got := w.explained("s", 100, everything)
	wantExplained(t, "deleted", want, got)
}

func TestExplain_Failed(t *testing.T) {
	w := newFixture(t)
	w.revised("s", "a", alone)
	w.missed("s", "a", 0, 1, 1, 0, true)
	stopped := w.at()
	w.stopped("s", ingestion.ContentRejected)
	want := datapoints.Explained{
		ID: id("s"), RequestID: id("request of s"), AcceptedAt: noon, SettledAt: &stopped, Phase: "failed", CreditTenths: 10,
		Failure: &datapoints.Failure{Code: "content-rejected", Message: "s stopped"}, FailureOpen: true,
		Items: []datapoints.Item{{DataPoint: id("a"), SourceID: "a", Revision: 1, Outcome: "created", Phase: "failed"}},
	}
	wantExplained(t, "failed", want, w.explained("s", 100, everything))
	w.revised("t", "a", alone)
	w.derived("t", "a", 0, 2)
	want.FailureOpen = false
	wantExplained(t, "a newer revision is captured", want, w.explained("s", 100, everything))
	w.retried("s", 1)
	want.Phase, want.SettledAt, want.Failure, want.Items[0].Phase = "queued", nil, nil, "queued"
	wantExplained(t, "retried", want, w.explained("s", 100, everything))
}

// The items of a batch are listed in the order sent, up to the limit; all others are counted.
func TestExplain_Batch(t *testing.T) {
	w := newFixture(t)
	w.revised("first", "same", alone)
	w.remembered("first", "same", 0, 1, 2)
	w.revised("second", "moves", alone)
	accepted := w.at()
	in := w.committed("s", "new", "same", "moves", "late")
	want := datapoints.Explained{
		ID: id("s"), RequestID: id("request of s"), AcceptedAt: accepted, Phase: "queued", CreditTenths: 40, Omitted: 4,
	}
	wantExplained(t, "committed", want, w.explained("s", 100, everything))
	w.revised("s", "new", in(0))
	w.resent("s", "same", in(1))
	w.moved("s", "moves", id("team"), in(2))
	w.revised("s", "late", in(3))
	w.fannedOut("s", created, unchanged, ingestion.Outcome{Outcome: ingestion.Moved, Revision: 1}, created)
	want.CreditTenths, want.Omitted = 20, 1
	want.Items = []datapoints.Item{
		{Ordinal: 0, DataPoint: id("new"), SourceID: "new", Revision: 1, Outcome: "created", Phase: "queued"},
		{
			Ordinal: 1, DataPoint: id("same"), SourceID: "same", Revision: 1, Outcome: "unchanged", Phase: "done",
			Searchable: true, Memories: 2,
		},
		{Ordinal: 2, DataPoint: id("moves"), SourceID: "moves", Revision: 1, Outcome: "moved", Phase: "done"},
	}
	wantExplained(t, "fanned out", want, w.explained("s", 3, everything))

	// A deleted send lists only what was deleted with it.
	w.wiped("d", "s", "new", "late")
	w.deleted("d", "new", false)
	w.deleted("d", "late", false)
	settled := noon.Add(time.Duration(len(w.Facts)-3) * time.Second)
	w.wipeFannedOut("d")
	want.Phase, want.Deleted, want.Omitted, want.SettledAt = "indexed", true, 0, &settled
	want.Items = []datapoints.Item{
		{Ordinal: 0, DataPoint: id("new"), Revision: 1, Outcome: "deleted", Phase: "done"},
		{Ordinal: 3, DataPoint: id("late"), Revision: 1, Outcome: "deleted", Phase: "done"},
	}
	wantExplained(t, "deleted", want, w.explained("s", 100, everything))
}

func TestExplain_NothingChanged(t *testing.T) {
	w := newFixture(t)
	w.revised("first", "a", alone)
	at := w.at()
	w.resent("s", "a", alone)
	wantExplained(t, "unchanged", datapoints.Explained{
		ID: id("s"), RequestID: id("request of s"), AcceptedAt: at, SettledAt: &at, Phase: "nothing-changed", CreditTenths: 0,
		Items: []datapoints.Item{{DataPoint: id("a"), SourceID: "a", Revision: 1, Outcome: "unchanged", Phase: "done"}},
	}, w.explained("s", 100, everything))
}
