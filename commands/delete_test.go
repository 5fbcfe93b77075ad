package commands_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/commands/ingest"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/runtest"
)

func TestDeleteDataPoints_AllOrNone(t *testing.T) {
	w := newFixture(t)
	for _, id := range []string{"a", "b", "c"} {
		w.ingest(text(id, "text of "+id), "")
	}
	_, err := w.DeleteDataPoints(t.Context(), w.call, []string{"a", "x", "b", "y"})
	f := wantFault(t, err, fault.CodeDataPointNotFound)
	if ids, _ := f.Data["ids"].([]string); !slices.Equal(ids, []string{"x", "y"}) {
		t.Errorf("data %v", f.Data)
	}
	wantTypes(t, w.types("a"), accepted)
	r, err := w.DeleteDataPoints(t.Context(), w.call, []string{"b", "a"})
	if err != nil || !slices.Equal(r.IDs, []string{"b", "a"}) {
		t.Fatalf("receipt %+v, %v", r, err)
	}
	wantTypes(t, w.types("a"), accepted, deleted)
	wantTypes(t, w.types("b"), accepted, deleted)
	wantTypes(t, w.types("c"), accepted)
	wantFault(t, errorOf(w.DeleteDataPoints(t.Context(), w.call, []string{"a"})), fault.CodeDataPointNotFound)
}

func TestDelete_OtherProject(t *testing.T) {
	w := newFixture(t)
	mine := w.ingest(text("a", "text"), "")
	neighbour := w.call
	neighbour.Principal.Project.ID, neighbour.Principal.Project.Namespace = uuid.New(), uuid.New()
	wantFault(t, errorOf(w.DeleteDataPoints(t.Context(), neighbour, []string{"a"})), fault.CodeDataPointNotFound)
	wantFault(t, w.DeleteSend(t.Context(), neighbour, mine.IngestionID), fault.CodeNotFound)
	wantFault(t, w.Retry(t.Context(), neighbour, mine.IngestionID), fault.CodeNotFound)
	wantTypes(t, w.types("a"), accepted)
}

func TestDeleteSend(t *testing.T) {
	w := newFixture(t)
	batch := w.batch([]ingest.DataPoint{text("a", "one"), text("b", "two"), text("c", "three")}, "")
	w.ingest(text("b", "two, revised"), "")
	runtest.Must(t, w.DeleteSend(t.Context(), w.call, batch.IngestionID))
	wantTypes(t, w.types("a"), accepted, deleted)
	wantTypes(t, w.types("b"), accepted, accepted) // revised since: not deleted
	wantTypes(t, w.types("c"), accepted, deleted)
	if err := w.DeleteSend(t.Context(), w.call, batch.IngestionID); err != nil {
		t.Errorf("a second deletion: %v", err)
	}
	wantTypes(t, w.types("b"), accepted, accepted)
	wantFault(t, w.DeleteSend(t.Context(), w.call, uuid.New()), fault.CodeNotFound)
}

func TestDeleteDataPoints_CrashAfterEachAppend(t *testing.T) {
	for survived := range int64(5) {
		t.Run(fmt.Sprintf("after %d appends", survived), func(t *testing.T) {
			w := newFixture(t)
			w.ingest(text("a", "one"), "")
			w.ingest(text("b", "two"), "")
			victim := w.dying(t, survived)
			_, err := victim.DeleteDataPoints(t.Context(), victim.call, []string{"a", "b"})
			if survived < 4 && err == nil { // commit, two data points, the end
				t.Fatalf("answered after %d appends", survived)
			}
			id := w.committedDeletion()
			if id == uuid.Nil {
				wantTypes(t, w.types("a"), accepted)
				wantTypes(t, w.types("b"), accepted)
				return
			}
			w.ingestOrDeleted(text("a", "later"))
			for range 2 {
				runtest.Must(t, errorOf(ingest.ResumeDeletion(t.Context(), w.log, id, w.call.ReceivedAt)))
			}
			for _, s := range []string{"a", "b"} {
				if types := w.types(s); types[len(types)-1] != deleted {
					t.Errorf("%s ends with %v", s, types)
				}
			}
		})
	}
}

// committedDeletion returns the id of the only deletion of the log, uuid.Nil if none is committed.
func (w *fixture) committedDeletion() uuid.UUID {
	w.t.Helper()
	var id uuid.UUID
	runtest.Must(w.t, logDirectory{w.log}.fold(w.t.Context(), func(f eventstore.DecodedEvent) {
		if id == uuid.Nil && stream.Category(f.Stream) == stream.Deletion {
			id = stream.Owner(f.Stream)
		}
	}))
	return id
}

func (w *fixture) ingestOrDeleted(in ingest.DataPoint) {
	w.t.Helper()
	var f *fault.Error
	if _, err := w.Ingest(w.t.Context(), w.call, in, ""); err != nil &&
		!(errors.As(err, &f) && f.Code == fault.CodeDataPointDeleted) {
		w.t.Fatal(err)
	}
}

func TestErasure_RetainsFactsAndErasesText(t *testing.T) {
	w := newRegistered(t)
	send := w.ingest(text("a", "one"), "")
	w.ingest(text("a", "two"), "")
	r, err := w.DeleteDataPoints(t.Context(), w.call, []string{"a"})
	runtest.Must(t, err)
	dataPoint := stream.DataPointID(w.call.Principal.Project.Namespace, "a")
	for range 2 {
		runtest.Must(t, w.eraser().RetainFacts(t.Context(), r.OperationID, []uuid.UUID{dataPoint}))
	}
	for range 2 {
		w.clean(r.OperationID)
	}
	_, err = w.store.Read(t.Context(), stream.Name(stream.DataPoint, dataPoint), 0, eventstore.Forwards, 1)
	if !errors.Is(err, eventstore.ErrDeleted) {
		t.Errorf("the stream of the data point reads: %v", err)
	}
	facts, err := w.log.ReadFrom(t.Context(), stream.Name(stream.Deletion, r.OperationID), 0)
	runtest.Must(t, err)
	if len(facts) != 2 || facts[1].Type != "deletion.cleaned.v1" {
		t.Fatalf("the deletion holds %d events", len(facts))
	}
	kept := facts[0].Event.(*deletion.FactsKept)
	if len(kept.Facts) != 2 || kept.Facts[0].IngestionID != send.IngestionID ||
		kept.Facts[0].Outcome != ingestion.Created ||
		kept.Facts[1].Revision != 2 {
		t.Errorf("facts %+v", kept.Facts)
	}
}

// clean erases the text of a deletion, and records that.
func (w *fixture) clean(id uuid.UUID) {
	w.t.Helper()
	e, ok, err := w.eraser().Tombstone(w.t.Context(), id)
	if err == nil && ok {
		err = w.eraser().RecordCleaned(w.t.Context(), e, w.call.ReceivedAt)
	}
	runtest.Must(w.t, err)
}

func TestRetry(t *testing.T) {
	w := newFixture(t)
	send := w.ingest(text("a", "one"), "")
	wantFault(t, w.Retry(t.Context(), w.call, uuid.New()), fault.CodeNotFound)
	wantFault(t, w.Retry(t.Context(), w.call, send.IngestionID), fault.CodeIngestionNotStopped)
	name := stream.Name(stream.Ingestion, send.IngestionID)
	stop := func(at eventstore.Revision) {
		t.Helper()
		failed := ingestion.Failed{ProjectID: w.call.Principal.Project.ID, Code: ingestion.Internal}
		meta := w.history("a")[0].Details
		meta.CommandID = uuid.New()
		runtest.Must(t, errorOf(w.log.Append(t.Context(), name, at, meta, failed)))
	}
	stop(eventstore.NoStream)
	errs := make([]error, 8)
	race(8, func(i int) { errs[i] = w.Retry(t.Context(), w.call, send.IngestionID) })
	granted := 0
	for _, err := range errs {
		if err == nil {
			granted++
			continue
		}
		wantFault(t, err, fault.CodeIngestionNotStopped)
	}
	if granted != 1 {
		t.Errorf("%d of 8 retries were granted", granted)
	}
	stop(1)
	runtest.Must(t, w.Retry(t.Context(), w.call, send.IngestionID))
	facts, err := w.log.ReadFrom(t.Context(), name, 3)
	if err != nil || facts[0].Event.(*ingestion.Retried).Round != 2 {
		t.Errorf("second retry: %+v, %v", facts, err)
	} else if by := facts[0].Details.Principal; by != w.call.Principal.Name() {
		t.Errorf("second retry is by %q, want the key %q that asked for it", by, w.call.Principal.Name())
	}
	stop(3)
	// A newer send replaced it: its deletion has nothing to delete, and records nothing.
	w.ingest(text("a", "two"), "")
	runtest.Must(t, w.DeleteSend(t.Context(), w.call, send.IngestionID))
	all, err := w.store.ReadAll(t.Context(), 0, 1000)
	runtest.Must(t, err)
	for _, r := range all {
		if stream.Category(r.Stream) == stream.Deletion {
			t.Errorf("%s is in %s", r.Type, r.Stream)
		}
	}
	runtest.Must(t, errorOf(w.DeleteDataPoints(t.Context(), w.call, []string{"a"})))
	wantFault(t, w.Retry(t.Context(), w.call, send.IngestionID), fault.CodeDataPointDeleted)
}

// A send that was deleted as a whole is completed, even if a later send kept one of its data points
// alive.
func TestRetry_DeletedSend(t *testing.T) {
	w := newFixture(t)
	send, err := w.IngestBatch(t.Context(), w.call, []ingest.DataPoint{text("a", "one"), text("b", "one")}, "")
	runtest.Must(t, err)
	w.ingest(text("a", "two"), "")
	name := stream.Name(stream.Ingestion, send.IngestionID)
	meta := event.NewMeta("test", time.Now())
	failed := ingestion.Failed{ProjectID: w.call.Principal.Project.ID, Code: ingestion.Internal}
	runtest.Must(t, errorOf(w.log.Append(t.Context(), name, 1, meta, failed)))
	runtest.Must(t, w.DeleteSend(t.Context(), w.call, send.IngestionID))
	wantFault(t, w.Retry(t.Context(), w.call, send.IngestionID), fault.CodeIngestionNotStopped)
	if last, _, err := w.log.Last(t.Context(), name); err != nil || last.Revision != 2 {
		t.Errorf("the deletion recorded something: %+v, %v", last, err)
	}
}

// A crash after the fan-out leaves the stage. The first deletion of one of its data points erases
// it.
func TestErasure_StageLeftByACrash(t *testing.T) {
	w := newRegistered(t)
	victim := w.dying(t, 5) // stage, commit, two items, outcomes: all but the stage's end
	batch, err := victim.IngestBatch(t.Context(), victim.call, []ingest.DataPoint{text("a", "one"), text("b", "two")},
		"")
	runtest.Must(t, err)
	facts := w.read(stream.Name(stream.Ingestion, batch.IngestionID))
	stage := facts[0].Event.(*ingestion.Accepted).Stage
	if _, err := w.log.ReadBlob(t.Context(), stage); err != nil {
		t.Fatalf("the stage is gone before the deletion: %v", err)
	}
	r, err := w.DeleteDataPoints(t.Context(), w.call, []string{"a"})
	runtest.Must(t, err)
	dataPoint := stream.DataPointID(w.call.Principal.Project.Namespace, "a")
	runtest.Must(t, w.eraser().RetainFacts(t.Context(), r.OperationID, []uuid.UUID{dataPoint}))
	w.clean(r.OperationID)
	var gone *eventstore.BlobError
	if _, err := w.log.ReadBlob(t.Context(), stage); !errors.As(err, &gone) || !gone.Missing {
		t.Errorf("the stage reads: %v", err)
	}
}

// late is a Waiter for projections that have applied events up to a position only.
type late struct{ applied eventstore.Position }

func (l *late) Wait(_ context.Context, position eventstore.Position, _ ...string) error {
	if position > l.applied {
		return errors.New("not applied in time")
	}
	return nil
}

// A caller who repeats a removal that was stored and is not visible yet must not read that it is done.
func TestRemovals_RepeatedBeforeTheyAreVisible(t *testing.T) {
	w, _ := withWebhooks(t)
	webhook := w.createWebhook(anyText)
	key, err := w.CreateKey(t.Context(), w.call, "default", "app")
	runtest.Must(t, err)
	w.ingest(text("a", "one"), "")
	w.ingest(text("b", "two"), "")
	w.ingest(text("c", "three"), "")
	send := w.ingest(text("d", "four"), "")
	w.put(fixedOf("leads"))
	w.putIdentity(w.call, "ana", nil)
	head, err := w.store.Head(t.Context())
	runtest.Must(t, err)
	for _, c := range []struct {
		name   string
		remove func() error
		// done is the code of a repetition, "" if that succeeds.
		done string
	}{
		{"one data point", func() error {
			_, err := w.DeleteDataPoints(t.Context(), w.call, []string{"a"})
			return err
		}, fault.CodeDataPointNotFound},
		{"data points", func() error {
			_, err := w.DeleteDataPoints(t.Context(), w.call, []string{"b", "c"})
			return err
		}, fault.CodeDataPointNotFound},
		{"a send", func() error { return w.DeleteSend(t.Context(), w.call, send.IngestionID) }, ""},
		{"an audience", func() error { return w.DeleteAudience(t.Context(), w.call, "leads") }, fault.CodeNotFound},
		{"an identity", func() error { return w.DeleteIdentity(t.Context(), w.call, "ana") }, fault.CodeNotFound},
		{"a key", func() error { return w.RevokeKey(t.Context(), w.call, "default", key.ID) }, fault.CodeNotFound},
		{"a webhook", func() error { return w.DeleteWebhook(t.Context(), w.call, webhook.ID) }, fault.CodeNotFound},
	} {
		t.Run(c.name, func(t *testing.T) {
			w.configure(func(config *commands.Config) { config.Waiter = &late{applied: head} })
			for range 3 {
				f := wantFault(t, c.remove(), fault.CodeServiceUnavailable)
				if f.Data["committed"] != true {
					t.Errorf("data %v", f.Data)
				}
			}
			w.configure(func(config *commands.Config) { config.Waiter = noWait{} })
			if err := c.remove(); c.done != "" {
				wantFault(t, err, c.done)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}
