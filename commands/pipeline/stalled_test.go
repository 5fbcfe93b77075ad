package pipeline

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/comprehend"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/work"
)

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
	if _, _, err := w.store.ReadLast(t.Context(), name); !errors.Is(err, eventstore.ErrDeleted) {
		t.Errorf("the memory stream of an erased data point: %v, want a tombstone", err)
	}
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
		[]commands.DataPoint{item("staged", "again "+secret), item("new", "three")}, ""))
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
	items := []commands.DataPoint{item("a", "one")}
	w.dead(w.stop(1).IngestBatch(t.Context(), w.call, items, "key"))
	w.ok(w.write.IngestBatch(t.Context(), w.call, items, "key"))
	if n := w.swept(); n != 1 || w.blobs() != 0 {
		t.Errorf("%d stages were swept, %d are left", n, w.blobs())
	}
}
