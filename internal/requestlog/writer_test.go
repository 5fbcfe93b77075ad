package requestlog

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/pg/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// hang is a deadline for what hangs.
const hang = 2 * time.Minute

// harness is a request log on a database of its own.
type harness struct {
	*Log
	*Writer
	db *pgxpool.Pool
}

func newHarness(t testing.TB) *harness {
	t.Helper()
	db := pgtest.Database(t)
	return &harness{
		Log: &Log{DB: db}, db: db,
		Writer: NewWriter(db, metering.DefaultPlanTerms(), slog.New(slog.DiscardHandler)),
	}
}

// add reserves room for calls, adds them, and writes them.
func (h *harness) add(t testing.TB, records ...Record) {
	t.Helper()
	for _, r := range records {
		hold, err := h.Open(t.Context(), allowance.Owner{Organization: r.Project})
		if err != nil {
			t.Fatal(err)
		}
		r.Hold = hold
		h.Add(r)
	}
	h.flushAll(t)
}

func (h *harness) flushAll(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	h.drain(ctx)
	if n := h.room.InUse(); n != 0 {
		t.Fatalf("after a flush %d bytes are reserved", n)
	}
}

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// recordAt is a record of a call of a project at a time.
func recordAt(project uuid.UUID, at time.Time) Record {
	return Record{
		RequestID: idAt(at), Project: project, ReceivedAt: at, Endpoint: "POST /api/v1/ingest", Path: "/api/v1/ingest",
		Status: 202, Duration: 1500 * time.Microsecond, Key: Key{Name: "first", Prefix: "svc_sk_ab12"},
		Plan:    string(metering.SelfHosted),
		Payload: &Payload{Request: []byte(`{"content":"a"}`), Response: []byte(`{}`)}, RequestBytes: 15, ResponseBytes: 2,
	}
}

// idAt returns a UUIDv7 of a time.
func idAt(at time.Time) uuid.UUID {
	id := uuid.Must(uuid.NewV7())
	millis := at.UnixMilli()
	for i := range 6 {
		id[i] = byte(millis >> (8 * (5 - i))) //nolint:gosec // the low 8 bits
	}
	return id
}

// pick returns one of some values.
func pick[T any](r *rand.Rand, values ...T) T { return values[r.IntN(len(values))] }

func TestWriter_RoundTrip(t *testing.T) {
	h := newHarness(t)
	project, send, credits := uuid.New(), uuid.New(), int64(35)
	r := recordAt(project, noon)
	r.Identity, r.IngestionID, r.CreditTenths, r.Person = "ana", send, &credits, uuid.New()
	r.IDs, r.Hits = []uuid.UUID{uuid.New()}, []uuid.UUID{uuid.New(), uuid.New()}
	r.RequestHeader = http.Header{"Accept": {"a", "b"}, "Authorization": {"Bearer svc_sk_x"}, "Cookie": {"c"}}
	r.ResponseHeader = http.Header{"Content-Type": {"application/json"}, "X-Request-Id": {"i"}}
	r.Payload = &Payload{
		Request: []byte("\x00\xff<"), Response: bytes.Repeat([]byte("ab"), MaxBody/2), ResponseTruncated: true,
	}
	h.add(t, r)
	got, err := h.Get(t.Context(), project, r.RequestID)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r.Payload, got.Payload); diff != "" {
		t.Error(diff)
	}
	if string(got.RequestHeaders) != `{"accept":"a, b"}` ||
		string(got.ResponseHeaders) != `{"content-type":"application/json"}` {
		t.Errorf("headers are %s and %s", got.RequestHeaders, got.ResponseHeaders)
	}
	want := Entry{
		RequestID: r.RequestID, Project: project, ReceivedAt: noon, Endpoint: r.Endpoint, Method: "POST", Path: r.Path,
		Status: 202, Duration: r.Duration, Key: r.Key, Identity: &r.Identity, IngestionID: &send, CreditTenths: &credits,
		Person: &r.Person,
	}
	if diff := cmp.Diff(want, got.Entry); diff != "" {
		t.Error(diff)
	}
	logged, err := h.Logged(t.Context(), project, []uuid.UUID{r.RequestID, idAt(noon), uuid.New()})
	if diff := cmp.Diff(map[uuid.UUID]bool{r.RequestID: true}, logged); diff != "" || err != nil {
		t.Error(diff, err)
	}
	logged, err = h.Logged(t.Context(), uuid.New(), []uuid.UUID{r.RequestID})
	if len(logged) > 0 || err != nil {
		t.Error("another project has the call", err)
	}
	hits, err := h.Hits(t.Context(), project, []uuid.UUID{r.Hits[1], uuid.New()}, noon, noon.Add(time.Second), 10)
	if diff := cmp.Diff([]Hit{{r.RequestID, noon, "ana", r.Hits[1], 2}}, hits); diff != "" || err != nil {
		t.Error(diff, err)
	}
	of, err := h.Recalled(t.Context(), project, r.IDs[0], noon, noon.Add(time.Second), 10)
	if diff := cmp.Diff([]Hit{{RequestID: r.RequestID, ReceivedAt: noon, Identity: "ana"}}, of); diff != "" || err != nil {
		t.Error(diff, err)
	}
	for name, c := range map[string]struct {
		project, dataPoint uuid.UUID
		from               time.Time
	}{
		"another project":    {uuid.New(), r.IDs[0], noon},
		"another data point": {project, uuid.New(), noon},
		"another time":       {project, r.IDs[0], noon.Add(time.Microsecond)},
	} {
		of, err := h.Recalled(t.Context(), c.project, c.dataPoint, c.from, noon.Add(time.Hour), 10)
		if len(of) > 0 || err != nil {
			t.Errorf("%s: %v, %v", name, of, err)
		}
	}
	for name, get := range map[string]func() error{
		"another project": func() error { _, err := h.Get(t.Context(), uuid.New(), r.RequestID); return err },
		"another id":      func() error { _, err := h.Get(t.Context(), project, idAt(noon)); return err },
		"no v7":           func() error { _, err := h.Get(t.Context(), project, uuid.New()); return err },
	} {
		if f, is := errors.AsType[*fault.Error](get()); !is || f.Code != fault.CodeNotFound {
			t.Errorf("%s: not a not-found", name)
		}
	}
	hits, err = h.Hits(t.Context(), uuid.New(), r.Hits, noon, noon.Add(time.Second), 10)
	if len(hits) > 0 || err != nil {
		t.Errorf("another project reads %v, %v", hits, err)
	}
}

// TestWriter_RepeatedBatch writes a batch whose first commit was not answered.
func TestWriter_RepeatedBatch(t *testing.T) {
	h := newHarness(t)
	project := uuid.New()
	batch := []row{rowOf(recordAt(project, noon)), rowOf(recordAt(project, noon.Add(time.Hour)))}
	for range 2 {
		if err := h.flush(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
	}
	page, err := h.List(t.Context(), project, Query{From: noon, To: noon.AddDate(0, 0, 1), First: 10})
	if err != nil || page.TotalCount != 2 || len(page.Entries) != 2 {
		t.Errorf("%d of %d calls, %v", len(page.Entries), page.TotalCount, err)
	}
}

// TestWriter_RefusedRow has a call that no database can hold among others.
func TestWriter_RefusedRow(t *testing.T) {
	h := newHarness(t)
	var log bytes.Buffer
	h.log = slog.New(slog.NewTextHandler(&log, nil))
	project := uuid.New()
	batch := make([]row, 9)
	for i := range batch {
		batch[i] = rowOf(recordAt(project, noon.Add(time.Duration(i)*time.Second)))
	}
	batch[4].path = "\x00"
	if err := h.flush(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	page, err := h.List(t.Context(), project, Query{From: noon, To: noon.AddDate(0, 0, 1), First: 10})
	if err != nil || page.TotalCount != 8 || len(page.Entries) != 8 {
		t.Errorf("%d of %d calls, %v", len(page.Entries), page.TotalCount, err)
	}
	if !strings.Contains(log.String(), batch[4].requestID.String()) {
		t.Errorf("the log does not name the dropped call: %s", log.String())
	}
}

func TestWriter_FlushAtShutdown(t *testing.T) {
	h := newHarness(t)
	project := uuid.New()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := recordAt(project, noon)
	h.Add(r)
	if err := h.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Get(t.Context(), project, r.RequestID); err != nil {
		t.Error(err)
	}
}

// TestWriter_FullQueue fills the share of an organization: its next call is refused after a wait, a
// neighbour's is not, and a flush makes room again.
func TestWriter_FullQueue(t *testing.T) {
	h := newHarness(t)
	organization := uuid.New()
	h.room = allowance.New(allowance.Config{
		Total: 4 * RowBytes, Share: 2 * RowBytes, Wait: time.Millisecond, Waiters: 10, Refusal: "full",
	})
	var holds []*allowance.Hold
	for range 2 {
		hold, err := h.Open(t.Context(), allowance.Owner{Organization: organization})
		if err != nil {
			t.Fatal(err)
		}
		holds = append(holds, hold)
	}
	if _, err := h.Open(t.Context(), allowance.Owner{Organization: organization}); err == nil {
		t.Error("a third call has room")
	}
	neighbour, err := h.Open(t.Context(), allowance.Owner{Organization: uuid.New()})
	if err != nil {
		t.Errorf("the neighbour has no room: %v", err)
	}
	neighbour.Release()
	for i, hold := range holds {
		r := recordAt(organization, noon.Add(time.Duration(i)))
		r.Hold = hold
		h.Add(r)
	}
	h.flushAll(t)
	if _, err := h.Open(t.Context(), allowance.Owner{Organization: organization}); err != nil {
		t.Errorf("after a flush there is no room: %v", err)
	}
}

// TestWriter_DatabaseAway adds calls while the database does not answer: they are written once it
// does.
func TestWriter_DatabaseAway(t *testing.T) {
	h := newHarness(t)
	project := uuid.New()
	working := h.Writer.db
	away, err := working.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := away.Exec(t.Context(), "lock table ops.request_counts in access exclusive mode"); err != nil {
		t.Fatal(err)
	}
	r := recordAt(project, noon)
	h.Add(r)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	if err := away.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	until := time.Now().Add(hang)
	for err := errors.New("not read"); err != nil; _, err = h.Get(t.Context(), project, r.RequestID) {
		if time.Now().After(until) {
			t.Fatal(err)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestWriter_Keeps(t *testing.T) {
	terms := metering.DefaultPlanTerms()
	none := terms[metering.Flex]
	none.RetentionDays = 0
	terms[metering.Flex] = none
	w := NewWriter(nil, terms, slog.New(slog.DiscardHandler))
	if !w.RetainsBodies("") || !w.RetainsBodies(metering.PayAsYouGo) || w.RetainsBodies(metering.Flex) {
		t.Error("bodies are kept under the wrong plans")
	}
}

func TestRedact_Keys(t *testing.T) {
	for in, want := range map[string]string{
		`{"a":"svc_sk_abc-D_1"}`:                      `{"a":"svc_sk_redacted"}`,
		`svc_mk_x svc_sk_y`:                           `svc_mk_redacted svc_sk_redacted`,
		`"\u0073vc_sk\u005fabc\u0041b"`:               `"\u0073vc_sk\u005fredacted"`,
		`svc_sk_ is a prefix, svc_xk_a none`:          `svc_sk_ is a prefix, svc_xk_a none`,
		`\u0073\u0076\u0063\u005F\u006D\u006B\u005Fa`: `\u0073\u0076\u0063\u005F\u006D\u006B\u005Fredacted`,
	} {
		if got := string(redact([]byte(in))); got != want {
			t.Errorf("%s became %s, want %s", in, got, want)
		}
	}
	for _, c := range []struct{ template, path, want string }{
		{"/data-points/{sourceId}", "/data-points/svc%5Fsk%5Fabc", "/data-points/svc_sk_redacted"},
		{"/identities/{identity}", "/identities/svc_sk_abc", "/identities/svc_sk_redacted"},
		{"/webhooks/{webhookId}/{token}", "/webhooks/whk_1/token", "/webhooks/whk_1"},
		{"/webhooks/{webhookId}/{token}", "/%77ebhooks/whk_1/token", "/%77ebhooks/whk_1"},
		{"/*", "/webhooks", "/*"},
		{"/*", "/webhooks/whk_1/token/", "/*"},
		{"/data-points/{sourceId}", "/data-points/a/b", "/data-points/{sourceId}"},
		{"/data-points/{sourceId}", "/data-points/a%2Fb", "/data-points/a%2Fb"},
		{"/x/{a}", "/x/" + strings.Repeat("a", maxPath), "/x/" + strings.Repeat("a", maxPath-10)},
	} {
		const prefix = "/api/v1"
		if got := redactPath("GET "+prefix+c.template, prefix+c.path); got != prefix+c.want {
			t.Errorf("%s of %s became %s, want %s", c.path, c.template, got, c.want)
		}
	}
}
