package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/erasure"
	"github.com/annals-project/annals/commands/ingest"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/comprehend"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/work"
)

// commitBatch commits a batch under a key; its process dies before the fan-out.
func (w *harness) commitBatch(key string, items ...ingest.DataPoint) uuid.UUID {
	w.t.Helper()
	w.dead(w.stop(2).IngestBatch(w.t.Context(), w.call, items, key))
	return w.sendID(key)
}

// live are the source ids that the tables and the index show, sorted.
func (w *harness) live() []string {
	w.t.Helper()
	w.passHead()
	rows, err := w.db.Query(w.t.Context(),
		`select source_id from datapoints.data_points where project_id = $1 order by source_id`, w.call.Principal.Project.ID)
	runtest.Must(w.t, err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	runtest.Must(w.t, err)
	return ids
}

// accepted is how many revisions of a source id were ever stored.
func (w *harness) accepted(id string) (n int) {
	w.t.Helper()
	name := w.pointName(id)
	for _, r := range eventstoretest.All(w.t, w.store, 0) {
		if r.Stream == name && r.Type == "datapoint.revision-accepted.v1" {
			n++
		}
	}
	return n
}

// finish lets a new process complete what is open, before it takes calls and then in the background.
func (w *harness) finish() {
	w.t.Helper()
	w.passHead()
	runtest.Must(w.t, w.finisher.CatchUp(w.t.Context()))
	if done, err := w.finisher.EraseNow(w.t.Context()); err != nil ||
		done.Left.FanOuts+done.Left.Deletions+done.Left.DataPoints != 0 {
		w.t.Fatalf("left %+v, %v", done.Left, err)
	}
}

// wantLive compares what is live, now and after the next process completed what is open.
func (w *harness) wantLive(ids ...string) {
	w.t.Helper()
	if got := w.live(); !slices.Equal(got, ids) {
		w.t.Errorf("live are %v, want %v", got, ids)
	}
	w.finish()
	if got := w.live(); !slices.Equal(got, ids) {
		w.t.Errorf("once all is finished, live are %v, want %v", got, ids)
	}
}

// A batch of every kind of item, of which nothing or some was fanned out.
func TestDeleteSend_BatchThatIsNotFannedOut(t *testing.T) {
	t.Parallel()
	w := newIdleHarness(t)
	// stage, commit, a blob, four items, the end, the stage's tombstone
	for survived := 2; survived < 9; survived++ {
		t.Run(fmt.Sprintf("after %d writes", survived), func(t *testing.T) {
			w.part(t)
			secret := runtest.Word()
			w.ingestBatch(item("same", "two"), item("changed", "three"))
			items := []ingest.DataPoint{
				item("new", secret), item("same", "two"), item("changed", "four "+secret),
				item("large", big+secret),
			}
			_, _ = w.stop(survived).IngestBatch(t.Context(), w.call, items, "key")
			id := w.sendID("key")
			for range 2 {
				runtest.Must(t, w.write.DeleteSend(t.Context(), w.call, id))
			}
			if survived == 2 && w.accepted("new")+w.accepted("large") != 0 {
				t.Error("an item of a deleted batch came alive")
			}
			w.wantLive("same")
			if s := w.sendStatus(id); s.Status != "completed" {
				t.Errorf("the send reads %+v", s)
			}
			w.gone(secret)
			_, err := w.write.Ingest(t.Context(), w.call, item("new", "again"), "")
			if !isFault(err, fault.CodeDataPointDeleted) {
				t.Errorf("a deleted id: %v", err)
			}
		})
	}
}

func TestDeleteDataPoints_ItemsThatAreNotFannedOut(t *testing.T) {
	t.Parallel()
	w := newIdleHarness(t)
	for name, ids := range map[string][]string{
		"one id": {"new"}, "two ids": {"new", "large"},
		"with one that is there": {"new", "changed"},
	} {
		t.Run(name, func(t *testing.T) {
			w.part(t)
			secret := runtest.Word()
			w.ingest(item("changed", "three"))
			all := []string{"changed", "large", "new", "stays"}
			w.commitBatch("key", item("new", secret), item("large", big+secret), item("changed", "four"), item("stays", "five"))
			var f *fault.Error
			if _, err := w.write.DeleteDataPoints(t.Context(), w.call, append([]string{"unknown"}, ids...)); !errors.As(err,
				&f) ||
				f.Code != fault.CodeDataPointNotFound || fmt.Sprint(f.Data["ids"]) != "[unknown]" {
				t.Fatalf("with an unknown id: %v", err)
			}
			w.remove(ids...)
			if _, err := w.write.DeleteDataPoints(t.Context(), w.call, ids); !isFault(err, fault.CodeDataPointNotFound) {
				t.Errorf("deleted again: %v", err)
			}
			w.finish()
			want := slices.DeleteFunc(all, func(id string) bool { return slices.Contains(ids, id) })
			if got := w.live(); !slices.Equal(got, want) {
				t.Errorf("live are %v, want %v", got, want)
			}
			if slices.Contains(ids, "large") {
				w.gone(secret)
			}
		})
	}
}

// held are the writes of a process in which appends to data points wait, once so many are stored, for their release.
type held struct {
	passes, waiting chan struct{}
	release         chan struct{}
}

func newHeld(passes int) held {
	h := held{make(chan struct{}, passes), make(chan struct{}, 100), make(chan struct{})}
	for range passes {
		h.passes <- struct{}{}
	}
	return h
}

func (h held) write(_ context.Context, to write, store func() error) error {
	if to.kind == appends && stream.Category(to.stream) == stream.DataPoint {
		select {
		case <-h.passes:
		default:
			h.waiting <- struct{}{}
			<-h.release
		}
	}
	return store()
}

// The process that committed the batch stalls within its fan-out, while another deletes; then it goes on.
func TestDelete_FanOutThatStallsInAnotherProcess(t *testing.T) {
	t.Parallel()
	w := newIdleHarness(t)
	items := []ingest.DataPoint{item("a", "one"), item("b", "two"), item("c", "three")}
	for name, remove := range map[string]func(*harness, uuid.UUID) error{
		"by send": func(w *harness, id uuid.UUID) error { return w.write.DeleteSend(w.t.Context(), w.call, id) },
		"by source ids": func(w *harness, _ uuid.UUID) error {
			_, err := w.write.DeleteDataPoints(w.t.Context(), w.call, []string{"a", "b", "c"})
			return err
		},
	} {
		for passes := range 3 {
			t.Run(fmt.Sprintf("%s, %d items stored", name, passes), func(t *testing.T) {
				w.part(t)
				h := newHeld(passes)
				ended := make(chan error, 1)
				go func() {
					_, err := w.over(around{w.store, h.write}).IngestBatch(context.WithoutCancel(t.Context()), w.call, items, "key")
					ended <- err
				}()
				for range len(items) - passes {
					<-h.waiting
				}
				runtest.Must(t, remove(w, w.sendID("key")))
				if got := w.live(); len(got) != 0 {
					t.Errorf("live are %s", strings.Join(got, ", "))
				}
				close(h.release)
				if err := <-ended; err != nil {
					t.Error(err)
				}
				w.wantLive()
			})
		}
	}
}

// commitDeletion commits a bulk deletion whose process dies before it fans out, and returns its id.
func (w *harness) commitDeletion(ids ...string) uuid.UUID {
	w.t.Helper()
	head, err := w.store.Head(w.t.Context())
	runtest.Must(w.t, err)
	w.dead(w.stop(1).DeleteDataPoints(w.t.Context(), w.call, ids))
	page, err := w.store.ReadAll(w.t.Context(), head, 100)
	runtest.Must(w.t, err)
	for _, r := range page {
		if r.Type == "deletion.accepted.v1" {
			return stream.Owner(r.Stream)
		}
	}
	w.t.Fatal("the deletion is not committed")
	return uuid.Nil
}

// resumeFor runs the fan-out of a deletion until it has taken these data points, and no others.
func (w *harness) resumeFor(deletion uuid.UUID, ids ...string) {
	w.t.Helper()
	var names []string
	for _, id := range ids {
		names = append(names, w.pointName(id))
	}
	reaches := around{w.store, func(ctx context.Context, to write, store func() error) error {
		if slices.Contains(names, to.stream) {
			return store()
		}
		<-ctx.Done() // it never answers
		return errDied
	}}
	log := engine.NewJournal(reaches, w.log.Codec, w.log.Logger)
	ctx, kill := context.WithCancel(w.t.Context())
	ended := make(chan error, 1)
	go func() { _, err := ingest.ResumeDeletion(ctx, log, deletion, at); ended <- err }()
	for _, name := range names {
		w.until("the data point is taken", func() bool {
			last, _, err := w.log.Last(w.t.Context(), name)
			runtest.Must(w.t, err)
			_, taken := last.Event.(*datapoint.Deleted)
			return taken
		})
	}
	kill()
	if err := <-ended; err == nil {
		w.t.Fatal("the fan-out is complete")
	}
}

// Of two deletions of the same data points each took some: neither waits for the other with its own part.
func TestEraseNow_TenPairsOfOverlappingDeletions(t *testing.T) {
	t.Parallel()
	w := newIdleHarness(t)
	var words []string
	for pair := range 10 {
		secret := runtest.Word()
		words = append(words, secret)
		items, ids := make([]ingest.DataPoint, 6), make([]string, 6)
		for i := range items {
			ids[i] = fmt.Sprintf("%d of pair %d", i, pair)
			items[i] = item(ids[i], "Ana met "+secret)
		}
		w.ingestBatch(items...)
		one, other := w.commitDeletion(ids[:5]...), w.commitDeletion(ids[1:]...)
		w.resumeFor(one, ids[:3]...)
		w.resumeFor(other, ids[3:]...)
	}
	w.passHead()
	done, err := w.finisher.EraseNow(t.Context())
	if err != nil || done.Deletions != 20 || done.Left.Deletions+done.Left.DataPoints+done.Left.FanOuts != 0 {
		t.Fatalf("%+v, %v", done, err)
	}
	for _, secret := range words {
		w.gone(secret)
	}
}

// While another deletion has not erased its part, one that overlaps it is purged, and not recorded as cleaned.
func TestErase_DeletionThatWaitsForAnother(t *testing.T) {
	t.Parallel()
	w := newIdleHarness(t)
	counting := &countingStore{}
	w.finisher.Eraser.Store = counting
	w.ingestBatch(item("a", "one"), item("b", "two"),
		item("c", "three"))
	one, other := w.commitDeletion("a", "b"), w.commitDeletion("b", "c")
	w.resumeFor(other, "b")
	w.ok(ingest.ResumeDeletion(t.Context(), w.log, one, at))
	w.passHead()
	for round := range 3 {
		var done erasure.Report
		w.ok(w.finisher.clean(t.Context(), true, &done))
		if round == 0 {
			runtest.Must(t, w.finisher.Eraser.RetainAll(t.Context()))
		}
		if done.Deletions != 0 {
			t.Fatalf("round %d: %d deletions are cleaned", round, done.Deletions)
		}
	}
	gone := 0
	for _, id := range []string{"a", "b", "c"} {
		name := w.pointName(id)
		if _, _, err := w.store.ReadLast(t.Context(), name); err != nil {
			gone++
		}
	}
	if gone != 1 {
		t.Errorf("%d of the data points are erased, want the one of the deletion that is fanned out", gone)
	}
	w.passHead()
	if done, err := w.finisher.EraseNow(t.Context()); err != nil || done.Deletions != 2 || done.Left.Deletions != 0 {
		t.Errorf("%+v, %v", done, err)
	}
}

// lease takes the one item of the queue, as a worker does.
func (w *harness) lease() work.Item {
	w.t.Helper()
	w.passHead()
	items, _, err := w.queries.Lease(w.t.Context(),
		work.LeaseRequest{Lane: work.LaneLive, Holder: "stalled", Limit: 10, Now: at, Until: at.Add(time.Hour)})
	if err != nil || len(items) != 1 {
		w.t.Fatalf("leased %d items, %v, want 1", len(items), err)
	}
	return items[0]
}

// deleteAndClean deletes the data points and returns once their deletion is cleaned.
func (w *harness) deleteAndClean(ids ...string) {
	w.t.Helper()
	w.remove(ids...)
	if done, err := w.finisher.EraseNow(w.t.Context()); err != nil || done.Deletions != 1 || done.Left.Deletions != 0 {
		w.t.Fatalf("%+v, %v", done, err)
	}
}

// heldExtractor derives one memory per line of the text, once it is released.
type heldExtractor struct {
	begun, release chan struct{}
	word           string
	memories       int
}

func (heldExtractor) Name() string { return "held/1" }

func (h heldExtractor) Extract(_ context.Context, in comprehend.Input) ([]memory.Memory, error) {
	close(h.begun)
	<-h.release
	derived := make([]memory.Memory, h.memories)
	for n := range derived {
		derived[n] = memory.Memory{
			ID: memory.ID(in.DataPoint, in.Revision, n), Kind: memory.Claim,
			Content: fmt.Sprintf("%s is derived %d", h.word, n), Excerpt: h.word,
			Subject: "it", Attribute: "text",
		}
	}
	return derived, nil
}

func TestWorker_StalledBeforeItsAttemptUntilTheDeletionIsCleaned(t *testing.T) {
	t.Parallel()
	w := newIdleHarness(t)
	secret := runtest.Word()
	w.ingest(item("a", "Ana's favourite editor is "+secret+"."))
	leased := w.lease()
	w.deleteAndClean("a")
	w.ok(w.worker("stalled").derive(t.Context(), leased))
	name := stream.Name(stream.Memory, leased.DataPoint)
	w.wantEnded(t, name)
	w.gone(secret)
}

func TestWorker_StalledWithinItsAttemptUntilTheDeletionIsCleaned(t *testing.T) {
	t.Parallel()
	for name, memories := range map[string]int{"memories in the event": 1, "memories in a blob": 5000} {
		t.Run(name, func(t *testing.T) {
			w := newIdleHarness(t)
			held := heldExtractor{
				begun: make(chan struct{}), release: make(chan struct{}), word: runtest.Word(), memories: memories,
			}
			w.ingest(item("a", "Ana met "+held.word))
			leased := w.lease()
			worker := w.worker("stalled")
			worker.Extractor = held
			ended := make(chan error, 1)
			go func() {
				_, err := worker.derive(context.WithoutCancel(t.Context()), leased)
				ended <- err
			}()
			<-held.begun
			w.deleteAndClean("a")
			close(held.release)
			runtest.Must(t, <-ended)
			if n := w.blobs(); n != 0 {
				t.Errorf("%d blobs are left of an attempt that was refused", n)
			}
			w.ok(w.finisher.EraseNow(t.Context()))
			w.gone(held.word)
		})
	}
}

// A worker that dies after it wrote the memories of an erased data point leaves a blob that
// nothing can refer to: it needs no deadline.
func TestSweep_BlobOfAnErasedDataPoint(t *testing.T) {
	t.Parallel()
	w := newIdleHarness(t)
	secret := runtest.Word()
	w.ingest(item("a", "Ana met "+secret))
	point := w.lease().DataPoint
	w.deleteAndClean("a")
	w.orphan(point, "late "+secret)
	if done, err := w.finisher.EraseNow(t.Context()); err != nil || done.Blobs != 1 || done.Left.Blobs != 0 {
		t.Fatalf("%+v, %v", done, err)
	}
	w.gone(secret)
}

// orphan writes a blob that nothing will refer to, as a process that is killed right after it.
func (w *harness) orphan(owner uuid.UUID, text string, holds ...uuid.UUID) {
	w.t.Helper()
	_, err := w.log.WriteBlob(w.t.Context(), owner, uuid.New(), w.call.Principal.Project.ID, at.Add(blob.Keep),
		event.NewMeta("test", time.Now()), []byte(text), holds...)
	runtest.Must(w.t, err)
}

// A stage that was never committed withholds only the end of deletions whose text it holds, and those for some minutes.
func TestErase_StageThatWasNeverCommitted(t *testing.T) {
	t.Parallel()
	w := newIdleHarness(t)
	secret := runtest.Word()
	w.ingestBatch(item("staged", secret),
		item("other", "two"))
	w.dead(w.stop(1).IngestBatch(t.Context(), w.call,
		[]ingest.DataPoint{item("staged", "again "+secret), item("new", "three")}, ""))
	w.deleteAndClean("other")
	w.remove("staged")
	w.clock.move(blob.StageKeep - time.Second)
	if done, err := w.finisher.EraseNow(t.Context()); err != nil || done.Deletions != 0 || done.Left.Deletions != 1 ||
		done.Left.Blobs != 1 {
		t.Fatalf("before the time of the stage is over: %+v, %v", done, err)
	}
	w.clock.move(time.Second)
	if done, err := w.finisher.EraseNow(t.Context()); err != nil || done.Deletions != 1 || done.Left.Deletions != 0 ||
		done.Left.Blobs != 0 {
		t.Fatalf("after it: %+v, %v", done, err)
	}
	w.gone(secret)
}

// The stage of a try whose key another try used first is of no use at once.
func TestSweep_StageOfAnotherTry(t *testing.T) {
	t.Parallel()
	w := newIdleHarness(t)
	items := []ingest.DataPoint{item("a", "one")}
	w.dead(w.stop(1).IngestBatch(t.Context(), w.call, items, "key"))
	w.ok(w.write.IngestBatch(t.Context(), w.call, items, "key"))
	if n := w.swept(); n != 1 || w.blobs() != 0 {
		t.Errorf("%d stages were swept, %d are left", n, w.blobs())
	}
}
