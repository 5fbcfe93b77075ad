package commands_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
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
	if first.Status != commands.StatusQueued || first.Unchanged != nil || first.ProjectID != 7 || first.SourceID != "s" {
		t.Errorf("receipt %+v", first)
	}
	again := w.ingest(text("s", "Ana likes tea"), "")
	if again.Status != commands.StatusCompleted || again.Unchanged == nil || !*again.Unchanged ||
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
	r := w.ingest(commands.DataPoint{Content: "abc"}, "")
	if want := "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"; r.SourceID != want {
		t.Errorf("source id %s", r.SourceID)
	}
}

func TestIngest_UnknownAudience(t *testing.T) {
	w := newFixture(t)
	other, project := "other", "project"
	_, err := w.Ingest(t.Context(), w.call, commands.DataPoint{Content: "x", Audience: &other}, "k")
	if f := wantFault(t, err, fault.CodeAudienceUnknown); f.Data["audience"] != "other" {
		t.Errorf("data %v", f.Data)
	}
	// A refused call does not use up its key.
	if r := w.ingest(commands.DataPoint{Content: "x", Audience: &project}, "k"); r.Status != commands.StatusQueued {
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
	facts, err := w.log.ReadFrom(t.Context(), name, 0)
	if err != nil {
		t.Fatal(err)
	}
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
	_, err = w.IngestBatch(t.Context(), w.call, []commands.DataPoint{text("s", "one", labelled("l"))}, "key")
	wantFault(t, err, fault.CodeIdempotencyConflict)
	wantTypes(t, w.types("s"), accepted)

	// A later revision does not change the answer of the key. A deletion does.
	w.ingest(text("s", "three"), "")
	if again := w.ingest(text("s", "one", labelled("l")), "key"); again != first {
		t.Errorf("after a later revision the key returns %+v", again)
	}
	if _, err := w.DeleteDataPoints(t.Context(), w.call, []string{"s"}); err != nil {
		t.Fatal(err)
	}
	_, err = w.Ingest(t.Context(), w.call, text("s", "one", labelled("l")), "key")
	wantFault(t, err, fault.CodeDataPointDeleted)
}

// Many callers use one key concurrently. One send is stored, and every caller gets its receipt.
func TestIngest_ConcurrentCallersOfOneKey(t *testing.T) {
	w := newFixture(t)
	worlds := []*fixture{w, fixtureOver(t, w.store)}
	receipts := make([]commands.Receipt, 32)
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
	receipts := make([]commands.Receipt, 32)
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
		if queued := r.Status == commands.StatusQueued; queued != (sends[r.IngestionID].Type == accepted) {
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
	if _, err := w.DeleteDataPoints(t.Context(), w.call, []string{"s"}); err != nil {
		t.Fatal(err)
	}
	_, err := w.Ingest(t.Context(), w.call, text("s", "two"), "")
	wantFault(t, err, fault.CodeDataPointDeleted)
	// It is still refused after its streams are erased.
	name := stream.Name(stream.DataPoint, stream.DataPointID(w.call.Principal.Project.Namespace, "s"))
	if _, err := w.store.Tombstone(t.Context(), name, 1); err != nil {
		t.Fatal(err)
	}
	_, err = w.Ingest(t.Context(), w.call, text("s", "two"), "")
	wantFault(t, err, fault.CodeDataPointDeleted)
	_, err = w.DeleteDataPoints(t.Context(), w.call, []string{"s"})
	wantFault(t, err, fault.CodeDataPointNotFound)
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
