package pipeline

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/commands/erasure"
	"github.com/annals-project/annals/commands/ingest"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
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
	w.ok(w.finisher.sweep(w.t.Context(), true, &done))
	return done.Blobs
}

// What no send came to refer to goes once its deadline is reached, and not a microsecond before.
func TestSweep_UnreferencedBlobsADayLater(t *testing.T) {
	t.Parallel()
	w := newIdleHarness(t)
	w.dead(w.stop(1).IngestBatch(t.Context(), w.call, []ingest.DataPoint{item("a", "one")}, ""))
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
	for _, in := range []ingest.DataPoint{item("a", big), item("a", big+"and more"), item("b", "two")} {
		w.ingest(in)
	}
	items := []ingest.DataPoint{item("c", big), item("d", "four")}
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
	id := w.pointID("c")
	last, ok, err := w.log.Last(t.Context(), stream.Name(stream.DataPoint, id))
	if err != nil || !ok {
		t.Fatalf("the batch was not completed: %v", err)
	}
	var read int
	for _, name := range []string{"a", "c"} {
		facts, err := w.log.ReadFrom(t.Context(), w.pointName(name), 0)
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
	items := []ingest.DataPoint{item("a", "one"), item("b", "two")}
	w.dead(w.stop(2).IngestBatch(t.Context(), w.call, items, "key"))
	id := w.sendID("key")
	w.loseStage(id)
	finish := func() {
		t.Helper()
		w.passHead()
		w.ok(w.finisher.EraseNow(t.Context()))
		w.passHead()
	}
	status := func() datapoints.Status {
		t.Helper()
		return w.sendStatus(id)
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
		if err != nil || r.IngestionID != id || r.Status != ingest.StatusQueued || len(r.Items) != 2 {
			t.Fatalf("its key answers %+v, %v", r, err)
		}
		runtest.Must(t, w.write.Retry(t.Context(), w.call, id))
		if s := status(); s.Status != datapoints.StatusProcessing {
			t.Fatalf("put back: %+v", s)
		}
		if err := w.write.Retry(t.Context(), w.call, id); !isFault(err, fault.CodeIngestionNotStopped) {
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
	if err := w.write.Retry(t.Context(), w.call, id); !isFault(err, fault.CodeIngestionNotStopped) {
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
	w.dead(w.stop(2).IngestBatch(t.Context(), w.call, []ingest.DataPoint{item("a", "one")}, "key"))
	id := w.sendID("key")
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
	point := w.pointName("a")
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
	_, dies := w.services((&victim{left: 1}).over(w.store))
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

// story is a random history of a project whose texts lie in blobs, written by processes that die.
type story struct {
	*scene
	rand  *rand.Rand
	sends []uuid.UUID
	swept int
}

// alive is a process: mostly one that dies at one of its next writes.
func (s *story) alive() *commands.Service {
	s.call.ReceivedAt = s.clock.now()
	if s.rand.IntN(3) == 0 {
		return s.write
	}
	service, _ := s.services(s.mortal(5))
	return service
}

// mortal is a store that dies at one of its next writes.
func (s *story) mortal(writes int) eventstore.Store {
	return (&victim{left: s.rand.IntN(writes), stored: s.rand.IntN(2) == 0}).over(s.store)
}

// done looks at how an operation ended: a refusal is an answer, and so is death.
func (s *story) done(err error) {
	s.t.Helper()
	if _, refused := errors.AsType[*fault.Error](err); err != nil && !refused && !errors.Is(err, errDied) {
		s.t.Fatal(err)
	}
}

func (s *story) name() string { return fmt.Sprint("id ", s.rand.IntN(4)) }

func (s *story) text() ingest.DataPoint {
	content := fmt.Sprint("text ", s.rand.IntN(3))
	if s.rand.IntN(3) > 0 {
		content = big + content
	}
	return item(s.name(), content)
}

func (s *story) key() string {
	if s.rand.IntN(2) == 0 {
		return ""
	}
	return fmt.Sprint("key ", s.rand.IntN(3))
}

func (s *story) single() {
	r, err := s.alive().Ingest(s.t.Context(), s.call, s.text(), s.key())
	s.sends = append(s.sends, r.IngestionID)
	s.done(err)
}

func (s *story) batch() {
	var items []ingest.DataPoint
	seen := map[string]bool{}
	for range 1 + s.rand.IntN(3) {
		if in := s.text(); !seen[*in.ID] {
			seen[*in.ID] = true
			items = append(items, in)
		}
	}
	r, err := s.alive().IngestBatch(s.t.Context(), s.call, items, s.key())
	s.sends = append(s.sends, r.IngestionID)
	s.done(err)
}

func (s *story) deleteOne() {
	_, err := s.alive().DeleteDataPoints(s.t.Context(), s.call, []string{s.name()})
	s.done(err)
}

func (s *story) deleteSend() {
	if len(s.sends) > 0 {
		s.done(s.alive().DeleteSend(s.t.Context(), s.call, s.sends[s.rand.IntN(len(s.sends))]))
	}
}

// derive stores memories in a blob; now and then the worker dies before it refers to it.
func (s *story) derive() {
	point := stream.DataPointID(s.call.Principal.Project.Namespace, s.name())
	project, meta := s.call.Principal.Project.ID, event.NewMeta("test", time.Now())
	ref, err := s.log.WriteBlob(s.t.Context(), point, meta.CommandID, project, s.clock.now().Add(blob.Keep), meta,
		[]byte("[]"))
	s.must(err)
	name := stream.Name(stream.Memory, point)
	last, ok, err := s.log.Last(s.t.Context(), name)
	if errors.Is(err, eventstore.ErrDeleted) || s.rand.IntN(3) == 0 {
		return
	}
	s.must(err)
	expected := eventstore.NoStream
	if ok {
		expected = last.Revision
	}
	_, err = s.log.Append(s.t.Context(), name, expected, meta, memory.Derived{ProjectID: project, Revision: 1, Blob: &ref})
	s.must(err)
}

func (s *story) wait() { s.clock.move(time.Duration(s.rand.Int64N(int64(3 * blob.Keep / 2)))) }

// finish lets the finisher do all that it can, or lets it die in the middle.
func (s *story) finish() {
	s.passHead()
	if s.rand.IntN(3) == 0 {
		_, finisher := s.services(s.mortal(6))
		finisher.Now, finisher.Eraser.Now = s.clock.now, s.clock.now
		done, err := finisher.EraseNow(s.t.Context())
		s.swept += done.Blobs
		if err != nil && !errors.Is(err, errDied) {
			s.t.Fatal(err)
		}
		return
	}
	done, err := s.finisher.EraseNow(s.t.Context())
	s.swept += done.Blobs
	s.must(err)
}

// sweepOnly sweeps without completing anything before.
func (s *story) sweepOnly() { s.swept += s.harness.swept() }

// race lets a sender and the finisher run at the same time.
func (s *story) race() {
	s.passHead()
	finished := make(chan error, 1)
	go func() {
		done, err := s.finisher.EraseNow(s.t.Context())
		s.swept += done.Blobs
		finished <- err
	}()
	if s.rand.IntN(2) == 0 {
		s.batch()
	} else {
		s.single()
	}
	s.must(<-finished)
}

// whatIsReferredTo are the blobs that an event of a stream that stands refers to, and the stages
// of batches that are to be fanned out.
func (s *story) whatIsReferredTo() []blob.Ref {
	s.t.Helper()
	names := map[string]bool{}
	for _, r := range eventstoretest.All(s.t, s.store, s.start) {
		names[r.Stream] = !r.System()
	}
	var refs []blob.Ref
	for name, ours := range names {
		family := stream.Category(name)
		if !ours || family == stream.Blob {
			continue
		}
		facts, err := s.log.ReadFrom(s.t.Context(), name, 0)
		if errors.Is(err, eventstore.ErrDeleted) {
			continue
		}
		s.must(err)
		open := false
		for _, f := range facts {
			switch e := f.Event.(type) {
			case *datapoint.RevisionAccepted:
				if e.Content.Blob != nil {
					refs = append(refs, *e.Content.Blob)
				}
			case *memory.Derived:
				refs = append(refs, *e.Blob)
			case *ingestion.Accepted:
				open = true
			case *ingestion.FannedOut:
				open = false
			}
		}
		if open {
			refs = append(refs, facts[0].Event.(*ingestion.Accepted).Stage)
		}
	}
	return refs
}

// Whatever sends, batches, deletions and derivations do and wherever they die, no blob is taken
// that a stream refers to which stands, nor the stage of a batch that is still to be fanned out;
// and once all is finished, none is left that nothing refers to.
func TestSweep_RandomOperations(t *testing.T) {
	t.Parallel()
	runs := 8
	if testing.Short() {
		runs = 3
	}
	if text := os.Getenv("ANNALS_SWEEPS"); text != "" {
		var err error
		if runs, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	w := newIdleHarness(t)
	swept, referred := 0, 0
	for seed := range runs {
		rng := rand.New(rand.NewPCG(uint64(seed), 7)) //nolint:gosec // a fixed seed repeats the walk
		s := &story{scene: w.begin(operation{}), rand: rng}
		steps := []func(){
			s.single, s.single, s.batch, s.batch, s.batch, s.deleteOne, s.deleteSend, s.derive, s.derive,
			s.wait, s.wait, s.race, s.race, s.finish, s.sweepOnly, s.sweepOnly,
		}
		held := func(when string) {
			t.Helper()
			refs := s.whatIsReferredTo()
			referred += len(refs)
			for _, ref := range refs {
				if _, err := w.log.ReadBlob(t.Context(), ref); err != nil {
					t.Fatalf("history %d, %s: %s is referred to: %v", seed, when, ref.Stream, err)
				}
			}
		}
		for n := range 14 {
			steps[s.rand.IntN(len(steps))]()
			held(fmt.Sprint("step ", n))
		}
		w.clock.move(2 * blob.Keep)
		for range 2 {
			s.finish()
		}
		_, err := w.finisher.EraseNow(t.Context())
		s.must(err)
		held("in the end")
		used := map[string]bool{}
		for _, ref := range s.whatIsReferredTo() {
			used[ref.Stream] = true
		}
		w.passHead()
		var left int
		err = w.db.QueryRow(t.Context(), `select count(*) from datapoints.blobs where project_id = $1`,
			w.call.Principal.Project.ID).Scan(&left)
		if err != nil || left != len(used) {
			t.Fatalf("history %d: %d blobs are left, %d are referred to, %v", seed, left, len(used), err)
		}
		swept += s.swept
	}
	if swept == 0 || referred == 0 {
		t.Errorf("%d blobs were swept, %d references held", swept, referred)
	}
	t.Logf("%d histories: %d blobs were swept, %d references held", runs, swept, referred)
}
