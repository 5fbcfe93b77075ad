package datapoints_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/projections/datapoints"
)

// Whatever happens to sends and data points, and whatever of it was erased since: the tables say of each send and each project
// what those know who wrote the log.
func TestCountersAreThoseOfTheWriters(tt *testing.T) {
	db, p := pgtest.Database(tt), datapoints.New()
	projectiontest.Make(tt, db, p)
	rapid.Check(tt, func(t *rapid.T) {
		h := projectiontest.DrawHistory(t)
		facts := h.Facts
		if rapid.Bool().Draw(t, "erased streams are gone") {
			facts = h.WithoutErased(t)
		}
		err := projectiontest.Look(tt.Context(), db, p, projectiontest.Cut(t, facts), func(tx pgx.Tx) error {
			sends, err := sendStates(tt, tx)
			if err != nil {
				return err
			}
			if diff := cmp.Diff(h.Sends(), sends); diff != "" {
				t.Errorf("sends (-writers +tables):\n%s", diff)
			}
			totals, err := totalsOf(tt, tx)
			if err != nil {
				return err
			}
			if diff := cmp.Diff(h.Totals(), totals); diff != "" {
				t.Errorf("projects (-writers +tables):\n%s", diff)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

func sendStates(t *testing.T, tx pgx.Tx) (map[uuid.UUID]projectiontest.SendState, error) {
	t.Helper()
	rows, err := tx.Query(t.Context(), `select id, item_count, bytes, credit_tenths, phase, failure_stands from datapoints.sends`)
	if err != nil {
		return nil, err
	}
	states := map[uuid.UUID]projectiontest.SendState{}
	var id [16]byte
	var s projectiontest.SendState
	_, err = pgx.ForEachRow(rows, []any{&id, &s.Items, &s.Bytes, &s.CreditTenths, &s.Phase, &s.Stands}, func() error {
		states[id] = s
		return nil
	})
	return states, err
}

// totalsOf counts as GET /api/v1/projects and the polls of sends do.
func totalsOf(t *testing.T, tx pgx.Tx) (map[uuid.UUID]projectiontest.Totals, error) {
	t.Helper()
	rows, err := tx.Query(t.Context(), `select r.id, coalesce(c.raw, 0), coalesce(c.comprehension, 0), coalesce(c.failed, 0),
			(select count(*) from datapoints.data_points d where d.project_id = r.id),
			(select count(*) from datapoints.sends s join datapoints.items i on i.ingestion_id = s.id
				where s.project_id = r.id and s.month = '2026-11' and i.outcome in ('created', 'updated'))
		from (select distinct project_id as id from datapoints.sends) r left join datapoints.readiness c on c.project_id = r.id`)
	if err != nil {
		return nil, err
	}
	totals := map[uuid.UUID]projectiontest.Totals{}
	var id [16]byte
	var sum projectiontest.Totals
	_, err = pgx.ForEachRow(rows, []any{&id, &sum.Raw, &sum.Comprehension, &sum.Failed, &sum.Live, &sum.Ingested}, func() error {
		totals[id] = sum
		return nil
	})
	return totals, err
}
