package requestlog

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/metering"
)

// payloads returns which of some calls have bodies.
func (h *harness) payloads(t *testing.T, records []Record) []bool {
	t.Helper()
	has := make([]bool, len(records))
	for i, r := range records {
		call, err := h.Get(t.Context(), r.Project, r.RequestID)
		if err != nil {
			t.Fatal(err)
		}
		has[i] = call.Payload != nil
	}
	return has
}

func TestBlank_StoredCalls(t *testing.T) {
	h := newHarness(t)
	project, dead, alive := uuid.New(), uuid.New(), uuid.New()
	records := make([]Record, 4)
	for i := range records {
		records[i] = recordAt(project, noon.Add(time.Duration(i)*time.Hour))
	}
	records[0].IDs, records[1].Hits, records[2].IDs = []uuid.UUID{alive, dead}, []uuid.UUID{dead}, []uuid.UUID{alive}
	records[0].Endpoint, records[0].Path = "DELETE /api/v1/data-points/{sourceId}", "/api/v1/data-points/secret"
	h.add(t, records...)
	b := &Blanker{DB: h.db}
	for range 2 {
		if err := b.Blank(t.Context(), []uuid.UUID{dead, uuid.New()}); err != nil {
			t.Fatal(err)
		}
		if has := h.payloads(t, records); !slices.Equal(has, []bool{false, false, true, true}) {
			t.Errorf("calls with bodies: %v", has)
		}
		tables, err := b.Tables(t.Context())
		want := []pgx.Identifier{{"ops", "request_payloads_20261120"}, {"ops", "requests_20261120"}}
		if err != nil || !slices.EqualFunc(tables, want, slices.Equal) {
			t.Errorf("tables to vacuum are %v, %v", tables, err)
		}
	}
	call, err := h.Get(t.Context(), project, records[0].RequestID)
	if err != nil || call.Path != "/api/v1/data-points/{sourceId}" {
		t.Errorf("path is %s, %v", call.Path, err)
	}
	if tables, err := b.Tables(t.Context()); len(tables) > 0 || err != nil {
		t.Errorf("tables are named again: %v, %v", tables, err)
	}
}

// TestBlank_CallInMemory deletes a data point while a call that carried it waits in the memory of
// another process.
func TestBlank_CallInMemory(t *testing.T) {
	h := newHarness(t)
	other := NewWriter(h.db, metering.DefaultPlanTerms(), slog.New(slog.DiscardHandler))
	project, dead := uuid.New(), uuid.New()
	records := []Record{recordAt(project, noon), recordAt(project, noon.Add(time.Second))}
	records[0].IDs = []uuid.UUID{dead}
	records[0].Endpoint, records[0].Path = "DELETE /api/v1/data-points/{sourceId}", "/api/v1/data-points/secret"
	for _, r := range records {
		other.Add(r)
	}
	if err := (&Blanker{DB: h.db}).Blank(t.Context(), []uuid.UUID{dead}); err != nil {
		t.Fatal(err)
	}
	other.drain(t.Context())
	if has := h.payloads(t, records); !slices.Equal(has, []bool{false, true}) {
		t.Errorf("calls with bodies: %v", has)
	}
	if call, err := h.Get(t.Context(), project, records[0].RequestID); err != nil || strings.Contains(call.Path, "secret") {
		t.Errorf("path is %s, %v", call.Path, err)
	}
}

// TestBlank_WaitsForFlush deletes a data point while a flush has written its call but not committed.
func TestBlank_WaitsForFlush(t *testing.T) {
	h := newHarness(t)
	project, dead := uuid.New(), uuid.New()
	r := recordAt(project, noon)
	r.IDs = []uuid.UUID{dead}
	if err := createDay(t.Context(), h.db, dayOf(noon)); err != nil {
		t.Fatal(err)
	}
	batch := []row{rowOf(r)}
	if err := h.storeKinds(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	tx, err := h.db.BeginTx(t.Context(), writing)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), shareDeletionLock); err != nil {
		t.Fatal(err)
	}
	if err := h.copyRows(t.Context(), tx, batch, nil); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- (&Blanker{DB: h.db}).Blank(context.WithoutCancel(t.Context()), []uuid.UUID{dead}) }()
	waiting := false
	for until := time.Now().Add(hang); !waiting && time.Now().Before(until); {
		if err := h.db.QueryRow(t.Context(), `select exists (select from pg_locks where locktype = 'advisory' and not granted
			and database = (select oid from pg_database where datname = current_database()))`).Scan(&waiting); err != nil {
			t.Fatal(err)
		}
	}
	if !waiting {
		t.Fatal("the deletion does not wait for the flush")
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if has := h.payloads(t, []Record{r}); has[0] {
		t.Error("the bodies are still there")
	}
}

// TestMaintainer_Retention has bodies of each plan at both sides of their retention.
func TestMaintainer_Retention(t *testing.T) {
	h := newHarness(t)
	terms := metering.DefaultPlanTerms()
	m := &Maintainer{DB: h.db, Terms: terms, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return noon }}
	project := uuid.New()
	var records []Record
	var want []bool
	for plan, t := range terms {
		for _, age := range []struct {
			add  time.Duration
			kept bool
		}{{time.Second, true}, {-time.Second, false}} {
			r := recordAt(project, noon.AddDate(0, 0, -t.RetentionDays).Add(age.add))
			r.Plan = string(plan)
			records, want = append(records, r), append(want, age.kept)
		}
	}
	h.add(t, records...)
	old := recordAt(project, dayOf(noon.Add(-Retention)).Add(-time.Second))
	young := recordAt(project, dayOf(noon.Add(-Retention)))
	h.add(t, old, young)
	for range 2 {
		if err := m.Maintain(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if has := h.payloads(t, records); !slices.Equal(has, want) {
		t.Errorf("calls with bodies: %v, want %v", has, want)
	}
	if _, err := h.Get(t.Context(), project, old.RequestID); err == nil {
		t.Error("a row is kept for too long")
	}
	if _, err := h.Get(t.Context(), project, young.RequestID); err != nil {
		t.Errorf("a row is dropped too early: %v", err)
	}
	q := Query{From: old.ReceivedAt.Add(-time.Hour), To: noon.Add(-80 * 24 * time.Hour), First: 9}
	page, err := h.List(t.Context(), project, q)
	if err != nil || page.TotalCount != 1 || len(page.Entries) != 1 {
		t.Errorf("%d of %d calls, %v", len(page.Entries), page.TotalCount, err)
	}
	var days int
	if err := h.db.QueryRow(t.Context(), `select count(*) from pg_class where relkind = 'r' and relname like 'requests\_2026112_'
		and relname > 'requests_20261120'`).Scan(&days); err != nil || days != ahead {
		t.Errorf("%d days ahead, want %d, %v", days, ahead, err)
	}
	m.Now = func() time.Time { return noon.Add(2 * time.Second) }
	if err := m.Maintain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if has := h.payloads(t, records); slices.Contains(has, true) {
		t.Errorf("calls with bodies two seconds later: %v", has)
	}
	// Partitions that were dropped come back for a late call.
	h.add(t, recordAt(project, old.ReceivedAt.Add(-time.Minute)))
}

// TestPartition_Statistics looks for statistics of columns with customer text.
func TestPartition_Statistics(t *testing.T) {
	h := newHarness(t)
	r := recordAt(uuid.New(), noon)
	r.Identity, r.IDs, r.Hits = "ana", []uuid.UUID{uuid.New()}, []uuid.UUID{uuid.New()}
	h.add(t, r)
	if _, err := h.db.Exec(t.Context(), "analyze"); err != nil {
		t.Fatal(err)
	}
	rows, err := h.db.Query(t.Context(), `select tablename || '.' || attname from pg_stats where schemaname = annals_schema_prefix() || 'ops'
		and tablename like 'request%' and attname in ('path', 'identity', 'request_headers', 'response_headers', 'webhook',
			'ids', 'hits', 'request', 'response')`)
	if err != nil {
		t.Fatal(err)
	}
	if names, err := pgx.CollectRows(rows, pgx.RowTo[string]); err != nil || len(names) > 0 {
		t.Errorf("there are statistics of %v, %v", names, err)
	}
}
