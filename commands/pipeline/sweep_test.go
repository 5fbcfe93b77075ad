package pipeline

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/commands/erasure"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/datapoints"
)

// blobs are the blobs that are not ended.
func (w *harness) blobs() int {
	w.t.Helper()
	w.passHead()
	var n int
	runtest.Must(w.t, w.db.QueryRow(w.t.Context(), `select count(*) from datapoints.blobs`).Scan(&n))
	return n
}

// swept runs the sweep alone, and answers how many blobs it took.
func (w *harness) swept() int {
	w.t.Helper()
	w.passHead()
	var done erasure.Report
	w.finisher.erasing.Lock()
	defer w.finisher.erasing.Unlock()
	if _, err := w.finisher.sweep(w.t.Context(), true, &done); err != nil {
		w.t.Fatal(err)
	}
	return done.Blobs
}

// What no send came to refer to goes once its deadline is reached, and not a microsecond before.
func TestSweep_UnreferencedBlobsADayLater(t *testing.T) {
	t.Parallel()
	w := newIdleHarness(t)
	w.dead(w.stop(1).IngestBatch(t.Context(), w.call, []commands.DataPoint{item("a", "one")}, ""))
	w.dead(w.stop(1).Ingest(t.Context(), w.call, item("b", big), ""))
	if n := w.blobs(); n != 2 {
		t.Fatalf("%d blobs, want a stage and a text", n)
	}
	w.clock.move(blob.Keep - time.Microsecond)
	if n := w.swept(); n != 0 || w.blobs() != 2 {
		t.Errorf("%d blobs were taken before their deadline", n)
	}
	w.clock.move(time.Microsecond)
	if n := w.swept(); n != 2 || w.blobs() != 0 {
		t.Errorf("%d of 2 blobs were taken, %d are left", n, w.blobs())
	}
	if n := w.swept(); n != 0 {
		t.Errorf("%d blobs were taken again", n)
	}
}

// What is referred to stays permanently: the text of a revision, also of one that was replaced, the
// stage of a batch that is to be fanned out, and what its fan-out has written already. A send
// that lost its data point to a deletion leaves nothing.
func TestSweep_ReferencedBlobs(t *testing.T) {
	t.Parallel()
	w := newIdleHarness(t)
	for _, in := range []commands.DataPoint{item("a", big), item("a", big+"and more"), item("b", "two")} {
		w.ingest(in)
	}
	items := []commands.DataPoint{item("c", big), item("d", "four")}
	w.dead(w.stop(3).IngestBatch(t.Context(), w.call, items, "key"))
	w.dead(w.stop(1).Ingest(t.Context(), w.call, item("b", big), ""))
	w.remove("b")
	before := w.blobs()
	w.clock.move(30 * blob.Keep)
	if n := w.swept(); n != 1 || w.blobs() != before-1 {
		t.Errorf("%d blobs were taken, want that of the send that was lost", n)
	}
	if done, err := w.finisher.EraseNow(t.Context()); err != nil || done.Deletions != 1 {
		t.Fatalf("%+v, %v", done, err)
	}
	// The batch that was completed a month later has its text.
	id := stream.DataPointID(w.call.Principal.Project.Namespace, "c")
	last, ok, err := w.log.Last(t.Context(), stream.Name(stream.DataPoint, id))
	if err != nil || !ok {
		t.Fatalf("the batch was not completed: %v", err)
	}
	var read int
	for _, name := range []string{"a", "c"} {
		facts, err := w.log.ReadFrom(t.Context(), stream.Name(stream.DataPoint,
			stream.DataPointID(w.call.Principal.Project.Namespace, name)), 0)
		runtest.Must(t, err)
		for _, f := range facts {
			text := textOf(f)
			if text == nil || text.Blob == nil {
				continue
			}
			if _, err := w.log.ReadBlob(t.Context(), *text.Blob); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			read++
		}
	}
	if read != 3 || last.Revision != 0 {
		t.Errorf("%d texts are in blobs, want 3", read)
	}
	if n := w.swept(); n != 0 || w.blobs() != 3 {
		t.Errorf("%d blobs were taken, %d are left, want 3", n, w.blobs())
	}
}

// A batch whose stage is lost stops as internal: polls say so, its key answers its own receipt, a
// retry tries again, and its deletion settles the project.
func TestBatch_StageIsLost(t *testing.T) {
	w := newIdleHarness(t)
	items := []commands.DataPoint{item("a", "one"), item("b", "two")}
	w.dead(w.stop(2).IngestBatch(t.Context(), w.call, items, "key"))
	id := stream.IngestionID(w.call.Principal.Project.Namespace, "key")
	w.loseStage(id)
	finish := func() {
		t.Helper()
		w.passHead()
		w.ok(w.finisher.EraseNow(t.Context()))
		w.passHead()
	}
	status := func() datapoints.Status {
		t.Helper()
		s, err := w.queries.Status(t.Context(), w.call.Principal.Project, id)
		runtest.Must(t, err)
		return s
	}
	if s := status(); s.Status != datapoints.StatusProcessing {
		t.Fatalf("before: %+v", s)
	}
	for try := range 2 {
		finish()
		if s := status(); s.Status != datapoints.StatusFailed || s.Failure == nil ||
			s.Failure.Code != ingestion.Internal || !s.Blocked {
			t.Fatalf("try %d: %+v", try, s)
		}
		if try == 1 {
			break
		}
		r, err := w.write.IngestBatch(t.Context(), w.call, items, "key")
		if err != nil || r.IngestionID != id || r.Status != commands.StatusQueued || len(r.Items) != 2 {
			t.Fatalf("its key answers %+v, %v", r, err)
		}
		runtest.Must(t, w.write.Retry(t.Context(), w.call, id))
		if s := status(); s.Status != datapoints.StatusProcessing {
			t.Fatalf("put back: %+v", s)
		}
		var f *fault.Error
		if err := w.write.Retry(t.Context(), w.call, id); !errors.As(err, &f) || f.Code != fault.CodeIngestionNotStopped {
			t.Fatalf("put back twice: %v", err)
		}
	}
	for range 2 {
		runtest.Must(t, w.write.DeleteSend(t.Context(), w.call, id))
	}
	finish()
	if s := status(); s.Status != datapoints.StatusCompleted || !s.Settled {
		t.Errorf("deleted: %+v", s)
	}
	// It is completed, so there is nothing to retry, and nothing is said of it any more.
	name := stream.Name(stream.Ingestion, id)
	events := func() int {
		t.Helper()
		facts, err := w.log.ReadFrom(t.Context(), name, 0)
		runtest.Must(t, err)
		return len(facts)
	}
	said := events()
	var f *fault.Error
	if err := w.write.Retry(t.Context(), w.call, id); !errors.As(err, &f) || f.Code != fault.CodeIngestionNotStopped {
		t.Errorf("put back once it was deleted: %v", err)
	}
	if finish(); events() != said {
		t.Errorf("%d events are in the send, before the retry %d", events(), said)
	}
}

// A retry that crosses the deletion of a batch that was given up brings nothing back, though its
// stage can be read again.
func TestRetry_CrossesADeletion(t *testing.T) {
	w := newIdleHarness(t)
	w.dead(w.stop(2).IngestBatch(t.Context(), w.call, []commands.DataPoint{item("a", "one")}, "key"))
	id := stream.IngestionID(w.call.Principal.Project.Namespace, "key")
	name := stream.Name(stream.Ingestion, id)
	say := func(at eventstore.Revision, e event.Event) {
		t.Helper()
		w.ok(w.log.Append(t.Context(), name, at, event.NewMeta("test", time.Now()), e))
	}
	project := w.call.Principal.Project.ID
	say(0, ingestion.Failed{ProjectID: project, Code: ingestion.Internal, FailedAt: at})
	w.passHead()
	runtest.Must(t, w.write.DeleteSend(t.Context(), w.call, id))
	say(1, ingestion.Retried{ProjectID: project, Round: 1, RetriedAt: at}) // decided before the deletion, stored after it
	w.clock.move(blob.Keep + time.Second)
	for range 2 {
		w.passHead()
		w.ok(w.finisher.EraseNow(t.Context()))
	}
	point := stream.Name(stream.DataPoint, stream.DataPointID(w.call.Principal.Project.Namespace, "a"))
	if _, ok, err := w.log.Last(t.Context(), point); ok || err != nil {
		t.Errorf("the data point is there: %t, %v", ok, err)
	}
	w.passHead()
	open, err := w.queries.Open(t.Context())
	if err != nil || open.FanOuts+open.Deletions+open.DataPoints != 0 || w.blobs() != 0 {
		t.Errorf("%d blobs are left, and %+v, %v", w.blobs(), open, err)
	}
}

// Facts that are too many for one event, or for one append, are kept all the same, also where a crash came between.
func TestRetainedFacts_ManySends(t *testing.T) {
	t.Parallel()
	w := newIdleHarness(t)
	const sends = 2300
	for i := range sends {
		if _, err := w.write.Ingest(t.Context(), w.call, item("a", "one"), ""); err != nil {
			t.Fatalf("send %d: %v", i, err)
		}
	}
	w.remove("a")
	w.passHead()
	rows := func() (n, outdated int) {
		t.Helper()
		w.passHead()
		runtest.Must(t, w.db.QueryRow(t.Context(), `select
			count(*) filter (where i.deleted_at is not null or i.outcome = 'unchanged' and not exists (select from datapoints.data_points d where d.id = i.data_point)),
			count(*) filter (where outdated) from datapoints.items i`).Scan(&n, &outdated))
		return n, outdated
	}
	deleted, outdated := rows()
	// The first append holds two parts of three.
	v := &victim{Store: w.store, left: 1}
	_, dies := w.services(v)
	if _, err := dies.EraseNow(t.Context()); err == nil {
		t.Fatal("the fan-out completed after its store died")
	}
	w.passHead()
	for range 2 {
		w.ok(w.finisher.EraseNow(t.Context()))
		w.clock.move(time.Hour)
	}
	if n, s := rows(); n != deleted || s != outdated || n != sends {
		t.Errorf("%d items are deleted, %d outdated; before the cleaning %d and %d", n, s, deleted, outdated)
	}
	if open, err := w.queries.Open(t.Context()); err != nil || open.Deletions != 0 {
		t.Errorf("left %+v, %v", open, err)
	}
	page, err := w.store.ReadAll(t.Context(), 0, 1<<20)
	runtest.Must(t, err)
	kept := map[uuid.UUID]bool{}
	for _, r := range page {
		if r.Type == "deletion.facts-kept.v1" {
			for _, id := range factsIn(t, w, r) {
				kept[id] = true
			}
		}
	}
	if len(kept) != sends {
		t.Errorf("facts of %d sends are kept, want %d", len(kept), sends)
	}
}

func textOf(f eventstore.DecodedEvent) *datapoint.Text {
	if e, ok := f.Event.(*datapoint.RevisionAccepted); ok {
		return &e.Content
	}
	return nil
}

// factsIn are the sends whose facts an event keeps.
func factsIn(t *testing.T, w *harness, r eventstore.Recorded) (sends []uuid.UUID) {
	t.Helper()
	e, err := w.log.Codec.Decode(r)
	runtest.Must(t, err)
	for _, f := range e.(*deletion.FactsKept).Facts {
		sends = append(sends, f.IngestionID)
	}
	return sends
}
