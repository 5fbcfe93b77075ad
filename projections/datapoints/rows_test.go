package datapoints_test

import (
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/projections/datapoints"
)

// sendRow is what a test expects of a send.
type sendRow struct {
	Phase       string
	Settled     time.Time // zero for none
	Code        string
	FailureOpen bool
	Round       int
}

func (w *fixture) sends() map[uuid.UUID]sendRow {
	w.t.Helper()
	rows, err := w.Queries.DB.Query(w.t.Context(), `select id, phase, coalesce(settled_at, '0001-01-01Z'),
		coalesce(failure_code, ''), failure_open, round from datapoints.sends`)
	if err != nil {
		w.t.Fatal(err)
	}
	sends := map[uuid.UUID]sendRow{}
	var (
		send uuid.UUID
		row  sendRow
	)
	if _, err := pgx.ForEachRow(rows, []any{
		&send, &row.Phase, &row.Settled, &row.Code, &row.FailureOpen, &row.Round,
	}, func() error {
		sends[send] = row
		return nil
	}); err != nil {
		w.t.Fatal(err)
	}
	return sends
}

// shown returns the items of a send, with what the fold derives.
func (w *fixture) shown(send string) []datapoints.Item {
	w.t.Helper()
	s, _, err := w.Queries.Explain(w.t.Context(), project, id(send), 100, 0)
	if err != nil {
		w.t.Fatalf("items of %s: %v", send, err)
	}
	for n := range s.Items { // these are of TestExplain
		s.Items[n].SourceID, s.Items[n].Searchable, s.Items[n].Memories = "", false, 0
	}
	return s.Items
}
