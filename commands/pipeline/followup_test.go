package pipeline

import (
	"testing"
)

// A deletion is recorded as cleaned only after the follow-ups that delete its rows, also those of another
// projection. Deletions without follow-ups do not wait for it.
func TestErase_WaitsForFollowUps(t *testing.T) {
	t.Parallel()
	w := newIdleHarness(t)
	for _, source := range []string{"a", "b"} {
		if _, err := w.write.Ingest(t.Context(), w.call, item(source, "text"), ""); err != nil {
			t.Fatal(err)
		}
	}
	var dataPoint string
	w.until("the data points are projected", func() bool {
		return w.db.QueryRow(t.Context(), `select id::text from datapoints.data_points where source_id = 'a'
			and exists (select from datapoints.data_points where source_id = 'b')`).Scan(&dataPoint) == nil
	})
	for _, source := range []string{"a", "b"} {
		if _, err := w.write.DeleteDataPoints(t.Context(), w.call, []string{source}); err != nil {
			t.Fatal(err)
		}
	}
	for n, schema := range []string{"datapoints", "memories"} {
		// As if the slices went on: no projector knows this kind of follow-up.
		if _, err := w.db.Exec(t.Context(), `insert into `+schema+`.follow_ups (kind, key, project_id, position, data, cursor)
			values ('test', $1::uuid, '00000000-0000-0000-0000-000000000000', 1, '', '')`, dataPoint); err != nil {
			t.Fatal(err)
		}
		done, err := w.finisher.EraseNow(t.Context())
		if err != nil || done.Deletions != 1-n || done.Left.Deletions != 1 {
			t.Errorf("with a follow-up of %s: %+v, %v", schema, done, err)
		}
		if _, err := w.db.Exec(t.Context(), `delete from `+schema+`.follow_ups`); err != nil {
			t.Fatal(err)
		}
	}
	done, err := w.finisher.EraseNow(t.Context())
	if err != nil || done.Deletions != 1 || done.Left.Deletions != 0 {
		t.Errorf("without follow-ups: %+v, %v", done, err)
	}
}
