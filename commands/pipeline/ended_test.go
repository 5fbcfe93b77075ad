package pipeline

import (
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/cut"
	"github.com/annals-project/annals/internal/runtest"
)

// phase waits for the end of a send and returns how it ended.
func (w *harness) phase(send uuid.UUID) (phase, message string) {
	w.t.Helper()
	w.until("the send ends", func() bool {
		err := w.db.QueryRow(w.t.Context(), `select phase, coalesce(failure_message, '') from datapoints.sends where id = $1`,
			send).Scan(&phase, &message)
		return err == nil && (phase == "indexed" || phase == "failed")
	})
	return phase, message
}

// tombstone ends a stream as an operator of the store can.
func (w *harness) tombstone(name string) {
	w.t.Helper()
	last, _, err := w.store.ReadLast(w.t.Context(), name)
	runtest.Must(w.t, err)
	_, err = w.store.Tombstone(w.t.Context(), name, last.Revision)
	runtest.Must(w.t, err)
}

// damaged waits until the table of damaged streams has the wanted rows.
func (w *harness) damaged(want ...string) {
	w.t.Helper()
	w.until("the damaged streams are listed", func() bool {
		list, err := w.queries.DamagedStreams(w.t.Context(), 0, 100)
		runtest.Must(w.t, err)
		var got []string
		for _, d := range list {
			got = append(got, d.Damage+" "+d.Stream)
		}
		slices.Sort(got)
		slices.Sort(want)
		return slices.Equal(got, want)
	})
}

// Somebody tombstones the stream of a data point, of its memories, or both. Each is listed, a send ends with a reason,
// and the data point can be deleted and erased.
func TestEnded_GoesOn(t *testing.T) {
	t.Parallel()
	w := newNodeHarness(t)
	for name, ended := range map[string][]string{
		"data point": {stream.DataPoint}, "memories": {stream.Memory}, "both": {stream.DataPoint, stream.Memory},
	} {
		t.Run(name, func(t *testing.T) {
			w.part(t)
			point := w.pointID("a")
			first := w.ingest(item("a", "Ana met Zoe"))
			if phase, message := w.phase(first); phase != "indexed" {
				t.Fatalf("%s: %s", phase, message)
			}
			w.damaged()
			var want []string
			for _, of := range ended {
				w.tombstone(stream.Name(of, point))
				want = append(want, "deleted "+stream.Name(of, point))
			}
			w.damaged(want...)

			second, err := w.write.Ingest(t.Context(), w.call, item("a", "Ana met Ben"), "")
			if slices.Contains(ended, stream.DataPoint) {
				if err == nil {
					t.Error("a send to a deleted stream was accepted")
				}
			} else {
				runtest.Must(t, err)
				if phase, message := w.phase(second.IngestionID); phase != "failed" || message != endedElsewhere {
					t.Errorf("%s: %s", phase, message)
				}
				runtest.Must(t, w.write.RetryOf(t.Context(), w.call, second.IngestionID))
				w.until("the send fails again", func() bool {
					var again bool
					err := w.db.QueryRow(t.Context(), `select phase = 'failed' and round = 1 from datapoints.sends where id = $1`,
						second.IngestionID).Scan(&again)
					return err == nil && again
				})
			}
			w.remove("a")
			w.damaged()
			if _, err := w.write.DeleteDataPoints(t.Context(), w.call, []string{"a"}); err == nil {
				t.Error("it was deleted twice")
			}
			done, err := w.finisher.EraseNow(t.Context())
			runtest.Must(t, err)
			if done.Left.Deletions != 0 {
				t.Errorf("left %+v", done.Left)
			}
			for _, of := range []string{stream.DataPoint, stream.Memory} {
				w.wantEnded(t, stream.Name(of, point))
			}
			for _, text := range []string{"Zoe", "Ben"} {
				w.gone(text)
			}
			var open int
			err = w.db.QueryRow(t.Context(), `select count(*) from datapoints.items where deleted_at is null`).Scan(&open)
			if runtest.Must(t, err); open != 0 {
				t.Errorf("%d items are not deleted", open)
			}
		})
	}
}

// The metadata of a stream hides events of it. The list names it until the metadata no longer does, also of streams
// that nobody writes to.
func TestEnded_HiddenStreams(t *testing.T) {
	t.Parallel()
	w := newNodeHarness(t)
	sent, err := w.write.Ingest(t.Context(), w.call, item("a", "one"), "")
	runtest.Must(t, err)
	w.phase(sent.IngestionID)
	point := w.pointName("a")
	project := stream.Name(stream.Project, uuid.New())
	identity := stream.Name(stream.Identity, uuid.New())
	w.metadata(point, `{"$tb":9223372036854775807}`)
	w.metadata(project, `{"$maxAge":60}`)
	w.metadata(identity, `{"$tb":3}`) // as the service does
	w.metadata("of-somebody-else", `{"$maxCount":1}`)
	w.damaged("hidden "+point, "aged "+project)
	w.metadata(project, `{"$maxCount":5}`)
	w.metadata(identity, `{"$tb":9223372036854775807}`)
	w.damaged("hidden "+point, "counted "+project, "hidden "+identity)
	w.metadata(project, `{}`)
	w.metadata(identity, `{"$tb":4}`)
	sent, err = w.write.Ingest(t.Context(), w.call, item("a", "two"), "") // which restores the stream
	runtest.Must(t, err)
	w.phase(sent.IngestionID)
	w.damaged()
}

// hide writes metadata of a stream as an operator of the store can, and waits until the stream shows nothing.
func (w *harness) hide(name, fields string) {
	w.t.Helper()
	w.metadata(name, fields)
	direct := w.store.(*cut.Store).Store // restores nothing
	w.until("the stream shows nothing", func() bool {
		_, ok, err := direct.ReadLast(w.t.Context(), name)
		return err == nil && !ok
	})
}

// metadata writes metadata of a stream.
func (w *harness) metadata(name, fields string) {
	w.t.Helper()
	at, metadata := eventstore.NoStream, "$$"+name
	last, ok, err := w.store.ReadLast(w.t.Context(), metadata)
	if runtest.Must(w.t, err); ok {
		at = last.Revision
	}
	_, err = w.store.Append(w.t.Context(), metadata, at, []eventstore.Proposed{
		{ID: uuid.New(), Type: eventstore.MetadataType, Data: []byte(fields)},
	})
	runtest.Must(w.t, err)
}

// Somebody soft-deletes, truncates or ages a stream of ours. Sends to it complete, and it can be deleted and erased.
func TestCut_GoesOn(t *testing.T) {
	t.Parallel()
	w := newNodeHarness(t)
	for name, fields := range map[string]string{
		"soft-deleted": `{"$tb":9223372036854775807}`, "truncated": `{"$tb":90}`, "aged": `{"$maxAge":1}`,
	} {
		for _, category := range []string{stream.DataPoint, stream.Memory} {
			t.Run(name+" "+category, func(t *testing.T) {
				w.part(t)
				point := w.pointID("a")
				send := func(text string) {
					t.Helper()
					r := w.ingest(item("a", text))
					w.until(text+" is completed", func() bool {
						var phase string
						err := w.db.QueryRow(t.Context(), `select phase from datapoints.sends where id = $1`, r).Scan(&phase)
						return err == nil && phase == "indexed"
					})
				}
				send("one")
				send("two")
				w.hide(stream.Name(category, point), fields)
				send("three")
				send("four")
				w.hide(stream.Name(category, point), fields)
				w.remove("a")
				done, err := w.finisher.EraseNow(t.Context())
				runtest.Must(t, err)
				if done.Left.Deletions != 0 {
					t.Errorf("left %+v", done.Left)
				}
			})
		}
	}
}
