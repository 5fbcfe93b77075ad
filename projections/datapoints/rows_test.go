package datapoints_test

import (
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/projections/datapoints"
)

// sendRow is what a test expects of a send.
type sendRow struct {
	Phase         string
	Settled       time.Time // zero for none
	Code          string
	FailureCounts bool
	Round         int
}

func (w *fixture) sends() map[uuid.UUID]sendRow {
	w.t.Helper()
	rows, err := w.Queries.DB.Query(w.t.Context(), `select id, phase, coalesce(settled_at, '0001-01-01Z'),
		coalesce(failure_code, ''), failure_stands, round from datapoints.sends`)
	if err != nil {
		w.t.Fatal(err)
	}
	sends := map[uuid.UUID]sendRow{}
	var (
		send uuid.UUID
		row  sendRow
	)
	if _, err := pgx.ForEachRow(rows, []any{
		&send, &row.Phase, &row.Settled, &row.Code, &row.FailureCounts, &row.Round,
	}, func() error {
		sends[send] = row
		return nil
	}); err != nil {
		w.t.Fatal(err)
	}
	return sends
}

func (w *fixture) shown(send string) []datapoints.Item {
	w.t.Helper()
	items, total, err := w.Queries.Items(w.t.Context(), project, id(send), 100)
	if err != nil || total != len(items) {
		w.t.Fatalf("items of %s: %d of %d, %v", send, len(items), total, err)
	}
	return items
}
