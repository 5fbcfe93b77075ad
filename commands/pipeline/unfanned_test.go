package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/internal/runtest"
)

// commitBatch commits a batch under a key; its process dies before the fan-out.
func (w *harness) commitBatch(key string, items ...commands.DataPoint) uuid.UUID {
	w.t.Helper()
	w.dead(w.stop(2).IngestBatch(w.t.Context(), w.call, items, key))
	return stream.IngestionID(w.call.Principal.Project.Namespace, key)
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
	name := stream.Name(stream.DataPoint, stream.DataPointID(w.call.Principal.Project.Namespace, id))
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
	for survived := int64(2); survived < 9; survived++ {
		t.Run(fmt.Sprintf("after %d writes", survived), func(t *testing.T) {
			w.part(t)
			secret := runtest.Word()
			w.ingestBatch(item("same", "two"), item("changed", "three"))
			items := []commands.DataPoint{
				item("new", secret), item("same", "two"), item("changed", "four "+secret),
				item("large", big+secret),
			}
			_, _ = w.stop(survived).IngestBatch(t.Context(), w.call, items, "key")
			id := stream.IngestionID(w.call.Principal.Project.Namespace, "key")
			for range 2 {
				runtest.Must(t, w.write.DeleteSend(t.Context(), w.call, id))
			}
			if survived == 2 && w.accepted("new")+w.accepted("large") != 0 {
				t.Error("an item of a deleted batch came alive")
			}
			w.wantLive("same")
			if s, err := w.queries.Status(t.Context(), w.call.Principal.Project, id); err != nil || s.Status != "completed" ||
				!s.Settled && survived == 9 {
				t.Errorf("the send reads %+v, %v", s, err)
			}
			w.gone(secret)
			var f *fault.Error
			if _, err := w.write.Ingest(t.Context(), w.call, item("new", "again"), ""); !errors.As(err, &f) ||
				f.Code != fault.CodeDataPointDeleted {
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
			if _, err := w.write.DeleteDataPoints(t.Context(), w.call, ids); !errors.As(err, &f) ||
				f.Code != fault.CodeDataPointNotFound {
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

// held is a store on which appends to data points wait, once so many are stored, until they are released.
type held struct {
	eventstore.Store
	passes, waiting chan struct{}
	release         chan struct{}
}

func newHeld(store eventstore.Store, passes int) held {
	h := held{store, make(chan struct{}, passes), make(chan struct{}, 100), make(chan struct{})}
	for range passes {
		h.passes <- struct{}{}
	}
	return h
}

func (h held) Append(ctx context.Context, name string, expected eventstore.Revision,
	events []eventstore.Proposed,
) (eventstore.Appended, error) {
	if stream.Category(name) == stream.DataPoint {
		select {
		case <-h.passes:
		default:
			h.waiting <- struct{}{}
			<-h.release
		}
	}
	return h.Store.Append(ctx, name, expected, events)
}

// The process that committed the batch stalls within its fan-out, while another deletes; then it goes on.
func TestDelete_FanOutThatStallsInAnotherProcess(t *testing.T) {
	t.Parallel()
	w := newIdleHarness(t)
	items := []commands.DataPoint{item("a", "one"), item("b", "two"), item("c", "three")}
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
				h := newHeld(w.store, passes)
				ended := make(chan error, 1)
				go func() {
					_, err := w.over(h).IngestBatch(context.WithoutCancel(t.Context()), w.call, items, "key")
					ended <- err
				}()
				for range len(items) - passes {
					<-h.waiting
				}
				runtest.Must(t, remove(w, stream.IngestionID(w.call.Principal.Project.Namespace, "key")))
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
