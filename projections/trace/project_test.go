package trace_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
	_ "github.com/annals-project/annals/internal/seedtest" // a fixed seed
	"github.com/annals-project/annals/projections/trace"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func rowsAfter(
	t *rapid.T, tt *testing.T, db *pgxpool.Pool, texts projectiontest.Blobs, pages [][]eventstore.DecodedEvent,
	without ...string,
) map[string][]string {
	tt.Helper()
	return projectiontest.RowsAfter(t, tt, db, trace.NewProjector(texts), pages, without...)
}

// Pages of any size, and pages that come twice, give the same rows.
func TestProjector_PageSizes(tt *testing.T) {
	db := pgtest.Database(tt)
	projectiontest.Make(tt, db, trace.NewProjector(nil))
	rapid.Check(tt, func(t *rapid.T) {
		h := projectiontest.DrawBlobHistory(t)
		var single, twice [][]eventstore.DecodedEvent
		for _, f := range h.Facts {
			page := []eventstore.DecodedEvent{f}
			single, twice = append(single, page), append(twice, page, page)
		}
		want := rowsAfter(t, tt, db, h.Blobs, single)
		if diff := cmp.Diff(want, rowsAfter(t, tt, db, h.Blobs, projectiontest.Cut(t, h.Facts))); diff != "" {
			t.Fatalf("rows of pages differ from those of single events (-single +pages):\n%s", diff)
		}
		if diff := cmp.Diff(want, rowsAfter(t, tt, db, h.Blobs, twice)); diff != "" {
			t.Fatalf("events that come twice change rows (-once +twice):\n%s", diff)
		}
	})
}

// A rebuild after an erasure has the same rows as before, so it knows the same ids.
func TestProjector_ErasedStreams(tt *testing.T) {
	db := pgtest.Database(tt)
	projectiontest.Make(tt, db, trace.NewProjector(nil))
	rapid.Check(tt, func(t *rapid.T) {
		h := projectiontest.DrawBlobHistory(t)
		left := h.WithoutErased(t)
		// effect is a position, and positions of a log without some events differ.
		want := rowsAfter(t, tt, db, h.Blobs, projectiontest.Cut(t, h.Facts), "effect")
		if diff := cmp.Diff(want, rowsAfter(t, tt, db, h.LeftBlobs(), projectiontest.Cut(t, left), "effect")); diff != "" {
			t.Fatalf("%d of %d events left: rows differ (-whole +erased):\n%s", len(left), len(h.Facts), diff)
		}
	})
}

// What a worker derives after a deletion has no ids, and the facts alone give all others.
func TestProjector_DerivedTooLate(t *testing.T) {
	db := pgtest.Database(t)
	p := trace.NewProjector(nil)
	projectiontest.Make(t, db, p)
	project, point, request := uuid.New(), uuid.New(), uuid.New()
	var log projectiontest.Log
	accepted := &datapoint.RevisionAccepted{Send: datapoint.Send{ProjectID: project}}
	accepted.Effect.Revision = 1
	log.Append(stream.Name(stream.DataPoint, point), accepted)
	log.Append(stream.Name(stream.DataPoint, point), &datapoint.Deleted{ProjectID: project, RequestID: request})
	log.Append(stream.Name(stream.Deletion, uuid.New()), &deletion.FactsKept{
		ProjectID: project, DataPoint: point, RequestID: request, Complete: true, To: 1,
		Facts: []deletion.RetainedFact{{Outcome: "created", Revision: 1}},
	})
	log.Append(stream.Name(stream.Memory, point), &memory.Derived{
		ProjectID: project, Revision: 1, Memories: []memory.Memory{{ID: memory.ID(point, 1, 0)}},
	})
	projectiontest.Apply(t, db, p, log.Facts...)
	var revisions, memories, deleted int
	err := db.QueryRow(t.Context(), `select (select count(*) from trace.revisions where accepted is null),
		(select count(*) from trace.memories), (select count(*) from trace.deleted where request_id = $1)`, request).
		Scan(&revisions, &memories, &deleted)
	if err != nil || revisions != 1 || memories != 0 || deleted != 1 {
		t.Errorf("%d erased revisions, %d memories, %d deleted: %v", revisions, memories, deleted, err)
	}
}
