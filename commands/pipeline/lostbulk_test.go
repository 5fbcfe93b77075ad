package pipeline

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/directory"
)

// damaged is a store that reads other bytes in one stream than were written.
type damaged struct {
	eventstore.Store
	stream string
}

func (d damaged) Read(ctx context.Context, name string, from eventstore.Revision, direction eventstore.Direction,
	limit int,
) ([]eventstore.Recorded, error) {
	events, err := d.Store.Read(ctx, name, from, direction, limit)
	for n := range events {
		if name == d.stream {
			events[n].Data = bytes.ReplaceAll(events[n].Data, []byte{'1'}, []byte{'2'})
			events[n].Data = events[n].Data[:len(events[n].Data)-1]
		}
	}
	return events, err
}

// A bulk write whose rows are gone or damaged between its commit and its fan-out is given up, by
// the start as by a round: it is said, and holds up nobody.
func TestBulkWrite_UnreadableRows(t *testing.T) {
	t.Parallel()
	w := newIdleHarness(t)
	abandoned := 0
	for name, finish := range map[string]func(context.Context, *Finisher) error{
		"at the start": func(ctx context.Context, f *Finisher) error { return f.CatchUp(ctx) },
		"by a round": func(ctx context.Context, f *Finisher) error {
			_, err := f.EraseNow(ctx)
			return err
		},
	} {
		for _, gone := range []bool{true, false} {
			t.Run(name+map[bool]string{true: ", gone", false: ", damaged"}[gone], func(t *testing.T) {
				w.part(t)
				abandoned++
				w.ok(w.write.PutIdentity(t.Context(), w.call, "bo", map[string]string{"city": "Porto"}))
				w.dead(w.stop(2).BulkIdentities(t.Context(), w.call,
					[]identity.Row{{Identity: "ana", Traits: map[string]string{"a": "1"}}, {Identity: "bo"}}))
				w.passHead()
				open, err := w.directory.PendingBulks(t.Context(), 10)
				if err != nil || len(open) != 1 {
					t.Fatalf("open bulk writes %v, %v", open, err)
				}
				stage := w.stageOf(open[0].ID)
				var said bytes.Buffer
				store := w.store
				if gone {
					last, _, err := w.store.ReadLast(t.Context(), stage)
					if err == nil {
						_, err = w.store.Tombstone(t.Context(), stage, last.Revision)
					}
					runtest.Must(t, err)
				} else {
					store = damaged{w.store, stage}
				}
				w.finishOver(commands.NewJournal(store, w.log.Codec, slog.New(slog.NewTextHandler(&said, nil))))
				if left, err := w.finisher.Pending(t.Context()); err != nil || left.FanOuts != 1 {
					t.Errorf("what waits before: %+v, %v", left, err)
				}
				runtest.Must(t, finish(t.Context(), w.finisher))
				w.passHead()
				if lost, err := directory.AbandonedBulks(t.Context(), w.db); err != nil || lost != abandoned {
					t.Errorf("%d bulk writes are said to be lost, want %d, %v", lost, abandoned, err)
				}
				if left, err := w.finisher.Pending(t.Context()); err != nil || left.FanOuts != 0 {
					t.Errorf("what waits after: %+v, %v", left, err)
				}
				if log := said.String(); strings.Count(log, "level=ERROR") != 1 ||
					!strings.Contains(log, "bulk write abandoned, its rows cannot be read") {
					t.Errorf("the log has:\n%s", log)
				}
				if _, _, err := w.store.ReadLast(t.Context(), stage); !errors.Is(err, eventstore.ErrDeleted) {
					t.Errorf("the rows are not ended: %v", err)
				}
				// Who was named by it is written and removed as ever.
				if _, err := w.write.PutIdentity(t.Context(), w.call, "ana", map[string]string{"a": "2"}); err != nil {
					t.Error(err)
				}
				if _, err := w.write.BulkIdentities(t.Context(), w.call,
					[]identity.Row{{Identity: "ana"}, {Identity: "bo"}}); err != nil {
					t.Error(err)
				}
				if err := w.write.DeleteIdentity(t.Context(), w.call, "ana"); err != nil {
					t.Error(err)
				}
				if done, err := w.finisher.EraseNow(t.Context()); err != nil || done.Identities != 1 {
					t.Errorf("erased %+v, %v", done, err)
				}
			})
		}
	}
}

// stageOf is the stream that holds the rows of a bulk write.
func (w *harness) stageOf(bulk uuid.UUID) string {
	w.t.Helper()
	facts, err := w.log.ReadFrom(w.t.Context(), stream.Name(stream.Bulk, bulk), 0)
	if err != nil || len(facts) == 0 {
		w.t.Fatalf("bulk write: %d events, %v", len(facts), err)
	}
	return facts[0].Event.(*identity.BulkAccepted).Rows.Stream
}
