package datapoints_test

import (
	"errors"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/internal/runtest"
	_ "github.com/annals-project/annals/internal/seedtest"
	"github.com/annals-project/annals/projections/datapoints"
)

// lines makes memories of which only the number counts.
func lines(n int) []memory.Memory { return make([]memory.Memory, n) }

// memorized stores the memories of a revision.
func (w *fixture) memorized(send, source string, revision, memories int) {
	w.last = w.Append(stream.Name(stream.Memory, id(source)), &memory.Derived{
		ProjectID: w.project, IngestionID: id(send), Revision: revision, Extractor: "builtin/1",
		DerivedAt: w.at(), OccurredAt: noon, Memories: lines(memories),
	})
}

func TestScopes(t *testing.T) {
	w := newFixture(t)
	team := id("team")
	want := func(want map[uuid.UUID]int64) {
		t.Helper()
		w.apply()
		got, err := w.Queries.Scopes(t.Context(), project)
		runtest.Must(t, err)
		same(t, "scopes", want, got)
		counts, err := w.Queries.Counts(t.Context(), w.Queries.DB, []uuid.UUID{project.ID, neighbour.ID}, "2026-11")
		runtest.Must(t, err)
		var sum int64
		for _, n := range want {
			sum += n
		}
		if got := counts[project.ID]; got.Live+got.Memories != sum {
			t.Errorf("the project counts %+v, want %d", got, sum)
		}
		if got := counts[neighbour.ID]; got != (datapoints.Counts{}) {
			t.Errorf("the neighbour counts %+v", got)
		}
		if got, err := w.Queries.Scopes(t.Context(), neighbour); err != nil || len(got) > 0 {
			t.Errorf("the neighbour has %v, %v", got, err)
		}
	}
	want(map[uuid.UUID]int64{})
	w.revised("s1", "a", alone)
	w.revised("s2", "b", alone)
	want(map[uuid.UUID]int64{uuid.Nil: 2})
	w.memorized("s1", "a", 1, 3)
	want(map[uuid.UUID]int64{uuid.Nil: 5})
	w.moved("s3", "a", team, alone)
	want(map[uuid.UUID]int64{uuid.Nil: 1, team: 4})
	w.revised("s4", "a", alone) // the memories of the older revision count until this one has its own
	want(map[uuid.UUID]int64{uuid.Nil: 1, team: 4})
	w.memorized("s4", "a", 2, 1)
	want(map[uuid.UUID]int64{uuid.Nil: 1, team: 2})
	w.memorized("s4", "a", 2, 5) // derived again
	want(map[uuid.UUID]int64{uuid.Nil: 1, team: 6})
	w.memorized("s1", "a", 1, 9) // an older revision does not count
	want(map[uuid.UUID]int64{uuid.Nil: 1, team: 6})
	w.deleted("d", "a", true)
	want(map[uuid.UUID]int64{uuid.Nil: 1})
	w.memorized("s4", "a", 2, 7) // by a worker that missed the deletion
	want(map[uuid.UUID]int64{uuid.Nil: 1})
	w.revised("s5", "c", alone) // created and deleted within a page
	w.deleted("d2", "c", true)
	w.deleted("d3", "b", true)
	want(map[uuid.UUID]int64{})
}

// Memories in a blob are counted. A missing blob has none; one that cannot be read now fails the
// page.
func TestScopes_MemoriesInBlobs(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.revised("s1", "a", alone)
	w.apply()
	data, err := memory.Encode(lines(4))
	runtest.Must(t, err)
	w.last = w.Append(stream.Name(stream.Memory, id("a")), &memory.Derived{
		ProjectID: w.project, IngestionID: id("s1"), Revision: 1, DerivedAt: noon, OccurredAt: noon,
		Blob: &blob.Ref{Stream: "blob-a"},
	})
	page := [][]eventstore.DecodedEvent{w.Facts}
	for name, c := range map[string]struct {
		blobs projectiontest.Blobs
		want  int64
	}{"there": {projectiontest.Blobs{"blob-a": data}, 5}, "gone": {nil, 1}, "damaged": {projectiontest.Blobs{"blob-a": []byte("[{")}, 1}} {
		w := newFixture(t)
		err := projectiontest.Inspect(t.Context(), w.Queries.DB, datapoints.New(c.blobs), page, func(tx pgx.Tx) error {
			var got int64
			err := tx.QueryRow(t.Context(), `select live + memories from datapoints.scopes`).Scan(&got)
			if got != c.want {
				t.Errorf("%s: %d, want %d", name, got, c.want)
			}
			return err
		})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	err = projectiontest.Inspect(
		t.Context(), w.Queries.DB, datapoints.New(unavailableBlobs{}), page, func(pgx.Tx) error { return nil },
	)
	if !errors.Is(err, eventstore.ErrUnavailable) {
		t.Errorf("a store that is away: %v", err)
	}
}

// The tables agree with the model of the write side, whatever was sent, deleted and erased.
func TestCounters_MatchWriteSide(tt *testing.T) {
	db := pgtest.Database(tt)
	projectiontest.Make(tt, db, datapoints.New(nil))
	rapid.Check(tt, func(t *rapid.T) {
		h := projectiontest.DrawBlobHistory(t)
		facts, p := h.Facts, datapoints.New(projectiontest.Blobs(h.Blobs))
		if rapid.Bool().Draw(t, "erased streams are gone") {
			facts, p = h.WithoutErased(t), datapoints.New(projectiontest.Blobs(h.LeftBlobs()))
		}
		err := projectiontest.Inspect(tt.Context(), db, p, projectiontest.Cut(t, facts), func(tx pgx.Tx) error {
			sends, err := sendStates(tt, tx)
			if err != nil {
				return err
			}
			same(t, "sends (-writers +tables)", h.Sends(), sends)
			totals, err := totalsOf(tt, tx)
			if err != nil {
				return err
			}
			same(t, "projects (-writers +tables)", h.Totals(), totals)
			return nil
		})
		runtest.Must(t, err)
	})
}

// Unchanged, moved and deleted items are free. Until a batch is fanned out, it counts as priced at
// its commit, in the month of its acceptance.
func TestCharges_OnlyNewRevisions(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.revised("single", "a", alone)
	w.resent("again", "a", alone)
	w.moved("moved", "a", id("audience"), alone)
	in := w.committed("batch", "a", "b", "c", "d")
	w.resent("batch", "a", in(0))
	w.revised("batch", "b", in(1))
	want := func(want map[string][2]int64) {
		t.Helper()
		w.apply()
		for name, charged := range want {
			var got [2]int64
			if err := w.Queries.DB.QueryRow(t.Context(), `select bytes, credit_tenths from datapoints.sends
				where id = $1`, id(name)).Scan(&got[0], &got[1]); err != nil {
				t.Fatal(err)
			}
			if got != charged {
				t.Errorf("%s is charged %v, want %v", name, got, charged)
			}
		}
	}
	want(map[string][2]int64{"single": {7, 10}, "again": {0, 0}, "moved": {0, 0}, "batch": {28, 40}})
	w.fannedOut("batch", ingestion.Outcome{Outcome: ingestion.Unchanged, Revision: 1},
		ingestion.Outcome{Outcome: ingestion.Created, Revision: 1}, ingestion.Outcome{Outcome: ingestion.Deleted},
		ingestion.Outcome{Outcome: ingestion.Moved, Revision: 3})
	want(map[string][2]int64{"batch": {7, 10}})
	w.deleted("d", "b", true)
	w.kept("d", "b", deletion.RetainedFact{
		IngestionID: id("batch"), Ordinal: 1, Items: 4, Bytes: 7, CreditTenths: 10, Month: "2026-11",
		Outcome: ingestion.Created, Revision: 1,
	})
	w.kept("d2", "gone before", deletion.RetainedFact{
		IngestionID: id("old"), Items: 1, Bytes: 9, CreditTenths: 10, Month: "2026-11", Outcome: ingestion.Updated,
		Revision: 2,
	},
		deletion.RetainedFact{
			IngestionID: id("old again"), Items: 1, Bytes: 9, Month: "2026-11", Outcome: ingestion.Unchanged,
			Revision: 2,
		})
	want(map[string][2]int64{"batch": {7, 10}, "old": {9, 10}, "old again": {0, 0}})
}

// A batch counts in the month of its commit, as priced there; its fan-out prices it again.
func TestCounts_Month(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	want := func(month string, ingested, tenths int64) {
		t.Helper()
		w.apply()
		counts, err := w.Queries.Counts(t.Context(), w.Queries.DB, []uuid.UUID{project.ID, neighbour.ID}, month)
		runtest.Must(t, err)
		if got := counts[project.ID]; got.Ingested != ingested || got.CreditTenths != tenths {
			t.Errorf("%s counts %d for %d, want %d for %d", month, got.Ingested, got.CreditTenths, ingested, tenths)
		}
		if got := counts[neighbour.ID]; got != (datapoints.Counts{}) {
			t.Errorf("the neighbour has %+v", got)
		}
	}
	want("2026-11", 0, 0)
	w.revised("single", "a", alone)
	want("2026-11", 1, 10)
	want("2026-10", 0, 0)
	accepted := &ingestion.Accepted{ProjectID: w.project, AcceptedAt: w.at(), Month: "2026-12", Items: []ingestion.Item{
		{DataPoint: id("a"), Bytes: 700}, {DataPoint: id("b"), Bytes: 351, CreditTenths: 20},
	}}
	w.Append(stream.Name(stream.Ingestion, id("batch")), accepted)
	want("2026-12", 1, 20)
	w.fannedOut("batch", ingestion.Outcome{Outcome: ingestion.Updated, Revision: 2},
		ingestion.Outcome{Outcome: ingestion.Created, Revision: 1})
	want("2026-12", 2, 40)
	w.deleted("d", "a", true)
	want("2026-11", 1, 10)
	want("2026-12", 2, 40)
}

func sendStates(t *testing.T, tx pgx.Tx) (map[uuid.UUID]projectiontest.SendState, error) {
	t.Helper()
	rows, err := tx.Query(t.Context(), `select id, item_count, bytes, credit_tenths, phase, failure_open
		from datapoints.sends`)
	if err != nil {
		return nil, err
	}
	states := map[uuid.UUID]projectiontest.SendState{}
	var id uuid.UUID
	var s projectiontest.SendState
	_, err = pgx.ForEachRow(rows, []any{&id, &s.Items, &s.Bytes, &s.CreditTenths, &s.Phase, &s.Counts}, func() error {
		states[id] = s
		return nil
	})
	return states, err
}

// totalsOf reads what GET /api/v1/projects and the polls of sends return.
func totalsOf(t *testing.T, tx pgx.Tx) (map[uuid.UUID]projectiontest.Totals, error) {
	t.Helper()
	rows, err := tx.Query(t.Context(), `select r.id, coalesce(c.raw, 0), coalesce(c.comprehension, 0),
		coalesce(c.failed, 0),
			(select coalesce(sum(live), 0)::bigint from datapoints.scopes l where l.project_id = r.id),
			coalesce(u.ingestions, 0), coalesce(u.credit_tenths, 0)
		from (select distinct project_id as id from datapoints.sends) r left join datapoints.readiness c
			on c.project_id = r.id
			left join (select project_id as id, sum(ingestions)::bigint as ingestions, sum(credit_tenths)::bigint
				as credit_tenths
				from datapoints.month_usage group by 1) u on u.id = r.id`)
	if err != nil {
		return nil, err
	}
	totals := map[uuid.UUID]projectiontest.Totals{}
	var id uuid.UUID
	var sum projectiontest.Totals
	_, err = pgx.ForEachRow(rows, []any{
		&id, &sum.Raw, &sum.Comprehension, &sum.Failed, &sum.Live, &sum.Ingested, &sum.CreditTenths,
	}, func() error {
		sum.Scopes = map[uuid.UUID]int64{}
		totals[id] = sum
		return nil
	})
	if err != nil {
		return nil, err
	}
	rows, err = tx.Query(t.Context(), `select project_id, audience, live + memories from datapoints.scopes`)
	if err != nil {
		return nil, err
	}
	var audience uuid.UUID
	var n int64
	_, err = pgx.ForEachRow(rows, []any{&id, &audience, &n}, func() error {
		totals[id].Scopes[audience] = n
		return nil
	})
	return totals, err
}
