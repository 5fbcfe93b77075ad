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

// blankPerson takes all slices of a run, and returns its counts and how many slices it took.
func blankPerson(t *testing.T, b *Blanker, project uuid.UUID) (calls int, called bool, slices int) {
	t.Helper()
	r := PersonRun{Project: project, Identity: "ana"}
	for done := false; !done; slices++ {
		var err error
		if done, err = b.BlankPerson(t.Context(), &r); err != nil {
			t.Fatal(err)
		}
	}
	return r.Calls, r.Called, slices
}

// No text is searched: the name may be in it in any spelling.
func TestBlankPerson_StoredCalls(t *testing.T) {
	h := newHarness(t)
	project, other := uuid.New(), uuid.New()
	dropped := "$.author is An\u0061 M\u00fcller"
	var records []Record
	add := func(change func(*Record)) {
		r := recordAt(project, noon.AddDate(0, 0, len(records)%3).Add(time.Duration(len(records))*time.Second))
		change(&r)
		records = append(records, r)
	}
	add(func(r *Record) { r.Identity = "ana" })
	add(func(r *Record) { r.Endpoint, r.Path = "GET /api/v1/identities/{identity}", "/api/v1/identities/%61na" })
	add(func(r *Record) { r.RequestHeader = map[string][]string{"User-Agent": {"curl of ana"}} })
	add(func(r *Record) { r.Payload.Request = []byte(`[{"identity":"a n a"}]`) })
	add(func(r *Record) { r.Status, r.Payload.Request = 400, []byte("\xff\xfea\x00n\x00a\x00") }) // a late refused send in UTF-16
	add(func(r *Record) { r.Payload.RequestTruncated = true })
	add(func(r *Record) {
		r.Payload, r.Webhook = nil, &Webhook{ID: "whk_1", Name: "CI", EventID: "evt_1", Verdict: "dropped", DroppedBy: &dropped}
	})
	add(func(r *Record) { r.Identity, r.Payload = "bo", nil })
	add(func(r *Record) { r.Project, r.Identity = other, "ana" })
	h.add(t, records...)
	b := &Blanker{DB: h.db}
	for run := range 2 {
		calls, called, _ := blankPerson(t, b, project)
		if want := []int{7, 0}[run]; calls != want || called != (run == 0) {
			t.Fatalf("run %d: %d calls, as the person %v", run, calls, called)
		}
		if err := b.DirtyAll(t.Context()); err != nil {
			t.Fatal(err)
		}
		tables, err := b.Tables(t.Context())
		if err != nil || len(tables) < 6 {
			t.Errorf("run %d: tables %v, %v", run, tables, err)
		}
	}
	if has := h.payloads(t, records); slices.Contains(has[:8], true) || !has[8] {
		t.Errorf("calls with bodies: %v", has)
	}
	for n, r := range records {
		call, err := h.Get(t.Context(), r.Project, r.RequestID)
		if err != nil {
			t.Fatal(err)
		}
		_, template, _ := strings.Cut(r.Endpoint, " ")
		blank := call.Path == template && string(call.RequestHeaders) == "{}" && (call.Identity == nil || *call.Identity == "bo") &&
			(call.Webhook == nil || call.Webhook.DroppedBy == nil && call.Webhook.Verdict == "dropped" && call.Webhook.Name == "CI")
		if kept := n == 8; kept == blank {
			t.Errorf("call %d: %+v", n, call.Entry)
		}
		if n == 7 && call.Identity == nil {
			t.Error("the identity of another person is blanked")
		}
	}
}

// The recalls as an identity are found until the person is erased, and those of others after it.
func TestRecalledAs_UntilErased(t *testing.T) {
	h := newHarness(t)
	project, other := uuid.New(), uuid.New()
	var records []Record
	for n := range 12 {
		r := recordAt(project, noon.Add(time.Duration(n)*13*time.Hour))
		r.Endpoint, r.Identity = "POST /api/v1/recall", []string{"ana", "bo"}[n%2]
		switch n {
		case 2:
			r.Endpoint = "POST /api/v1/ingest" // as the author
		case 4:
			r.Project = other
		case 6:
			r.Hits = []uuid.UUID{uuid.New()}
		}
		records = append(records, r)
	}
	h.add(t, records...)
	found := func(in uuid.UUID, as string, limit int) (at []int) {
		t.Helper()
		hits, err := h.RecalledAs(t.Context(), in, as, noon.Add(time.Hour), noon.AddDate(0, 0, 30), limit)
		if err != nil {
			t.Fatal(err)
		}
		for _, hit := range hits {
			at = append(at, slices.IndexFunc(records, func(r Record) bool { return r.RequestID == hit.RequestID }))
		}
		return at
	}
	want := func(in uuid.UUID, as string, limit int, want ...int) {
		t.Helper()
		if got := found(in, as, limit); !slices.Equal(got, want) {
			t.Errorf("recalls as %s: %v, want %v", as, got, want)
		}
	}
	want(project, "ana", 9, 10, 8, 6)
	want(project, "ana", 2, 10, 8)
	want(other, "ana", 9, 4)
	want(project, "none", 9)
	blankPerson(t, &Blanker{DB: h.db}, project)
	want(project, "ana", 9)
	want(other, "ana", 9, 4)
	want(project, "bo", 9, 11, 9, 7, 5, 3, 1)
	var keys int
	if err := h.db.QueryRow(t.Context(), `select count(identity_key) from ops.requests`).Scan(&keys); err != nil || keys != 7 {
		t.Errorf("%d calls are found by a key, %v", keys, err)
	}
}

// More calls than one slice blanks.
func TestBlankPerson_Slices(t *testing.T) {
	h := newHarness(t)
	project := uuid.New()
	var records []Record
	for i := range 2*blankedRows + 1 {
		records = append(records, recordAt(project, noon.Add(time.Duration(i/3)*time.Second)))
	}
	for part := range slices.Chunk(records, 500) { // fewer than wait for room at once
		h.add(t, part...)
	}
	calls, called, n := blankPerson(t, &Blanker{DB: h.db}, project)
	if calls != len(records) || called || n != 3 {
		t.Errorf("%d calls of %d in %d slices, as the person %v", calls, len(records), n, called)
	}
	if has := h.payloads(t, records); slices.Contains(has, true) {
		t.Error("a body is left")
	}
}

// A call waits in the memory of another process while a person of its project is erased.
func TestBlankPerson_CallInMemory(t *testing.T) {
	h := newHarness(t)
	writer := NewWriter(h.db, metering.DefaultPlanTerms(), slog.New(slog.DiscardHandler))
	project := uuid.New()
	records := []Record{recordAt(project, noon), recordAt(uuid.New(), noon), recordAt(project, noon)}
	for i := range records {
		records[i].Identity, records[i].Endpoint, records[i].Path = "ana", "GET /api/v1/identities/{identity}", "/api/v1/identities/ana"
		records[i].Webhook = &Webhook{ID: "whk_1", DroppedBy: &records[i].Identity}
	}
	writer.Add(records[0])
	writer.Add(records[1])
	if _, _, n := blankPerson(t, &Blanker{DB: h.db}, project); n != 1 {
		t.Errorf("%d slices of nothing", n)
	}
	writer.drain(t.Context())
	writer.Add(records[2]) // a later call
	writer.drain(t.Context())
	if has := h.payloads(t, records); !slices.Equal(has, []bool{false, true, true}) {
		t.Errorf("calls with bodies: %v", has)
	}
	call, err := h.Get(t.Context(), project, records[0].RequestID)
	if err != nil || call.Identity != nil || call.Webhook == nil || call.Webhook.DroppedBy != nil || call.Path != "/api/v1/identities/{identity}" {
		t.Errorf("%+v, %v", call.Entry, err)
	}
}
