package commands_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/commands/ingest"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/runtest"
)

func (w *fixture) batch(items []ingest.DataPoint, key string) ingest.BatchReceipt {
	w.t.Helper()
	r, err := w.IngestBatch(w.t.Context(), w.call, items, key)
	runtest.Must(w.t, err)
	return r
}

func TestIngestBatch(t *testing.T) {
	w := newFixture(t)
	w.ingest(text("b", "two"), "")
	r := w.batch([]ingest.DataPoint{text("a", "one", by("ana")), text("b", "two"), text("c", "three")}, "key")
	if r.Status != ingest.StatusQueued || r.Unchanged != nil || len(r.Items) != 3 {
		t.Errorf("receipt %+v", r)
	}
	for i, want := range []string{ingest.StatusQueued, ingest.StatusCompleted, ingest.StatusQueued} {
		if item := r.Items[i]; item.Ordinal != i || item.Status != want ||
			(item.Unchanged != nil) != (want == ingest.StatusCompleted) {
			t.Errorf("item %d: %+v", i, item)
		}
	}
	wantTypes(t, w.types("b"), accepted, resent)
	send, _, _ := datapoint.SendOf(w.history("c")[0].Event)
	if send.IngestionID != r.IngestionID || send.Ordinal != 2 || send.Items != 3 || send.Commit == 0 {
		t.Errorf("item %+v", send)
	}
	again := w.batch([]ingest.DataPoint{text("a", "one", by("ana")), text("b", "two"), text("c", "three")}, "key")
	if again.IngestionID != r.IngestionID || again.Status != r.Status ||
		again.Items[1].Status != ingest.StatusCompleted {
		t.Errorf("the same key answers %+v", again)
	}
	same := w.batch([]ingest.DataPoint{text("a", "one"), text("b", "two")}, "")
	if same.Status != ingest.StatusCompleted || same.Unchanged == nil || !*same.Unchanged {
		t.Errorf("an unchanged batch answers %+v", same)
	}
	_, err := w.IngestBatch(t.Context(), w.call, []ingest.DataPoint{text("a", "one")}, "key")
	wantFault(t, err, fault.CodeIdempotencyConflict)
}

func TestIngestBatch_RefusedStoresNothing(t *testing.T) {
	w := newFixture(t)
	w.ingest(text("gone", "x"), "")
	runtest.Must(t, errorOf(w.DeleteDataPoints(t.Context(), w.call, []string{"gone"})))
	_, err := w.IngestBatch(t.Context(), w.call, []ingest.DataPoint{text("new", "y"), text("gone", "x")}, "key")
	if f := wantFault(t, err, fault.CodeDataPointDeleted); f.Data["item"] != 1 {
		t.Errorf("data %v", f.Data)
	}
	if got := w.types("new"); got != nil {
		t.Errorf("the refused batch left %v", got)
	}
	// The fault names each deleted id of the batch: a client that leaves them out is not refused again.
	w.ingest(text("gone too", "x"), "")
	runtest.Must(t, errorOf(w.DeleteDataPoints(t.Context(), w.call, []string{"gone too"})))
	_, err = w.IngestBatch(t.Context(), w.call, []ingest.DataPoint{text("gone too", "x"), text("new", "y"), text("gone", "x")}, "key")
	if f := wantFault(t, err, fault.CodeDataPointDeleted); !slices.Equal(f.Data["ids"].([]string), []string{"gone too", "gone"}) {
		t.Errorf("data %v", f.Data)
	}
	// A refused call does not use up its key.
	w.batch([]ingest.DataPoint{text("new", "y")}, "key")
}

// Overlapping batches and single sends store nothing twice. Every answer is true, and the final
// state follows the order of the effects.
func TestIngestBatch_Overlapping(t *testing.T) {
	w := newFixture(t)
	worlds := []*fixture{w, fixtureOver(t, w.store)}
	ids := []string{"a", "b", "c", "d"}
	single := make([]ingest.Receipt, 32)
	many := make([]ingest.BatchReceipt, 32)
	errs := make([]error, 32)
	race(32, func(i int) {
		on := worlds[i%2]
		content := func(id string) string { return fmt.Sprintf("%s %d", id, i%3) }
		if i%4 == 0 {
			id := ids[i%len(ids)]
			single[i], errs[i] = on.Ingest(t.Context(), on.call, text(id, content(id)), "")
			return
		}
		var items []ingest.DataPoint
		for n := range 3 {
			id := ids[(i+n)%len(ids)]
			items = append(items, text(id, content(id)))
		}
		many[i], errs[i] = on.IngestBatch(t.Context(), on.call, items, "")
	})
	answered := make(map[string]string) // send and source id → status
	for i := range 32 {
		if errs[i] != nil {
			t.Fatalf("caller %d: %v", i, errs[i])
		}
		if single[i].SourceID != "" {
			answered[single[i].IngestionID.String()+single[i].SourceID] = single[i].Status
		}
		for _, item := range many[i].Items {
			answered[many[i].IngestionID.String()+item.SourceID] = item.Status
		}
	}
	for _, id := range ids {
		wantCommitOrder(t, w.history(id))
		for _, f := range w.history(id) {
			send, _, _ := datapoint.SendOf(f.Event)
			key := send.IngestionID.String() + id
			outcome, _ := datapoint.OutcomeOf(f.Event)
			queued := outcome.Outcome == ingestion.Created || outcome.Outcome == ingestion.Updated
			if status, ok := answered[key]; !ok || queued != (status == ingest.StatusQueued) {
				t.Errorf("%s is stored as %s, the answer was %q", key, outcome.Outcome, status)
			}
			delete(answered, key)
		}
	}
	if len(answered) > 0 {
		t.Errorf("acknowledged and not stored: %v", answered)
	}
}

// wantCommitOrder checks that the head has the content of the newest effect, and that no revision
// number is used twice.
func wantCommitOrder(t *testing.T, facts []eventstore.DecodedEvent) {
	t.Helper()
	head := facts[len(facts)-1]
	_, current, _ := datapoint.SendOf(head.Event)
	numbers := make(map[int]bool)
	for _, f := range facts {
		if e, ok := f.Event.(*datapoint.RevisionAccepted); ok {
			if numbers[e.Effect.Revision] {
				t.Errorf("revision %d is stored twice", e.Effect.Revision)
			}
			numbers[e.Effect.Revision] = true
		}
	}
	newest := slices.MaxFunc(
		facts, func(a, b eventstore.DecodedEvent) int { return cmp.Compare(effectOf(a), effectOf(b)) },
	)
	_, last, _ := datapoint.SendOf(newest.Event)
	if current.Head().Content != last.Effect.Content {
		t.Errorf("the head holds %.8s, the newest effect is %.8s", current.Head().Content, last.Effect.Content)
	}
}

func effectOf(f eventstore.DecodedEvent) eventstore.Position {
	if send, _, _ := datapoint.SendOf(f.Event); send.Commit != 0 {
		return eventstore.Position(send.Commit)
	}
	return f.Position
}

// dying is a store that fails after some appends, as for a process that is killed.
type dying struct {
	eventstore.Store
	left atomic.Int64
}

// dying is another process on the same log, whose store takes a number of writes and no more.
func (w *fixture) dying(t *testing.T, writes int64) *fixture {
	d := &dying{Store: w.store}
	d.left.Store(writes)
	return fixtureOver(t, d)
}

var errKilled = errors.New("killed")

func (d *dying) Append(
	ctx context.Context, name string, expected eventstore.Revision, events []eventstore.Proposed,
) (eventstore.Appended, error) {
	if d.left.Add(-1) < 0 {
		return eventstore.Appended{}, errKilled
	}
	return d.Store.Append(ctx, name, expected, events)
}

func (d *dying) Tombstone(ctx context.Context, name string, expected eventstore.Revision) (eventstore.Position, error) {
	if d.left.Add(-1) < 0 {
		return 0, errKilled
	}
	return d.Store.Tombstone(ctx, name, expected)
}

func (d *dying) Truncate(ctx context.Context, name string, before eventstore.Revision) error {
	if d.left.Add(-1) < 0 {
		return errKilled
	}
	return d.Store.Truncate(ctx, name, before)
}

// The process dies after each append in turn. The batch is then either not stored at all or
// complete.
func TestIngestBatch_CrashAfterEachAppend(t *testing.T) {
	for survived := range int64(10) {
		t.Run(fmt.Sprintf("after %d appends", survived), func(t *testing.T) {
			w := newFixture(t)
			w.ingest(text("a", "old"), "")
			w.ingest(text("b", "two"), "")
			victim := w.dying(t, survived)
			items := []ingest.DataPoint{text("a", "new"), text("b", "two"), text("c", "three", with(`{"k":1}`))}
			_, err := victim.IngestBatch(t.Context(), victim.call, items, "key")
			if survived < 6 && err == nil { // stage, commit, three items, outcomes
				t.Fatalf("answered after %d appends", survived)
			}
			// A later send of another process is newer than the batch, if the batch was committed.
			w.ingest(text("a", "newest"), "")

			id := stream.IngestionID(w.call.Principal.Project.Namespace, "key")
			committed := w.read(stream.Name(stream.Ingestion, id))
			if len(committed) == 0 {
				if got := w.types("c"); got != nil {
					t.Errorf("not committed, yet there is %v", got)
				}
				return
			}
			for range 2 { // a second run changes nothing
				runtest.Must(t, ingest.ResumeBatch(t.Context(), w.log, id, w.call.ReceivedAt))
			}
			wantTypes(t, w.types("a"), accepted, accepted, accepted)
			wantTypes(t, w.types("b"), accepted, resent)
			wantTypes(t, w.types("c"), accepted)
			wantCommitOrder(t, w.history("a"))
			if got := w.head("a").Content; got != datapoint.Digest([]byte("newest")) {
				t.Errorf("the later send was overwritten by %.8s", got)
			}
			r := w.batch(items, "key")
			if r.IngestionID != id || r.Items[0].Status != ingest.StatusQueued ||
				r.Items[1].Status != ingest.StatusCompleted {
				t.Errorf("the key answers %+v", r)
			}
		})
	}
}

// A data point is deleted between commit and fan-out. Its item ends as deleted.
func TestIngestBatch_DeletionBeforeFanOut(t *testing.T) {
	w := newFixture(t)
	w.ingest(text("a", "old"), "")
	victim := w.dying(t, 2) // stage and commit
	items := []ingest.DataPoint{text("a", "new"), text("b", "two")}
	if _, err := victim.IngestBatch(t.Context(), victim.call, items, "key"); err == nil {
		t.Fatal("answered without a fan-out")
	}
	runtest.Must(t, errorOf(w.DeleteDataPoints(t.Context(), w.call, []string{"a"})))
	id := stream.IngestionID(w.call.Principal.Project.Namespace, "key")
	runtest.Must(t, ingest.ResumeBatch(t.Context(), w.log, id, w.call.ReceivedAt))
	wantTypes(t, w.types("a"), accepted, deleted)
	wantTypes(t, w.types("b"), accepted)
	facts, err := w.log.ReadFrom(t.Context(), stream.Name(stream.Ingestion, id), 1)
	runtest.Must(t, err)
	if got := facts[0].Event.(*ingestion.FannedOut).Outcomes[0]; got != (ingestion.Outcome{Outcome: ingestion.Deleted}) {
		t.Errorf("outcome %+v", got)
	}
}

// hint returns fixed data points as sent, independently of the log.
type hint struct {
	sent map[uuid.UUID]struct{}
	err  error
}

func (h hint) Sent(context.Context, []uuid.UUID) (map[uuid.UUID]struct{}, error) {
	return h.sent, h.err
}

// reads counts the reads of streams of data points.
type reads struct {
	eventstore.Store
	count atomic.Int64
}

func (r *reads) ReadLast(ctx context.Context, name string) (eventstore.Recorded, bool, error) {
	if stream.Category(name) == stream.DataPoint {
		r.count.Add(1)
	}
	return r.Store.ReadLast(ctx, name)
}

// hinted returns a process whose batches use a hint, and the counter of its reads.
func (w *fixture) hinted(h hint) (*fixture, *reads) {
	w.t.Helper()
	counted := &reads{Store: w.store}
	other := fixtureOver(w.t, counted)
	other.configure(func(c *commands.Config) { c.DataPoints = h })
	return other, counted
}

func (w *fixture) sentOf(ids ...string) map[uuid.UUID]struct{} {
	sent := make(map[uuid.UUID]struct{})
	for _, id := range ids {
		sent[stream.DataPointID(w.call.Principal.Project.Namespace, id)] = struct{}{}
	}
	return sent
}

func TestIngestBatch_ReadsOnlyKnownDataPoints(t *testing.T) {
	w := newFixture(t)
	w.ingest(text("old", "one"), "")
	on, counted := w.hinted(hint{sent: w.sentOf("old")})
	r := on.batch([]ingest.DataPoint{text("new", "a"), text("old", "one"), text("newer", "b")}, "")
	if n := counted.count.Load(); n != 1 {
		t.Errorf("%d streams were read, want that of the known one", n)
	}
	for i, want := range []string{ingest.StatusQueued, ingest.StatusCompleted, ingest.StatusQueued} {
		if r.Items[i].Status != want {
			t.Errorf("item %d: %+v", i, r.Items[i])
		}
	}
	wantTypes(t, w.types("old"), accepted, resent)
}

// A batch decides again on the log for an item that the projection has not applied yet.
func TestIngestBatch_StaleHint(t *testing.T) {
	w := newFixture(t)
	w.ingest(text("same", "one", labelled("kept"), with(`{"a":1}`)), "")
	w.ingest(text("changed", "one", labelled("kept"), with(`{"a":1}`)), "")
	for _, content := range []string{"one", "two", "three"} {
		w.ingest(text("long", content), "")
	}
	items := []ingest.DataPoint{text("same", "one"), text("changed", "two"), text("long", "two"), text("new", "x")}
	on, _ := w.hinted(hint{})
	r := on.batch(items, "key")
	queued := ingest.StatusQueued
	for i, want := range []string{ingest.StatusCompleted, queued, queued, queued} {
		if r.Items[i].Status != want {
			t.Errorf("item %d: %+v, want %s", i, r.Items[i], want)
		}
	}
	wantTypes(t, w.types("same"), accepted, resent)
	wantTypes(t, w.types("changed"), accepted, accepted)
	changed, ok := w.history("changed")[1].Event.(*datapoint.RevisionAccepted)
	if !ok || changed.Effect.Revision != 2 || changed.Effect.Label == nil || *changed.Effect.Label != "kept" ||
		changed.Metadata == nil ||
		changed.Metadata.Inline != `{"a":1}` {
		t.Errorf("the omitted label and metadata were not kept: %+v", changed)
	}
	long, ok := w.history("long")[3].Event.(*datapoint.RevisionAccepted)
	if !ok || long.Effect.Revision != 4 || long.Historic() {
		t.Errorf("a fourth revision is %+v", long)
	}
	for _, id := range []string{"same", "changed", "long", "new"} {
		wantCommitOrder(t, w.history(id))
	}
	// The repeated key returns the same answer and stores no item twice.
	if again := on.batch(items, "key"); again.IngestionID != r.IngestionID ||
		again.Items[0].Status != ingest.StatusCompleted {
		t.Errorf("the same key answers %+v", again)
	}
	wantTypes(t, w.types("new"), accepted)
}

// If the projection is late, a deletion that is not answered yet ends the item. An answered
// deletion refuses the batch.
func TestIngestBatch_DeletedDataPoint(t *testing.T) {
	w := newFixture(t)
	for _, id := range []string{"answered", "unanswered"} {
		w.ingest(text(id, "x"), "")
		runtest.Must(t, errorOf(w.DeleteDataPoints(t.Context(), w.call, []string{id})))
	}
	on, _ := w.hinted(hint{sent: w.sentOf("answered")})
	_, err := on.IngestBatch(t.Context(), on.call, []ingest.DataPoint{text("new", "y"), text("answered", "x")}, "")
	if f := wantFault(t, err, fault.CodeDataPointDeleted); f.Data["item"] != 1 {
		t.Errorf("data %v", f.Data)
	}
	r := on.batch([]ingest.DataPoint{text("unanswered", "x"), text("new", "y")}, "")
	if r.Items[0].Status != ingest.StatusCompleted || r.Items[0].Unchanged != nil ||
		r.Items[1].Status != ingest.StatusQueued {
		t.Errorf("receipt %+v", r)
	}
	if types := w.types("unanswered"); len(types) != 2 {
		t.Errorf("the deleted data point has %v", types)
	}
}

func TestIngestBatch_NoHint(t *testing.T) {
	w := newFixture(t)
	w.ingest(text("old", "one"), "")
	on, counted := w.hinted(hint{err: errors.New("no database")})
	var items []ingest.DataPoint
	for i := range 9 {
		items = append(items, text(fmt.Sprint("new ", i), "x"))
	}
	r := on.batch(append(items, text("old", "one")), "")
	if n := counted.count.Load(); n != 10 {
		t.Errorf("%d streams were read, want all 10", n)
	}
	if r.Items[9].Status != ingest.StatusCompleted {
		t.Errorf("receipt %+v", r.Items[9])
	}
}
