package commands_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/ingest"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/internal/runtest"
)

const (
	accepted = "datapoint.revision-accepted.v1"
	moved    = "datapoint.moved.v1"
	resent   = "datapoint.resent.v1"
	deleted  = "datapoint.deleted.v1"
)

func TestIngest_RevisionsAndRepeats(t *testing.T) {
	w := newFixture(t)
	first := w.ingest(text("s", "Ana likes tea", labelled("chat"), with(`{"n":1.0}`)), "")
	if first.Status != ingest.StatusQueued || first.Unchanged != nil || first.ProjectID != 7 || first.SourceID != "s" {
		t.Errorf("receipt %+v", first)
	}
	again := w.ingest(text("s", "Ana likes tea"), "")
	if again.Status != ingest.StatusCompleted || again.Unchanged == nil || !*again.Unchanged ||
		again.IngestionID == first.IngestionID {
		t.Errorf("receipt of the repeat %+v", again)
	}
	w.ingest(text("s", "Ana likes coffee"), "")
	wantTypes(t, w.types("s"), accepted, resent, accepted)
	last := w.history("s")[2].Event.(*datapoint.RevisionAccepted)
	if last.Effect.Revision != 2 || *last.Effect.Label != "chat" || last.Metadata == nil ||
		last.Metadata.Inline != `{"n":1.0}` {
		t.Errorf("what was omitted was not kept: %+v", last)
	}
	if !last.Effect.OccurredAt.Equal(w.call.ReceivedAt) || last.CreditTenths != 10 || last.Month != "2026-05" {
		t.Errorf("time or price: %+v", last)
	}
}

func TestIngest_DefaultSourceID(t *testing.T) {
	w := newFixture(t)
	r := w.ingest(ingest.DataPoint{Content: "abc"}, "")
	if want := "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"; r.SourceID != want {
		t.Errorf("source id %s", r.SourceID)
	}
}

func TestIngest_UnknownAudience(t *testing.T) {
	w := newFixture(t)
	other, project := "other", "project"
	_, err := w.Ingest(t.Context(), w.call, ingest.DataPoint{Content: "x", Audience: &other}, "k")
	if f := wantFault(t, err, fault.CodeAudienceUnknown); f.Data["audience"] != "other" {
		t.Errorf("data %v", f.Data)
	}
	// A refused call does not use up its key.
	if r := w.ingest(ingest.DataPoint{Content: "x", Audience: &project}, "k"); r.Status != ingest.StatusQueued {
		t.Errorf("receipt %+v", r)
	}
}

func TestIngest_BigTexts(t *testing.T) {
	w := newFixture(t)
	big := strings.Repeat("\x01 tea ", 300_000) // six bytes of JSON for the first of every six
	w.ingest(text("s", big, with(`{"m":"`+strings.Repeat("x", 300<<10)+`"}`)), "")
	w.ingest(text("s", big+"!"), "")
	facts := w.history("s")
	for i, want := range []string{big, big + "!"} {
		e := facts[i].Event.(*datapoint.RevisionAccepted)
		if e.Content.Blob == nil || e.Metadata == nil || e.Metadata.Blob == nil {
			t.Fatalf("revision %d is inline", i+1)
		}
		data, err := w.log.ReadBlob(t.Context(), *e.Content.Blob)
		if err != nil || string(data) != want {
			t.Errorf("revision %d reads back %d bytes: %v", i+1, len(data), err)
		}
	}
}

func TestIngest_AuthorIsCreatedOnce(t *testing.T) {
	w := newFixture(t)
	w.ingest(text("a", "one", by("ana")), "")
	other := fixtureOver(t, w.store)
	other.ingest(text("b", "two", by("ana")), "")
	name := stream.Name(stream.Identity, stream.IdentityID(w.call.Principal.Project.Namespace, "ana"))
	facts := w.read(name)
	if len(facts) != 1 || facts[0].Event.(*identity.Appeared).Origin != identity.OriginIngest {
		t.Errorf("records: %+v", facts)
	}
}

func TestIngest_IdempotencyKeys(t *testing.T) {
	w := newFixture(t)
	first := w.ingest(text("s", "one", labelled("l")), "key")
	if first.CreditTenths != 10 {
		t.Errorf("the send is charged %d tenths", first.CreditTenths)
	}
	first.CreditTenths = 0 // who repeats the key pays nothing
	if again := w.ingest(text("s", "one", labelled("l")), "key"); again != first {
		t.Errorf("the same payload answers %+v, first %+v", again, first)
	}
	if other := fixtureOver(t, w.store).ingest(text("s", "one", labelled("l")), "key"); other != first {
		t.Errorf("another process answers %+v", other)
	}
	_, err := w.Ingest(t.Context(), w.call, text("s", "two", labelled("l")), "key")
	if f := wantFault(t, err, fault.CodeIdempotencyConflict); f.Data["ingestionId"] != first.IngestionID ||
		f.Data["idempotencyKey"] != "key" {
		t.Errorf("data %v", f.Data)
	}
	// Null metadata is not omitted metadata.
	_, err = w.Ingest(t.Context(), w.call, text("s", "one", labelled("l"), with("null")), "key")
	wantFault(t, err, fault.CodeIdempotencyConflict)
	// A batch shares the keys of the project.
	_, err = w.IngestBatch(t.Context(), w.call, []ingest.DataPoint{text("s", "one", labelled("l"))}, "key")
	wantFault(t, err, fault.CodeIdempotencyConflict)
	wantTypes(t, w.types("s"), accepted)

	// A later revision does not change the answer of the key. A deletion does.
	w.ingest(text("s", "three"), "")
	if again := w.ingest(text("s", "one", labelled("l")), "key"); again != first {
		t.Errorf("after a later revision the key returns %+v", again)
	}
	runtest.Must(t, errorOf(w.DeleteDataPoints(t.Context(), w.call, []string{"s"})))
	_, err = w.Ingest(t.Context(), w.call, text("s", "one", labelled("l")), "key")
	wantFault(t, err, fault.CodeDataPointDeleted)
}

// Many callers use one key concurrently. One send is stored, and every caller gets its receipt.
func TestIngest_ConcurrentCallersOfOneKey(t *testing.T) {
	w := newFixture(t)
	worlds := []*fixture{w, fixtureOver(t, w.store)}
	receipts := make([]ingest.Receipt, 32)
	errs := make([]error, 32)
	race(32, func(i int) {
		on := worlds[i%2]
		receipts[i], errs[i] = on.Ingest(t.Context(), on.call, text("s", "one"), "key")
	})
	var charged int64
	for i, r := range receipts {
		charged += r.CreditTenths
		receipts[i].CreditTenths = 0
	}
	for i, r := range receipts {
		if errs[i] != nil || r != receipts[0] {
			t.Errorf("caller %d: %+v, %v", i, r, errs[i])
		}
	}
	if charged != 10 {
		t.Errorf("the callers are charged %d tenths together, want those of one send", charged)
	}
	wantTypes(t, w.types("s"), accepted)
}

// Many callers send one id concurrently. Each receipt of a revision matches exactly one revision of
// the stream, and the head is the last revision.
func TestIngest_ConcurrentCallersOfOneID(t *testing.T) {
	w := newFixture(t)
	worlds := []*fixture{w, fixtureOver(t, w.store)}
	receipts := make([]ingest.Receipt, 32)
	errs := make([]error, 32)
	race(32, func(i int) {
		on := worlds[i%2]
		receipts[i], errs[i] = on.Ingest(t.Context(), on.call, text("s", string(rune('a'+i%5))), "")
	})
	sends := make(map[uuid.UUID]eventstore.DecodedEvent)
	revision := 0
	for _, f := range w.history("s") {
		send, current, _ := datapoint.SendOf(f.Event)
		if _, twice := sends[send.IngestionID]; twice {
			t.Errorf("send %s is stored twice", send.IngestionID)
		}
		sends[send.IngestionID] = f
		if f.Type == accepted {
			if revision++; current.Effect.Revision != revision {
				t.Errorf("revision %d follows %d", current.Effect.Revision, revision-1)
			}
		}
	}
	for i, r := range receipts {
		if errs[i] != nil {
			t.Errorf("caller %d: %v", i, errs[i])
			continue
		}
		if queued := r.Status == ingest.StatusQueued; queued != (sends[r.IngestionID].Type == accepted) {
			t.Errorf("caller %d got %s for a %s", i, r.Status, sends[r.IngestionID].Type)
		}
	}
	if len(sends) != 32 {
		t.Errorf("%d sends of 32 are stored", len(sends))
	}
}

func TestIngest_DeletedID(t *testing.T) {
	w := fixtureOver(t, eventstoretest.NewMemory()) // where a stream is ended without its records
	w.ingest(text("s", "one"), "")
	runtest.Must(t, errorOf(w.DeleteDataPoints(t.Context(), w.call, []string{"s"})))
	wantFault(t, errorOf(w.Ingest(t.Context(), w.call, text("s", "two"), "")), fault.CodeDataPointDeleted)
	// It is still refused after its streams are erased.
	name := stream.Name(stream.DataPoint, stream.DataPointID(w.call.Principal.Project.Namespace, "s"))
	runtest.Must(t, errorOf(w.store.Tombstone(t.Context(), name, 1)))
	wantFault(t, errorOf(w.Ingest(t.Context(), w.call, text("s", "two"), "")), fault.CodeDataPointDeleted)
	wantFault(t, errorOf(w.DeleteDataPoints(t.Context(), w.call, []string{"s"})), fault.CodeDataPointNotFound)
}

func race(n int, work func(i int)) {
	var group sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		group.Go(func() {
			<-start
			work(i)
		})
	}
	close(start)
	group.Wait()
}

// own is the call of the fixture, bound to what an identity wrote.
func (w *fixture) own(identity string) engine.Call {
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
	for _, send := range []ingest.DataPoint{
		text("s", "one", by("ben")), text("s", "one", labelled("l"), with(`{"n":1}`), by("ben"), to("team")),
		text("s", "two", by("ben"), to("board")),
	} {
		_, err := w.Ingest(t.Context(), w.own("ben"), send, "")
		if refusalOf(err) != ingest.CodeIDTaken {
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
	runtest.Must(t, errorOf(w.Ingest(t.Context(), call, text("s", "two", by("ana")), "")))
	if e := w.newest("s"); e.Content.Inline != "two" || e.Effect.Audience != team {
		t.Errorf("%+v", e)
	}
	if _, err := w.Ingest(t.Context(), w.call, text("s", "two", by("ana")), ""); err != nil || w.head("s").Audience != uuid.Nil {
		t.Errorf("a send that keeps nothing: %v, %s", err, w.head("s").Audience)
	}
	_, deleted := w.Ingest(t.Context(), w.own("eve"), text("s", "x", by("eve")), "")
	runtest.Must(t, errorOf(w.DeleteDataPoints(t.Context(), w.call, []string{"s"})))
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

func private(in *ingest.DataPoint) { in.Private = true }

// private is the private audience of an identity, which has a record.
func (w *fixture) private(name string) uuid.UUID {
	w.t.Helper()
	record, _ := w.record(name)
	if record == nil {
		w.t.Fatalf("%s has no record", name)
	}
	return stream.PrivateAudienceID(w.identityID(name), record.CreatedAt)
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
	runtest.Must(t, w.DeleteIdentity(t.Context(), w.later(1), "ana"))
	runtest.Must(t, errorOf(w.Ingest(t.Context(), w.later(2), text("n", "two", by("ana"), private), "")))
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
		in   ingest.DataPoint
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
		runtest.Must(t, errorOf(w.Ingest(t.Context(), call, send.in, "")))
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
	items := []ingest.DataPoint{
		text("a", "one", by("ana"), private), text("b", "two", by("ben"), private), text("c", "three", by("ana")),
		text("d", "four", by("ana"), private),
	}
	for range 2 {
		runtest.Must(t, errorOf(w.IngestBatch(t.Context(), w.call, items, "key")))
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
