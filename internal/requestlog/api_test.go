package requestlog_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/requestlog"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/why"
	"github.com/annals-project/annals/readapi"
)

// api is an edge with a request log on a database.
type api struct {
	*apitest.Client
	db  *pgxpool.Pool
	log *requestlog.Log
	out *runtest.Output
	// flush ends the writer, which writes what is left.
	flush func()
}

// sends has no sends and no deletions.
type sends struct{}

func (sends) Phases(
	context.Context, auth.Project, []uuid.UUID,
) (map[uuid.UUID]datapoints.SendPhase, error) {
	return map[uuid.UUID]datapoints.SendPhase{}, nil
}

func (sends) Deleted(context.Context, auth.Project, []uuid.UUID) (map[uuid.UUID]bool, error) {
	return map[uuid.UUID]bool{}, nil
}

func (sends) AnyDeleted(context.Context, auth.Project, []uuid.UUID) (bool, error) { return false, nil }

func (sends) SourceIDs(context.Context, auth.Project, []uuid.UUID) (map[uuid.UUID]string, error) {
	return map[uuid.UUID]string{}, nil
}

// startAPI serves every route of the contract. The routes of the request log are real, the others return
// the body that they read.
func startAPI(t *testing.T) *api {
	t.Helper()
	a := &api{db: pgtest.Database(t), out: &runtest.Output{}}
	logger := slog.New(slog.NewJSONHandler(a.out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	writer := requestlog.NewWriter(a.db, metering.DefaultPlanTerms(), logger)
	a.log = &requestlog.Log{DB: a.db}
	e := httpx.New(httpx.Config{Calls: writer, Log: logger, Keys: apitest.Keys{}, URLs: apitest.URLs})
	terms := metering.DefaultPlanTerms()
	readapi.Register(e, readapi.Deps{
		Requests: why.Calls{Log: a.log, Sends: sends{}, PlanTerms: terms}, PlanTerms: terms,
	})
	for _, r := range auth.Routes() {
		if strings.Contains(r.Path, "/requests") {
			continue
		}
		e.Add(r.Method, r.Path, func(c echo.Context) error {
			if c.Request().ContentLength == 0 {
				return c.JSON(http.StatusOK, map[string]string{"key": "svc_sk_answered"})
			}
			body, err := httpx.Body(c, httpx.IngestLimit)
			if err != nil {
				return err
			}
			return c.Blob(http.StatusOK, "application/json", body)
		})
	}
	a.Client = apitest.StartEdge(t, readapi.OpenAPI, e)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- writer.Run(ctx) }()
	ended := false
	a.flush = func() {
		if ended {
			return
		}
		ended = true
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(a.flush)
	return a
}

// logged lists the calls of the project.
func (a *api) logged(t *testing.T) []requestlog.Entry {
	t.Helper()
	now := time.Now()
	page, err := a.log.List(t.Context(), apitest.Principal.Project.ID, requestlog.Query{
		From: now.Add(-time.Hour), To: now.Add(time.Hour), First: 100,
	})
	if err != nil {
		t.Fatal(err)
	}
	return page.Entries
}

// TestAPI_LoggedRoutes calls every route.
func TestAPI_LoggedRoutes(t *testing.T) {
	a := startAPI(t)
	want, parameters := map[string]bool{}, regexp.MustCompile(`:([A-Za-z]+)`)
	for _, r := range auth.Routes() {
		if r.Open || !r.Takes(auth.ProjectKey) {
			continue
		}
		path := r.Path
		for _, parameter := range []string{":ingestionId", ":requestId", ":rootId", ":id"} {
			path = strings.Replace(path, parameter, uuid.NewString(), 1)
		}
		a.Call(r.Method, strings.ReplaceAll(path, ":", ""), apitest.ProjectKey, "")
		debugging := strings.HasPrefix(path, "/api/v1/requests") || strings.HasPrefix(path, "/api/v1/trace") ||
			strings.HasSuffix(path, "/explain") || strings.HasSuffix(path, "/estimate")
		if !debugging {
			want[r.Method+" "+parameters.ReplaceAllString(r.Path, "{$1}")] = true
		}
	}
	a.Call(http.MethodGet, "/api/v1/nothing", apitest.ProjectKey, "")
	want["GET /api/v1/*"] = true
	a.Call(http.MethodGet, "/api/v1/usage", apitest.UnknownKey, "")
	a.flush()
	entries := a.logged(t)
	if len(entries) != len(want) || len(want) < 15 {
		t.Errorf("%d calls are logged, want %d", len(entries), len(want))
	}
	for _, e := range entries {
		if !want[e.Endpoint] {
			t.Errorf("%s is logged", e.Endpoint)
		}
		call, err := a.log.Get(t.Context(), e.Project, e.RequestID)
		if err != nil {
			t.Fatal(err)
		}
		bodiless := e.Endpoint == "GET /api/v1/usage" || e.Endpoint == "GET /api/v1/ingest/{ingestionId}"
		if bodiless != (call.Payload == nil) {
			t.Errorf("%s has the payload %v", e.Endpoint, call.Payload)
		}
	}
}

// TestAPI_Archived logs the refusal of a known project.
func TestAPI_Archived(t *testing.T) {
	a := startAPI(t)
	a.Call(http.MethodGet, "/api/v1/usage", apitest.ArchivedKey, "").Want(t, http.StatusForbidden, "project-archived")
	a.flush()
	if entries := a.logged(t); len(entries) != 1 || entries[0].ErrorCode != "project-archived" {
		t.Errorf("logged are %+v", entries)
	}
}

// TestAPI_Secrets sends keys in every place of a call, and looks for them in every table and in the log
// of the process.
func TestAPI_Secrets(t *testing.T) {
	a := startAPI(t)
	const other = "svc_mk_AAAABBBBCCCCDDDDEEEE"
	for _, key := range []string{apitest.ProjectKey, other} {
		a.Call(http.MethodPost, "/api/v1/ingest?key="+key, apitest.ProjectKey, `{"content":"`+key+`","`+key+`":1}`,
			"User-Agent", key, "Cookie", key, "X-Service-Project", key, "Traceparent", key)
		a.Call(http.MethodDelete, "/api/v1/data-points/"+key, apitest.ProjectKey, "")
		a.Call(http.MethodGet, "/api/v1/"+key, apitest.ProjectKey, "")
		escaped := strings.ReplaceAll(key, "_", "%5F")
		a.Call(http.MethodPut, "/api/v1/identities/"+escaped, apitest.ProjectKey, `{"a":"`+key+`"}`)
	}
	a.flush()
	if n := len(a.logged(t)); n != 8 {
		t.Fatalf("%d calls are logged", n)
	}
	rows, err := a.db.Query(t.Context(), `select table_name::text from information_schema.tables
		where table_schema = annals_schema_prefix() || 'ops'`)
	if err != nil {
		t.Fatal(err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	texts := []string{a.out.String()}
	for _, table := range tables {
		columns := "t::text"
		if strings.HasPrefix(table, "request_payloads") {
			columns = "encode(coalesce(request, ''), 'escape') || encode(coalesce(response, ''), 'escape')"
		}
		rows, err := a.db.Query(t.Context(), `select `+columns+` from `+pgx.Identifier{"ops", table}.Sanitize()+` t`)
		if err != nil {
			t.Fatal(err)
		}
		found, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, found...)
	}
	redacted := 0
	for _, text := range texts {
		redacted += strings.Count(text, "redacted")
		for _, secret := range []string{apitest.ProjectKey[10:], other[7:], "svc_sk_answered"} {
			if strings.Contains(text, secret) {
				t.Errorf("%q is in %.300s", secret, text)
			}
		}
	}
	if redacted < 8 {
		t.Errorf("%d keys are redacted", redacted)
	}
}

// TestAPI_BodyLimit sends bodies at both sides of the limit.
func TestAPI_BodyLimit(t *testing.T) {
	a := startAPI(t)
	for _, n := range []int{requestlog.MaxBody, requestlog.MaxBody + 1} {
		a.Call(http.MethodPost, "/api/v1/ingest", apitest.ProjectKey, `"`+strings.Repeat("a", n-2)+`"`)
	}
	a.flush()
	for _, e := range a.logged(t) {
		call, err := a.log.Get(t.Context(), e.Project, e.RequestID)
		if err != nil {
			t.Fatal(err)
		}
		cut := call.RequestBytes > requestlog.MaxBody
		p := call.Payload
		if p.RequestTruncated != cut || p.ResponseTruncated != cut || len(p.Request) != requestlog.MaxBody ||
			len(p.Response) != requestlog.MaxBody || call.ResponseBytes != call.RequestBytes {
			t.Errorf("of %d and %d bytes %d and %d are kept, truncated %v and %v", call.RequestBytes, call.ResponseBytes,
				len(p.Request), len(p.Response), p.RequestTruncated, p.ResponseTruncated)
		}
	}
}

// TestAPI_Queries has wrong and right parameters of the list.
func TestAPI_Queries(t *testing.T) {
	a := startAPI(t)
	for query, code := range map[string]string{
		"": "", "first=1": "", "first=100": "", "first=0": "first", "first=101": "first", "first=x": "first",
		"status=200&status=404": "", "status=20": "status", "status=x": "status", "statusClass=2xx&statusClass=5xx": "",
		"statusClass=3xx": "statusClass", "after=x": "after", "from=x": "from", "to=2026": "to", "search=%00": "search",
		"keyName=%ff": "keyName", "from=2026-10-01T00:00:00Z&to=2026-11-01T00:00:00Z": "",
		"from=2026-10-01T00:00:00Z&to=2026-11-01T00:00:00.000001Z": "range-too-wide",
		"from=2026-10-01T00:00:00Z&to=2026-10-01T00:00:00Z":        "",
		"from=2026-10-01T00:00:00.000001Z&to=2026-10-01T00:00:00Z": "invalid-range",
		"from=2026-10-01&to=2026-10-01":                            "",
		"from=2026-10-01T23:59:59.999999Z&to=2026-10-01":           "",
		"from=2026-10-02&to=2026-10-01":                            "invalid-range",
		"from=2026-10-01&to=2026-11-01":                            "",
		"from=2026-09-30T23:59:59.999999Z&to=2026-11-01":           "range-too-wide",
		"from=2026-09-30&to=2026-11-01":                            "range-too-wide",
		"from=9999-12-31&to=9999-12-31":                            "",
		"to=9999-12-31":                                            "",
	} {
		res := a.Call(http.MethodGet, "/api/v1/requests?"+query, apitest.ProjectKey, "")
		if strings.Contains(query, "to=") {
			status := http.StatusOK
			if code != "" {
				status = http.StatusBadRequest
			}
			a.Call(http.MethodGet, "/api/v1/requests/histogram?"+query, apitest.ProjectKey, "").Want(t, status, code)
		}
		switch {
		case code == "":
			res.Want(t, http.StatusOK, `"requests":[]`)
		case strings.Contains(code, "range"):
			res.Want(t, http.StatusBadRequest, `"code":"`+code+`"`)
		default:
			res.Want(t, http.StatusBadRequest, `"code":"invalid-request"`, `"field":"`+code+`"`)
		}
	}
}

// TestAPI_Detail reads a call through the API: list, histogram and detail agree with the contract.
func TestAPI_Detail(t *testing.T) {
	a := startAPI(t)
	a.Call(http.MethodPost, "/api/v1/ingest", apitest.ProjectKey, `{"content":"hello"}`)
	a.flush()
	id := a.logged(t)[0].RequestID
	for _, path := range []string{"/api/v1/requests", "/api/v1/requests?search=" + id.String()} {
		a.Call(http.MethodGet, path, apitest.ProjectKey, "").Want(t, http.StatusOK, `"totalCount":1`, id.String(),
			`"outcome":"Accepted"`, `"payloadRetentionDays":14`)
	}
	a.Call(http.MethodGet, "/api/v1/requests/histogram", apitest.ProjectKey, "").
		Want(t, http.StatusOK, `"bucketMinutes":15`, `"totals":{"accepted":1,"failedLater":0,"rejected":0}`)
	detail := a.Call(http.MethodGet, "/api/v1/requests/"+id.String(), apitest.ProjectKey, "")
	detail.Want(t, http.StatusOK, `"payloadExpired":false`)
	var body struct {
		Payload struct{ Request, Response string }
	}
	if err := json.Unmarshal([]byte(detail.Body), &body); err != nil {
		t.Fatal(err)
	}
	if body.Payload.Request != `{"content":"hello"}` || body.Payload.Response != body.Payload.Request {
		t.Errorf("payload is %+v", body.Payload)
	}
	a.Call(http.MethodGet, "/api/v1/requests/"+uuid.NewString(), apitest.ProjectKey, "").
		Want(t, http.StatusNotFound, "not-found")
}
