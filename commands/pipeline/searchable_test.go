package pipeline

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/datapoints"
)

// sendRows returns the rows of all sends, without the positions of erased text.
func (w *harness) sendRows() []string {
	w.t.Helper()
	rows, err := w.db.Query(w.t.Context(), `select (to_jsonb(s) - 'position')::text from datapoints.sends s order by s.id`)
	runtest.Must(w.t, err)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	runtest.Must(w.t, err)
	return list
}

func (w *harness) phaseOf(send uuid.UUID) string {
	w.t.Helper()
	s, _, err := w.queries.Send(w.t.Context(), w.call.Principal.Project, send)
	runtest.Must(w.t, err)
	return s.Phase
}

// indexedAlone reports whether the stream of a send itself records that it is indexed.
func (w *harness) indexedAlone(send uuid.UUID) bool {
	w.t.Helper()
	last, _, err := w.log.Last(w.t.Context(), stream.Name(stream.Ingestion, send))
	runtest.Must(w.t, err)
	_, is := last.Event.(*ingestion.Indexed)
	return is
}

// The effect of watermarks outlives the streams of erased data points: a rebuilt projection has the
// same rows. A send that lost something before it was searchable ends by itself.
func TestErasedSends_SearchableSince(t *testing.T) {
	w := newIdleHarness(t)
	w.derive()
	ingest := func(id string) uuid.UUID { return w.ingestBatch(item(id, "Ana likes "+id)) }
	batch := func(one, two string) uuid.UUID {
		return w.ingestBatch(item(one, "Bo likes "+one), item(two, "Cy likes "+two))
	}
	halved := batch("halved one", "halved two")
	w.until("the batch is captured", func() bool { return w.phaseOf(halved) == "captured" })
	w.remove("halved one")
	w.confirm()
	sends := []uuid.UUID{
		halved, ingest("single"), batch("half one", "half two"),
		batch("whole one", "whole two"), batch("kept one", "kept two"),
	}
	for _, send := range sends {
		w.until("all is completed", func() bool { return w.phaseOf(send) == "indexed" })
	}
	for _, send := range sends {
		if alone := w.indexedAlone(send); alone != (send == halved) {
			t.Errorf("a send has an event of its own: %t", alone)
		}
	}
	w.remove("single")
	w.remove("half one")
	w.remove("whole one", "whole two")
	want := w.sendRows()
	if done, err := w.finisher.EraseNow(t.Context()); err != nil || done.Deletions != 4 || done.Left.Deletions != 0 {
		t.Fatalf("erased %+v, %v", done, err)
	}
	for _, id := range []string{"halved one", "single", "half one", "whole one"} {
		name := stream.Name(stream.DataPoint, stream.DataPointID(w.call.Principal.Project.Namespace, id))
		if _, _, err := w.store.ReadLast(t.Context(), name); !errors.Is(err, eventstore.ErrDeleted) {
			t.Errorf("the stream of %s reads %v", id, err)
		}
	}
	if diff := cmp.Diff(want, w.sendRows()); diff != "" {
		t.Errorf("the erasure changes sends (-before +after):\n%s", diff)
	}
	runtest.Must(t, w.runtime.Rebuild(t.Context(), datapoints.Name, nil))
	if diff := cmp.Diff(want, w.sendRows()); diff != "" {
		t.Errorf("after a rebuild, sends differ (-before +after):\n%s", diff)
	}
	if n := strings.Count(strings.Join(want, " "), `"searchable_at": "`); n != 4 {
		t.Errorf("%d sends are searchable since a watermark", n)
	}
}
