package commands_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/ingest"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/runtest"
)

func (w *fixture) correct(in ingest.Correction) ingest.Receipt {
	w.t.Helper()
	r, err := w.Correct(w.t.Context(), w.call, in)
	runtest.Must(w.t, err)
	return r
}

// newest returns the last event of a data point, which must be a revision.
func (w *fixture) newest(sourceID string) *datapoint.RevisionAccepted {
	w.t.Helper()
	facts := w.history(sourceID)
	e, is := facts[len(facts)-1].Event.(*datapoint.RevisionAccepted)
	if !is {
		w.t.Fatalf("the last event is %s", facts[len(facts)-1].Type)
	}
	return e
}

// scoped is a fixture with data point "s" in the audience "team", of ana.
func scoped(t *testing.T) (w *fixture, team uuid.UUID) {
	w = newFixture(t)
	w.put(fixedOf("team", "ana"))
	w.put(fixedOf("board", "ben"))
	w.ingest(text("s", "one", labelled("l"), with(`{"n":1}`), by("ana"), to("team")), "")
	return w, w.head("s").Audience
}

func TestCorrect_KeepsWhatTheFormDoesNotChange(t *testing.T) {
	w, team := scoped(t)
	first := w.newest("s")
	w.call.ReceivedAt = w.call.ReceivedAt.Add(time.Hour)
	content := "two"
	r := w.correct(ingest.Correction{SourceID: "s", Revision: 1, Content: &content})
	e := w.newest("s")
	if team == uuid.Nil || e.Effect.Audience != team {
		t.Fatalf("audience %s, was %s", e.Effect.Audience, team)
	}
	if e.Content.Inline != "two" || *e.Effect.Label != "l" || e.Metadata.Inline != `{"n":1}` || e.Author != "ana" ||
		!e.Effect.OccurredAt.Equal(first.Effect.OccurredAt) || e.Effect.Revision != 2 || r.SourceID != "s" {
		t.Errorf("%+v", e)
	}
	label, author := "other", "ben"
	w.correct(ingest.Correction{SourceID: "s", Revision: 2, Label: &label})
	w.correct(ingest.Correction{SourceID: "s", Revision: 3, Identity: &author})
	if e = w.newest("s"); e.Content.Inline != "two" || *e.Effect.Label != "other" || e.Author != "ben" ||
		e.Effect.Audience != team || e.Effect.Revision != 4 {
		t.Errorf("%+v", e)
	}
	board := "board"
	w.correct(ingest.Correction{SourceID: "s", Revision: 4, Audience: &board})
	wantTypes(t, w.types("s"), accepted, accepted, accepted, accepted, moved)
	if got := w.head("s").Audience; got == team || got == uuid.Nil {
		t.Errorf("audience %s after a move", got)
	}
}

// The person saw the data point in another audience, or its audience is gone by now: it stays where it is.
func TestCorrect_NeverPublishes(t *testing.T) {
	w, team := scoped(t)
	w.ingest(text("s", "one", to("board")), "")
	board := w.head("s").Audience
	label := "new"
	w.correct(ingest.Correction{SourceID: "s", Revision: 1, Label: &label})
	if got := w.head("s").Audience; got != board || got == team {
		t.Errorf("audience %s, want %s", got, board)
	}
	runtest.Must(t, w.DeleteAudience(t.Context(), w.call, "board"))
	content := "two"
	w.correct(ingest.Correction{SourceID: "s", Revision: 2, Content: &content})
	if got := w.head("s").Audience; got != board {
		t.Errorf("audience %s after its removal, want %s", got, board)
	}
}

func TestCorrect_Conflicts(t *testing.T) {
	w, _ := scoped(t)
	content := "two"
	w.correct(ingest.Correction{SourceID: "s", Revision: 1, Content: &content})
	_, err := w.Correct(t.Context(), w.call, ingest.Correction{SourceID: "s", Revision: 1, Content: &content})
	if f := wantFault(t, err, fault.CodeConflict); f.Data["revision"] != 2 || f.Kind != fault.Conflict {
		t.Errorf("%+v", f)
	}
	_, err = w.Correct(t.Context(), w.call, ingest.Correction{SourceID: "none", Revision: 1, Content: &content})
	wantFault(t, err, fault.CodeDataPointNotFound)
	runtest.Must(t, errorOf(w.DeleteDataPoints(t.Context(), w.call, []string{"s"})))
	_, err = w.Correct(t.Context(), w.call, ingest.Correction{SourceID: "s", Revision: 2, Content: &content})
	wantFault(t, err, fault.CodeDataPointDeleted)
}

// racing revises a data point between the read of a correction and its append.
type racing struct {
	eventstore.Store
	before func()
}

func (r *racing) Append(
	ctx context.Context, name string, at eventstore.Revision, events []eventstore.Proposed,
) (eventstore.Appended, error) {
	if before := r.before; before != nil && strings.HasPrefix(name, stream.DataPoint) {
		r.before = nil
		before()
	}
	return r.Store.Append(ctx, name, at, events)
}

func TestCorrect_LosesARace(t *testing.T) {
	w, _ := scoped(t)
	race := &racing{Store: w.store}
	other := fixtureOver(t, race)
	race.before = func() { w.ingest(text("s", "newer", to("team")), "") }
	content := "two"
	_, err := other.Correct(t.Context(), other.call, ingest.Correction{SourceID: "s", Revision: 1, Content: &content})
	wantFault(t, err, fault.CodeConflict)
	if got := w.newest("s").Content.Inline; got != "newer" {
		t.Errorf("content %q", got)
	}
}

func TestCorrect_KeepsABigText(t *testing.T) {
	w := newFixture(t)
	big := strings.Repeat("tea ", 300_000)
	w.ingest(text("s", big), "")
	label := "tea"
	w.correct(ingest.Correction{SourceID: "s", Revision: 1, Label: &label})
	e := w.newest("s")
	if e.Content.Blob == nil || e.Bytes != int64(len(big)) {
		t.Fatalf("%+v", e)
	}
	if data, err := w.log.ReadBlob(t.Context(), *e.Content.Blob); err != nil || string(data) != big {
		t.Errorf("%d bytes, %v", len(data), err)
	}
}

// A kept author whose record was removed gets no new one.
func TestCorrect_RemovedAuthor(t *testing.T) {
	w, _ := scoped(t)
	runtest.Must(t, w.DeleteIdentity(t.Context(), w.call, "ana"))
	name := stream.Name(stream.Identity, stream.IdentityID(w.call.Principal.Project.Namespace, "ana"))
	before := w.read(name)
	content := "two"
	w.correct(ingest.Correction{SourceID: "s", Revision: 1, Content: &content})
	after, err := w.log.ReadFrom(t.Context(), name, 0)
	if err != nil || len(after) != len(before) {
		t.Errorf("%d events of the author, before %d, %v", len(after), len(before), err)
	}
	if e := w.newest("s"); e.Author != "ana" {
		t.Errorf("author %q", e.Author)
	}
}
