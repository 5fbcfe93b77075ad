package commands_test

import (
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/stream"
)

func private(in *commands.DataPoint) { in.Private = true }

// private is the private audience of an identity, which has a record.
func (w *fixture) private(name string) uuid.UUID {
	w.t.Helper()
	record, _ := w.record(name)
	if record == nil {
		w.t.Fatalf("%s has no record", name)
	}
	return stream.PrivateAudienceID(w.recordID(name), record.CreatedAt)
}

// A private data point is in the audience of its author alone, who gets a record.
func TestIngest_Private(t *testing.T) {
	w := newFixture(t)
	var placed uuid.UUID
	w.call.Placed = func(to uuid.UUID) { placed = to }
	w.ingest(text("s", "one", by("ana"), private), "")
	first := placed
	w.ingest(text("b", "one", by("ben"), private), "")
	ana := w.private("ana")
	if w.head("s").Audience != ana || w.head("b").Audience != w.private("ben") || ana == w.private("ben") {
		t.Errorf("s is in %s, b in %s, ana has %s", w.head("s").Audience, w.head("b").Audience, ana)
	}
	if first != ana || placed != w.private("ben") {
		t.Errorf("placed in %s, then in %s", first, placed)
	}
	w.ingest(text("s", "one", by("ana")), "")
	if w.head("s").Audience != uuid.Nil {
		t.Error("a send without an audience publishes")
	}
	w.ingest(text("s", "one", by("ana"), private), "")
	if w.head("s").Audience != ana {
		t.Errorf("private again, it is in %s", w.head("s").Audience)
	}
}

// A record that was deleted and made again has another audience: what is sent to it does not reach what was before, and
// the other way round.
func TestIngest_PrivateToARecordMadeAgain(t *testing.T) {
	w := newFixture(t)
	w.ingest(text("s", "one", by("ana"), private), "")
	before := w.head("s").Audience
	if err := w.DeleteIdentity(t.Context(), w.later(1), "ana"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Ingest(t.Context(), w.later(2), text("n", "two", by("ana"), private), ""); err != nil {
		t.Fatal(err)
	}
	if now := w.head("n").Audience; now == before || now != w.private("ana") || w.head("s").Audience != before {
		t.Errorf("the new text is in %s, the old one in %s, which was %s", now, w.head("s").Audience, before)
	}
}

// PrivateIfNew is for new data points without an audience. Later sends keep what is there.
func TestIngest_PrivateIfNew(t *testing.T) {
	w, team := scoped(t)
	call := w.own("ana")
	call.KeepsAudience, call.PrivateIfNew = true, true
	for _, send := range []struct {
		in   commands.DataPoint
		want uuid.UUID
	}{
		{text("s", "two", by("ana")), team},
		{text("new", "one", by("ana")), w.private("ana")},
		{text("new", "two", by("ana")), w.private("ana")},
		{text("new", "two", by("ana"), to("project")), uuid.Nil},
		{text("new", "three", by("ana")), uuid.Nil},
		{text("other", "one", by("ana"), to("team")), team},
		{text("other", "one", by("ana"), private), w.private("ana")},
	} {
		if _, err := w.Ingest(t.Context(), call, send.in, ""); err != nil {
			t.Fatal(err)
		}
		if got := w.head(*send.in.ID).Audience; got != send.want {
			t.Errorf("%s %q is in %s, want %s", *send.in.ID, send.in.Content, got, send.want)
		}
	}
}

// The word me is a slug as any other: of an audience that the project has, or of none.
func TestIngest_MeIsASlug(t *testing.T) {
	w := newFixture(t)
	_, err := w.Ingest(t.Context(), w.call, text("s", "one", by("ana"), to("me")), "")
	if refusalOf(err) != fault.CodeAudienceUnknown {
		t.Errorf("there is no audience: %v", err)
	}
	me := w.put(fixedOf("me", "ben"))
	w.ingest(text("s", "one", by("ana"), to("me")), "")
	w.ingest(text("p", "one", by("ana"), private), "")
	if w.head("s").Audience != me.ID || w.head("p").Audience == me.ID {
		t.Errorf("s is in %s, p in %s, the audience is %s", w.head("s").Audience, w.head("p").Audience, me.ID)
	}
}

// Each private item of a batch is in the audience of its author, and a repeat with the key changes nothing.
func TestIngestBatch_Private(t *testing.T) {
	w := newFixture(t)
	items := []commands.DataPoint{
		text("a", "one", by("ana"), private), text("b", "two", by("ben"), private), text("c", "three", by("ana")),
		text("d", "four", by("ana"), private),
	}
	for range 2 {
		if _, err := w.IngestBatch(t.Context(), w.call, items, "key"); err != nil {
			t.Fatal(err)
		}
	}
	for id, want := range map[string]uuid.UUID{
		"a": w.private("ana"), "b": w.private("ben"), "c": uuid.Nil, "d": w.private("ana"),
	} {
		if got := w.head(id).Audience; got != want || len(w.history(id)) != 1 {
			t.Errorf("%s is in %s, want %s; %d events", id, got, want, len(w.history(id)))
		}
	}
	items[2].Private = true
	_, err := w.IngestBatch(t.Context(), w.call, items, "key")
	if refusalOf(err) != fault.CodeIdempotencyConflict {
		t.Errorf("the key with another payload: %v", err)
	}
}
