package datapoints_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/projections/datapoints"
)

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
	equal := func(what string, got, want rankedRow) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
	first, second := "Did you say that we meet Ana on Monday?", strings.Repeat("x", recall.StatedText-4)+" Ana"
	accept("one", "a", "mail", datapoint.Body{Content: datapoint.Text{Inline: first}, Metadata: &datapoint.Text{Inline: "{}"}})
	equal("short", w.ranked("a"), want(first, "mail", 1, 2, 0))
	accept("two", "a", "note", datapoint.Body{Content: datapoint.Text{Inline: second}})
	equal("the longest that states something", w.ranked("a"), want(second, "note", 2, 0, 0))
	accept("three", "a", "old", datapoint.Body{Content: datapoint.Text{Inline: first}}, true)
	equal("after a historic one", w.ranked("a"), want(second, "note", 2, 0, 0))

	long := second + "!"
	metadata := datapoint.Text{Blob: &blob.Ref{Stream: "blob-m", Size: 9000}}
	accept("four", "a", "", datapoint.Body{Content: datapoint.Text{Inline: long}, Metadata: &metadata})
	row := want(long, "", 4, 9000, 0)
	row.Traits, row.Stems, row.Exact, row.Outline = 0, 0, 0, 0
	equal("longer", w.ranked("a"), row)
	ref := blob.Ref{Stream: "blob-c", Size: 1 << 20, SHA256: "00"}
	accept("five", "a", "", datapoint.Body{Content: datapoint.Text{Blob: &ref}})
	equal("in a blob", w.ranked("a"), rankedRow{Label: new(string), Size: ref.Size, Blob: &ref, Revision: 5})

	keyed := want(first, "chat", 1, len(`{"thread":"t1"}`), 0)
	keyed.Conversation = recall.ConversationOf([]byte(`{"thread": "t1"}`))
	accept("eight", "c", "chat", datapoint.Body{
		Content: datapoint.Text{Inline: first}, Metadata: &datapoint.Text{Inline: `{"thread":"t1"}`},
	})
	equal("with a key of a conversation", w.ranked("c"), keyed)

	// A move writes the row again.
	accept("six", "b", "mail", datapoint.Body{Content: datapoint.Text{Inline: first}})
	w.apply()
	states := datapoint.States{Effect: w.states["b"]}
	states.Effect.Audience = id("team")
	w.last = w.Append(stream.Name(stream.DataPoint, id("b")), &datapoint.Moved{Send: w.send("seven", alone), States: states})
	equal("moved", w.ranked("b"), want(first, "mail", 1, 0, 0))
}

// The rows depend on the analysis: they are of the version of the projection.
func TestRanked_VersionOfAnalysis(t *testing.T) {
	const analysis, version = 4, 6
	if got := recall.Shared().Version(); got != analysis {
		t.Errorf("analysis %d: rows hold what texts state in analysis %d: raise the version of the projection", got, analysis)
	}
	if got := datapoints.New(nil).Version(); got != version {
		t.Errorf("version %d, want %d: note which analysis it is of", got, version)
	}
}
