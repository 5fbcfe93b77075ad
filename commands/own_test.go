package commands_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/fault"
)

// own is the call of the fixture, bound to what an identity wrote.
func (w *fixture) own(identity string) commands.Call {
	call := w.call
	call.Own = &identity
	return call
}

// refusalOf is the code of a fault, "" of another error.
func refusalOf(err error) string {
	if f, is := errors.AsType[*fault.Error](err); is {
		return f.Code
	}
	return ""
}

// A call that is bound to what an identity wrote replaces nothing of others, not even by the same text, and whether an
// id is of another or deleted does not show.
func TestIngest_Own(t *testing.T) {
	w, team := scoped(t)
	for _, send := range []commands.DataPoint{
		text("s", "one", by("ben")), text("s", "one", labelled("l"), with(`{"n":1}`), by("ben"), to("team")),
		text("s", "two", by("ben"), to("board")),
	} {
		_, err := w.Ingest(t.Context(), w.own("ben"), send, "")
		if refusalOf(err) != commands.CodeIDTaken {
			t.Errorf("ben sends the id of ana: %v", err)
		}
	}
	if len(w.history("s")) != 1 || w.head("s").Audience != team {
		t.Errorf("the text of ana has changed: %d events, audience %s", len(w.history("s")), w.head("s").Audience)
	}
	// Ana may, also after a re-send that made no revision. Without an audience the text stays where it is.
	w.ingest(text("s", "one", by("ben"), to("team")), "")
	call := w.own("ana")
	call.KeepsAudience = true
	if _, err := w.Ingest(t.Context(), call, text("s", "two", by("ana")), ""); err != nil {
		t.Fatal(err)
	}
	if e := w.newest("s"); e.Content.Inline != "two" || e.Effect.Audience != team {
		t.Errorf("%+v", e)
	}
	if _, err := w.Ingest(t.Context(), w.call, text("s", "two", by("ana")), ""); err != nil || w.head("s").Audience != uuid.Nil {
		t.Errorf("a send that keeps nothing: %v, %s", err, w.head("s").Audience)
	}
	_, deleted := w.Ingest(t.Context(), w.own("eve"), text("s", "x", by("eve")), "")
	if _, err := w.DeleteDataPoints(t.Context(), w.call, []string{"s"}); err != nil {
		t.Fatal(err)
	}
	_, taken := w.Ingest(t.Context(), w.own("eve"), text("s", "x", by("eve")), "")
	if deleted == nil || taken == nil || deleted.Error() != taken.Error() || strings.Contains(taken.Error(), "delete") {
		t.Errorf("taken %v, deleted %v", taken, deleted)
	}
}

// A deletion that is bound to what an identity wrote knows nothing else.
func TestDeleteDataPoints_Own(t *testing.T) {
	w, _ := scoped(t)
	w.ingest(text("b", "of ben", by("ben")), "")
	for _, ids := range [][]string{{"s"}, {"b", "s"}, {"nothing"}} {
		_, err := w.DeleteDataPoints(t.Context(), w.own("ben"), ids)
		if refusalOf(err) != fault.CodeDataPointNotFound {
			t.Errorf("ben deletes %q: %v", ids, err)
		}
	}
	if len(w.history("s")) != 1 || len(w.history("b")) != 1 {
		t.Error("something was deleted")
	}
	if _, err := w.DeleteDataPoints(t.Context(), w.own("ben"), []string{"b"}); err != nil {
		t.Error(err)
	}
}
