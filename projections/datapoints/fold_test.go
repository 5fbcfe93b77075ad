package datapoints_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/internal/runtest"
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
	same(t, "sends", want, w.sends())
	for name, items := range c.items {
		got := w.shown(name)
		if len(items) == 0 && len(got) == 0 {
			continue
		}
		same(t, "items of "+name, items, got)
	}
	ready, err := w.Queries.Readiness(t.Context(), project)
	runtest.Must(t, err)
	same(t, "readiness", c.ready, ready)
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

// rankedRow is what recall ranks by, as the row has it.
type rankedRow struct {
	Label            *string
	Size, Metadata   int64
	Blob             *blob.Ref
	Tokens           *int
	Traits           int16
	Stems, Exact     uint64
	Outline          recall.Outline
	Conversation     uint64
	Revision, Memory int
}

func (w *fixture) ranked(source string) (r rankedRow) {
	w.t.Helper()
	w.apply()
	if err := w.Queries.DB.QueryRow(w.t.Context(), `select label, size, metadata_size, content_blob, tokens, traits, stems,
			exact, outline, conversation, revision, memories from datapoints.data_points where id = $1`, id(source)).Scan(&r.Label, &r.Size, &r.Metadata,
		&r.Blob, &r.Tokens, &r.Traits, &r.Stems, &r.Exact, &r.Outline, &r.Conversation, &r.Revision, &r.Memory); err != nil {
		w.t.Fatal(err)
	}
	return r
}

// The row has what recall ranks by of the newest revision: a historic one changes nothing, and rows that are written
// again for another reason keep it.
func TestRanked(t *testing.T) {
	w := newFixture(t)
	accept := func(send, source, label string, body datapoint.Body, historic ...bool) {
		w.revised(send, source, alone, historic...)
		e := w.Facts[len(w.Facts)-1].Event.(*datapoint.RevisionAccepted)
		e.Effect.Label, e.Body = &label, body
	}
	want := func(text, label string, revision, metadata, memories int) rankedRow {
		states, outline := recall.NewAnalyzer().States(text)
		tokens := recall.Tokens(text)
		return rankedRow{
			Label: &label, Size: int64(len(text)), Metadata: int64(metadata), Tokens: &tokens,
			Traits: int16(recall.TraitsOf(text)), Stems: states.Stems, Exact: states.Exact, Outline: outline, Revision: revision, Memory: memories,
		}
	}
	first, second := "Did you say that we meet Ana on Monday?", strings.Repeat("x", recall.StatedText-4)+" Ana"
	accept("one", "a", "mail", datapoint.Body{Content: datapoint.Text{Inline: first}, Metadata: &datapoint.Text{Inline: "{}"}})
	same(t, "short", want(first, "mail", 1, 2, 0), w.ranked("a"))
	accept("two", "a", "note", datapoint.Body{Content: datapoint.Text{Inline: second}})
	same(t, "the longest that states something", want(second, "note", 2, 0, 0), w.ranked("a"))
	accept("three", "a", "old", datapoint.Body{Content: datapoint.Text{Inline: first}}, true)
	same(t, "after a historic one", want(second, "note", 2, 0, 0), w.ranked("a"))

	long := second + "!"
	metadata := datapoint.Text{Blob: &blob.Ref{Stream: "blob-m", Size: 9000}}
	accept("four", "a", "", datapoint.Body{Content: datapoint.Text{Inline: long}, Metadata: &metadata})
	row := want(long, "", 4, 9000, 0)
	row.Traits, row.Stems, row.Exact, row.Outline = 0, 0, 0, 0
	same(t, "longer", row, w.ranked("a"))
	ref := blob.Ref{Stream: "blob-c", Size: 1 << 20, SHA256: "00"}
	accept("five", "a", "", datapoint.Body{Content: datapoint.Text{Blob: &ref}})
	same(t, "in a blob", rankedRow{Label: new(string), Size: ref.Size, Blob: &ref, Revision: 5}, w.ranked("a"))

	keyed := want(first, "chat", 1, len(`{"thread":"t1"}`), 0)
	keyed.Conversation = recall.ConversationOf([]byte(`{"thread": "t1"}`))
	accept("eight", "c", "chat", datapoint.Body{
		Content: datapoint.Text{Inline: first}, Metadata: &datapoint.Text{Inline: `{"thread":"t1"}`},
	})
	same(t, "with a key of a conversation", keyed, w.ranked("c"))

	// A move writes the row again.
	accept("six", "b", "mail", datapoint.Body{Content: datapoint.Text{Inline: first}})
	w.apply()
	states := datapoint.States{Effect: w.states["b"]}
	states.Effect.Audience = id("team")
	w.last = w.Append(stream.Name(stream.DataPoint, id("b")), &datapoint.Moved{Send: w.send("seven", alone), States: states})
	same(t, "moved", want(first, "mail", 1, 0, 0), w.ranked("b"))
}

// The rows depend on the analysis: they are of the version of the projection.
func TestRanked_VersionOfAnalysis(t *testing.T) {
	const analysis, version = 4, 7
	if got := recall.Shared().Version(); got != analysis {
		t.Errorf("analysis %d: rows hold what texts state in analysis %d: raise the version of the projection", got, analysis)
	}
	if got := datapoints.New(nil).Version(); got != version {
		t.Errorf("version %d, want %d: note which analysis it is of", got, version)
	}
}
