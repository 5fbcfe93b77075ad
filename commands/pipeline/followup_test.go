package pipeline

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/annals-project/annals/commands/erasure"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections"
)

// A deletion is recorded as cleaned only after the follow-ups that delete its rows, also those of another
// projection. Deletions without follow-ups do not wait for it.
func TestErase_WaitsForFollowUps(t *testing.T) {
	t.Parallel()
	w := newIdleHarness(t)
	for _, source := range []string{"a", "b"} {
		w.ingest(item(source, "text"))
	}
	var dataPoint string
	w.until("the data points are projected", func() bool {
		return w.db.QueryRow(t.Context(), `select id::text from datapoints.data_points where source_id = 'a'
			and exists (select from datapoints.data_points where source_id = 'b')`).Scan(&dataPoint) == nil
	})
	for _, source := range []string{"a", "b"} {
		w.remove(source)
	}
	for n, schema := range []string{"datapoints", "memories"} {
		// As if the slices went on: no projector knows this kind of follow-up.
		if _, err := w.db.Exec(t.Context(), `insert into `+schema+`.follow_ups (kind, key, project_id, position, data, cursor)
			values ('test', $1::uuid, '00000000-0000-0000-0000-000000000000', 1, '', '')`, dataPoint); err != nil {
			t.Fatal(err)
		}
		runtest.Must(t, w.finisher.waitHead(t.Context(), projection.DataPoints, projection.Memories))
		var done erasure.Report
		w.finisher.round(t.Context(), true, &done)
		left, err := w.finisher.Pending(t.Context())
		if err = errors.Join(append(done.Errs(), err)...); err != nil || done.Deletions != 1-n || left.Deletions != 1 {
			t.Errorf("with a follow-up of %s: %+v, %d left, %v", schema, done, left.Deletions, err)
		}
		w.ok(w.db.Exec(t.Context(), `delete from `+schema+`.follow_ups`))
	}
	done, err := w.finisher.EraseNow(t.Context())
	if err != nil || done.Deletions != 1 || done.Left.Deletions != 0 {
		t.Errorf("without follow-ups: %+v, %v", done, err)
	}
}

// A data point with more revisions than a page deletes is erased like any other: nothing of it is left, the
// deletion is cleaned, and a rebuild has the same rows. ANNALS_TEST_REVISIONS sets how many there are.
func TestErase_ManyRevisions(t *testing.T) {
	t.Parallel()
	w := newIdleHarness(t)
	revisions := projections.SliceRows + 200
	if text := os.Getenv("ANNALS_TEST_REVISIONS"); text != "" {
		var err error
		if revisions, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	for n := range revisions {
		w.ingest(item("a", "text "+strconv.Itoa(n)))
	}
	w.remove("a")
	var live int
	if err := w.db.QueryRow(t.Context(), `select count(*) from datapoints.data_points`).Scan(&live); err != nil || live != 0 {
		t.Errorf("%d data points are live after the answer, %v", live, err)
	}
	w.until("the deletion is cleaned", func() bool {
		done, err := w.finisher.EraseNow(t.Context())
		runtest.Must(t, err)
		return done.Left.Deletions == 0
	})
	counts := func() (all string) {
		t.Helper()
		runtest.Must(t, w.db.QueryRow(t.Context(), `select format('%s revisions, %s items, %s deleted, %s indexed, %s ready',
			(select count(*) from datapoints.revisions), (select count(*) from datapoints.items),
			(select count(*) from datapoints.items where deleted_at is not null and phase = 'done'),
			(select count(*) from datapoints.sends where phase = 'indexed' and deleted = 1),
			(select sum(raw + comprehension + failed) from datapoints.readiness))`).Scan(&all))
		return all
	}
	want := fmt.Sprintf("0 revisions, %[1]d items, %[1]d deleted, %[1]d indexed, 0 ready", revisions)
	if got := counts(); got != want {
		t.Errorf("erased: %s, want %s", got, want)
	}
	runtest.Must(t, w.runtime.Rebuild(t.Context(), projection.DataPoints, nil))
	if got := counts(); got != want {
		t.Errorf("rebuilt: %s, want %s", got, want)
	}
}
