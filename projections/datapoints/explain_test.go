package datapoints_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/internal/runtest"
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
	same(t, "queued", want, w.explained("s", 100, everything))
	w.started("s", "a", 0, 1, 1, 0)
	want.Phase, want.Items[0].Phase = "processing", "processing"
	same(t, "processing", want, w.explained("request of s", 100, everything))
	w.remembered("s", "a", 0, 1, 3)
	want.Phase, want.Items[0].Phase, want.Items[0].Memories = "captured", "captured", 3
	same(t, "captured", want, w.explained("s", 100, w.last-1))
	want.Items[0].Searchable = true
	same(t, "captured and in the index", want, w.explained("s", 100, w.last))
	settled := w.searchable(w.last)
	want.Phase, want.SettledAt = "indexed", &settled
	same(t, "indexed", want, w.explained("request of s", 100, everything))

	// A newer revision replaces it once it is captured. The older one keeps its memories for trace.
	w.revised("t", "a", alone)
	same(t, "a newer revision is queued", want, w.explained("s", 100, everything))
	w.remembered("t", "a", 0, 2, 1)
	want.Items[0].Searchable = false
	same(t, "a newer revision is captured", want, w.explained("s", 100, everything))

	w.deleted("d", "a", true)
	want.Items[0] = datapoints.Item{DataPoint: id("a"), Revision: 1, Outcome: "deleted", Phase: "done"}
	want.Deleted = true
	got := w.explained("s", 100, everything)
	same(t, "deleted", want, got)
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
	same(t, "failed", want, w.explained("s", 100, everything))
	w.revised("t", "a", alone)
	w.derived("t", "a", 0, 2)
	want.FailureOpen = false
	same(t, "a newer revision is captured", want, w.explained("s", 100, everything))
	w.retried("s", 1)
	want.Phase, want.SettledAt, want.Failure, want.Items[0].Phase = "queued", nil, nil, "queued"
	same(t, "retried", want, w.explained("s", 100, everything))
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
	same(t, "committed", want, w.explained("s", 100, everything))
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
	same(t, "fanned out", want, w.explained("s", 3, everything))

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
	same(t, "deleted", want, w.explained("s", 100, everything))
}

func TestExplain_NothingChanged(t *testing.T) {
	w := newFixture(t)
	w.revised("first", "a", alone)
	at := w.at()
	w.resent("s", "a", alone)
	same(t, "unchanged", datapoints.Explained{
		ID: id("s"), RequestID: id("request of s"), AcceptedAt: at, SettledAt: &at, Phase: "nothing-changed", CreditTenths: 0,
		Items: []datapoints.Item{{DataPoint: id("a"), SourceID: "a", Revision: 1, Outcome: "unchanged", Phase: "done"}},
	}, w.explained("s", 100, everything))
}

func TestPlacement(t *testing.T) {
	w := newFixture(t)
	for _, source := range []string{"a", "b", "gone", "erased"} {
		w.revised("first "+source, source, location{})
	}
	w.revised("second", "a", location{})
	w.moved("third", "b", id("audience"), location{})
	w.derived("first a", "a", 0, 1)
	w.deleted("d", "gone", true)
	w.deleted("e", "erased", true)
	w.kept("e", "erased")
	w.cleaned("e")
	for name, c := range map[string]struct {
		project auth.Project
		sent    bool
		want    datapoints.Placement
	}{
		"a":      {project, true, datapoints.Placement{Revision: 2, Captured: 1}},
		"b":      {project, true, datapoints.Placement{Revision: 1, Audience: id("audience")}},
		"gone":   {project, true, datapoints.Placement{Deleted: true}},
		"erased": {project, true, datapoints.Placement{Deleted: true}},
		"never":  {project, false, datapoints.Placement{}},
	} {
		for _, of := range []auth.Project{c.project, neighbour} {
			sent, want := c.sent, c.want
			if of == neighbour {
				sent, want = false, datapoints.Placement{}
			}
			got, ok, err := w.Queries.Placement(t.Context(), of, id(name))
			if err != nil || ok != sent {
				t.Fatalf("%s in %s: %v, %v", name, of.Slug, ok, err)
			}
			if got.Deleted != want.Deleted || got.Revision != want.Revision || got.Captured != want.Captured ||
				got.Audience != want.Audience || ok && !got.Deleted && got.OccurredAt.IsZero() {
				t.Errorf("%s in %s: %+v, want %+v", name, of.Slug, got, want)
			}
		}
	}
	if _, ok, err := w.Queries.Placement(t.Context(), project, uuid.Nil); ok || err != nil {
		t.Errorf("no id: %v, %v", ok, err)
	}
}

// audiences reads the last audience of each revision while it was the newest; "?" is unknown.
func (w *fixture) audiences(source string) map[int]string {
	w.t.Helper()
	w.apply()
	rows, err := w.Queries.DB.Query(w.t.Context(), `select number, audience from datapoints.revisions
		where data_point = $1`, id(source))
	runtest.Must(w.t, err)
	got := map[int]string{}
	var number int
	var audience *uuid.UUID
	if _, err := pgx.ForEachRow(rows, []any{&number, &audience}, func() error {
		got[number] = "?"
		if audience != nil {
			got[number] = names[*audience]
		}
		return nil
	}); err != nil {
		w.t.Fatal(err)
	}
	return got
}

var names = map[uuid.UUID]string{uuid.Nil: "project", id("team"): "team", id("board"): "board"}

// movedLate stores a historic move: one of a batch, after effects that followed its commit.
func (w *fixture) movedLate(send, source string, revision int, audience uuid.UUID) {
	current := w.states[source]
	effect := current
	effect.Revision, effect.Audience = revision, audience
	w.last = w.Append(stream.Name(stream.DataPoint, id(source)), &datapoint.Moved{
		Send: w.send(send, location{items: 1, commit: 1}), States: datapoint.States{Effect: effect, Current: &current},
	})
}

func (w *fixture) wantAudiences(source string, want map[int]string) {
	w.t.Helper()
	same(w.t, "audiences", want, w.audiences(source))
}

func TestRevision_LastAudience(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.revised("s1", "a", alone)
	w.moved("s2", "a", id("board"), alone)
	w.wantAudiences("a", map[int]string{1: "board"})
	w.moved("s3", "a", id("team"), alone)
	w.moved("s4", "a", id("board"), alone)
	w.revised("s5", "a", alone) // keeps the audience
	w.moved("s6", "a", uuid.Nil, alone)
	w.wantAudiences("a", map[int]string{1: "board", 2: "project"})
}

func TestRevision_HistoricMove(t *testing.T) {
	w := newFixture(t)
	w.revised("s1", "a", alone)
	w.moved("s2", "a", id("board"), alone)
	w.movedLate("s3", "a", 1, id("team"))
	w.wantAudiences("a", map[int]string{1: "board"}) // the later move wins
	w.revised("s4", "a", alone)
	w.movedLate("s5", "a", 1, id("team"))
	w.wantAudiences("a", map[int]string{1: "?", 2: "board"})
}
