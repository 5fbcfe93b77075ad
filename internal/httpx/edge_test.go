package httpx_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
)

func TestErrors_Envelope(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		status int
		body   string
		header string
	}{
		"fault":            {fault.New(fault.Conflict, "conflict", "it raced"), 409, `{"code":"conflict","status":409,"debugMessage":"it raced","data":{}}`, ""},
		"fault with data":  {fault.New(fault.NotFound, fault.CodeDataPointNotFound, "gone").With("ids", []string{"<a>"}), 404, `"data":{"ids":["<a>"]}`, ""},
		"wrapped fault":    {fmt.Errorf("deep: %w", fault.New(fault.Invalid, fault.CodeAudienceUnknown, "no")), 400, `"code":"audience-unknown","status":400,"debugMessage":"no"`, ""},
		"unknown error":    {errors.New("select * from secrets"), 500, `"code":"internal","status":500`, ""},
		"deadline":         {fmt.Errorf("query: %w", context.DeadlineExceeded), 503, `"code":"timeout","status":503`, "5"},
		"unavailable":      {fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "later"), 503, `"code":"service-unavailable"`, "2"},
		"not ready":        {fault.New(fault.Unavailable, fault.CodeOrganizationNotReady, "later"), 503, `"code":"organization-not-ready"`, "5"},
		"pipeline off":     {fault.New(fault.Unavailable, fault.CodePipelineDisabled, "off"), 503, `"code":"pipeline-disabled"`, ""},
		"another code":     {fault.New(fault.Unavailable, "some-code", "later"), 503, `"code":"some-code"`, "2"},
		"wrapped":          {fmt.Errorf("deep: %w", fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "later")), 503, "later", "2"},
		"slow body":        {fault.New(fault.SlowBody, fault.CodeTimeout, "slow"), 408, `"code":"timeout"`, ""},
		"router's own 404": {echo.ErrNotFound, 404, `"code":"not-found"`, ""},
		"router's own 413": {echo.ErrStatusRequestEntityTooLarge, 500, `"code":"internal"`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			api, said := start(t, httpx.Config{}, at(http.MethodPost, "/ingest", func(echo.Context) error { return c.err }))
			got := api.Call(http.MethodPost, "/api/v1/ingest", apitest.ProjectKey, "")
			got.Want(t, c.status, c.body)
			if got.Header.Get("Retry-After") != c.header {
				t.Errorf("Retry-After %q, want %q", got.Header.Get("Retry-After"), c.header)
			}
			if strings.Contains(got.Body, "secrets") {
				t.Errorf("the cause is in the answer: %s", got.Body)
			}
			if c.status == 500 && !strings.Contains(said.String(), c.err.Error()) {
				t.Errorf("the cause is not in the log: %s", said)
			}
		})
	}
}

func TestRequest_Panic(t *testing.T) {
	api, said := start(t, httpx.Config{},
		at(http.MethodPost, "/ingest", func(echo.Context) error { panic("a bug with details") }))
	got := api.Call(http.MethodPost, "/api/v1/ingest", apitest.ProjectKey, "")
	got.Want(t, 500, `"code":"internal"`)
	if strings.Contains(got.Body, "details") {
		t.Errorf("the panic is in the answer: %s", got.Body)
	}
	if log := said.String(); strings.Count(log, "a bug with details") != 1 || !strings.Contains(log, "edge_test.go") ||
		!strings.Contains(log, got.Header.Get("X-Request-Id")) {
		t.Errorf("the log does not have the panic once, with its stack and request: %s", log)
	}
	api.Call(http.MethodPost, "/api/v1/ingest", apitest.ProjectKey, "").Want(t, 500)
}

func TestRequest_IDs(t *testing.T) {
	var seen uuid.UUID
	var at7 time.Time
	api, _ := start(t, httpx.Config{}, at(http.MethodPost, "/ingest", func(c echo.Context) error {
		seen, at7 = httpx.RequestID(c), httpx.ReceivedAt(c)
		return c.NoContent(http.StatusNoContent)
	}))
	mine := "01890000-0000-7000-8000-000000000000"
	got := api.Call(http.MethodPost, "/api/v1/ingest", apitest.ProjectKey, "", "X-Request-Id: "+mine)
	if id := got.Header.Get("X-Request-Id"); id != seen.String() || id == mine || seen.Version() != 7 {
		t.Errorf("header %q, handler %s: want one UUIDv7 that is not the caller's", id, seen)
	}
	if at7.Location() != time.UTC || !at7.Equal(at7.Truncate(time.Microsecond)) || time.Since(at7) > time.Minute {
		t.Errorf("received at %s", at7)
	}
	if got.Header.Get("Cache-Control") != "no-store" || got.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("headers %v", got.Header)
	}
	ids := map[string]bool{}
	for _, path := range []string{"/", "/api/v1/ingest", "/api/v1/nothing", "/.well-known/oauth-protected-resource"} {
		for _, method := range []string{http.MethodGet, http.MethodOptions, http.MethodHead, http.MethodPost} {
			id := api.Call(method, path, "", "").Header.Get("X-Request-Id")
			if parsed, err := uuid.Parse(id); err != nil || parsed.Version() != 7 || ids[id] {
				t.Errorf("%s %s: X-Request-Id %q", method, path, id)
			}
			ids[id] = true
		}
	}
}

func TestRequest_Deadline(t *testing.T) {
	api, _ := start(t, httpx.Config{Timeout: time.Millisecond}, at(http.MethodPost, "/ingest", func(c echo.Context) error {
		<-c.Request().Context().Done()
		return c.Request().Context().Err()
	}))
	api.Call(http.MethodPost, "/api/v1/ingest", apitest.ProjectKey, "").Want(t, 503, `"code":"timeout"`)
}

// An operator reads what was refused, failed or slow; the rest is for debugging.
func TestRequest_LevelOfItsLine(t *testing.T) {
	var answer error
	var took time.Duration
	now := time.Now()
	cfg := httpx.Config{Now: func() time.Time { return now }}
	cfg.Limit = func(auth.Principal) (time.Duration, bool) { return time.Second, took >= 0 }
	api, said := start(t, cfg, at(http.MethodPost, "/ingest", func(c echo.Context) error {
		now = now.Add(took)
		if answer != nil {
			return answer
		}
		return c.NoContent(http.StatusNoContent)
	}))
	line := regexp.MustCompile(`"level":"([A-Z]+)","msg":"request",.*`)
	for name, c := range map[string]struct {
		answer error
		took   time.Duration
		level  string
	}{
		"served":      {nil, 999 * time.Millisecond, "DEBUG"},
		"wrong":       {fault.New(fault.Invalid, fault.CodeInvalidRequest, "wrong"), 0, "DEBUG"},
		"slow":        {nil, time.Second, "INFO"},
		"too often":   {nil, -1, "INFO"},
		"failed":      {errors.New("a bug"), 0, "INFO"},
		"unavailable": {fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "no room"), 0, "WARN"},
	} {
		answer, took = c.answer, c.took
		before := len(said.String())
		api.Call(http.MethodPost, "/api/v1/ingest", apitest.ProjectKey, "")
		lines := line.FindAllStringSubmatch(said.String()[before:], -1)
		if len(lines) != 1 || lines[0][1] != c.level {
			t.Errorf("%s: logged %q, want one line of level %s", name, lines, c.level)
		}
		if c.level == "WARN" && !strings.Contains(lines[0][0], "no room") {
			t.Errorf("%s: the line lacks the reason: %s", name, lines[0][0])
		}
	}
}

func TestHome(t *testing.T) {
	e := httpx.NewConsole(httpx.Config{Log: slog.New(slog.DiscardHandler)}).Echo
	if err := httpx.RegisterHome(e, httpx.Home{
		Title: "A & B", Text: "<script>", Links: []httpx.Link{{Target: "javascript:alert(1)", Text: "bad"}, {Target: "/ok", Text: "good"}},
	}); err != nil {
		t.Fatal(err)
	}
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		rec := httptest.NewRecorder()
		e.ServeHTTP(rec, httptest.NewRequest(method, "/", nil))
		body, header := rec.Body.String(), rec.Header()
		if rec.Code != 200 || header.Get("Content-Type") != "text/html; charset=UTF-8" ||
			!strings.HasPrefix(header.Get("Content-Security-Policy"), "default-src 'none'; ") || header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d %v", method, rec.Code, header)
		}
		if method == http.MethodGet && (strings.Contains(body, "<script") || strings.Contains(body, "javascript:") ||
			!strings.Contains(body, `<a href="/ok">good</a>`)) {
			t.Errorf("page %s", body)
		}
	}
	rec := httptest.NewRecorder()
	e.ServeHTTP(rec, httptest.NewRequest(http.MethodPost, "/", nil))
	if rec.Code != 405 {
		t.Errorf("POST: %d", rec.Code)
	}
}

func TestRequest_AccessLogAndMetrics(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	metrics, err := httpx.NewMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	api, said := start(t, httpx.Config{Metrics: metrics}, at(http.MethodDelete, "/data-points/:sourceId", noContent))
	api.Call(http.MethodDelete, "/api/v1/data-points/private-name", apitest.ProjectKey, "").Want(t, 204)
	api.Call(http.MethodDelete, "/api/v1/data-points/private-name", apitest.UnknownKey, "").Want(t, 401)
	api.Call("BREW", "/private-path", "", "").Want(t, 404)
	log := said.String()
	for _, secret := range []string{apitest.ProjectKey, apitest.UnknownKey, "private-name", "private-path"} {
		if strings.Contains(log, secret) {
			t.Errorf("the log holds %q: %s", secret, log)
		}
	}
	for _, want := range []string{`"route":"/api/v1/data-points/:sourceId"`, `"project":"default"`, `"status":204`, `"code":"unauthorized"`, `"msg":"request"`} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %s: %s", want, log)
		}
	}
	const want = `
# HELP annals_http_requests_total Requests answered, by route template, status and error code.
# TYPE annals_http_requests_total counter
annals_http_requests_total{code="",method="DELETE",route="/api/v1/data-points/:sourceId",status="204"} 1
annals_http_requests_total{code="unauthorized",method="DELETE",route="/api/v1/data-points/:sourceId",status="401"} 1
annals_http_requests_total{code="not-found",method="other",route="none",status="404"} 1
# HELP annals_http_requests_in_flight Requests being served.
# TYPE annals_http_requests_in_flight gauge
annals_http_requests_in_flight 0
# HELP annals_http_body_bytes_in_flight Bytes that request bodies have reserved of their allowance.
# TYPE annals_http_body_bytes_in_flight gauge
annals_http_body_bytes_in_flight 0
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "annals_http_requests_total", "annals_http_requests_in_flight", "annals_http_body_bytes_in_flight"); err != nil {
		t.Error(err)
	}
}

func TestPath_Params(t *testing.T) {
	api, _ := start(t, httpx.Config{}, at(http.MethodDelete, "/data-points/:sourceId", func(c echo.Context) error {
		id, err := httpx.PathParam(c, "sourceId")
		if err != nil {
			return err
		}
		return c.JSON(http.StatusOK, []string{id})
	}))
	for sent, want := range map[string]string{
		"plain": "plain", "a%40b": "a@b", "a@b": "a@b", "a%20b": "a b", "a+b": "a+b", "a%2Bb": "a+b", "a%2Fb": "a/b", "a%2fb%40c%20d": "a/b@c d",
		"%2540": "%40", "%252F": "%2F", "100%25": "100%", "%E2%82%AC": "€", "€": "€", "%F0%9F%92%A1": "💡", "a%3Fb%23c": "a?b#c", "a;b,c": "a;b,c",
		"delete": "delete", "%2E%2E": "..", "a%0Ab": `a\nb`, ":sourceId": ":sourceId", "%3AsourceId": ":sourceId", "*": "*", "a%22b": `a\"b`,
	} {
		got := api.Call(http.MethodDelete, "/api/v1/data-points/"+sent, apitest.ProjectKey, "")
		if want := `["` + want + `"]`; got.Status != 200 || strings.TrimSpace(got.Body) != want {
			t.Errorf("%s: %d %s, want %s", sent, got.Status, got.Body, want)
		}
	}
	for _, sent := range []string{"%FF", "a%00b", "%C3%28"} {
		api.Call(http.MethodDelete, "/api/v1/data-points/"+sent, apitest.ProjectKey, "").
			Want(t, 400, `"code":"invalid-request"`)
	}
	api.Call(http.MethodDelete, "/api/v1/data-points/", apitest.ProjectKey, "").Want(t, 404)
	api.Call(http.MethodDelete, "/api/v1/data-points/a/b", apitest.ProjectKey, "").Want(t, 404)
}

func TestPath_UUIDs(t *testing.T) {
	api, _ := start(t, httpx.Config{}, at(http.MethodPost, "/ingest/:ingestionId/retry", func(c echo.Context) error {
		id, err := httpx.PathUUID(c, "ingestionId")
		if err != nil {
			return err
		}
		return c.JSON(http.StatusOK, id)
	}))
	for sent, status := range map[string]int{
		"01890000-0000-7000-8000-00000000000a": 200, "01890000-0000-7000-8000-00000000000A": 200, "01890000%2D0000-7000-8000-00000000000a": 200,
		"00000000-0000-0000-0000-000000000000": 200, "0189000000007000800000000000000a": 404, "{01890000-0000-7000-8000-00000000000a}": 404,
		"urn:uuid:01890000-0000-7000-8000-00000000000a": 404, "batch": 404, "01890000-0000-7000-8000-00000000000g": 404, "x": 404, "": 404,
	} {
		got := api.Call(http.MethodPost, "/api/v1/ingest/"+sent+"/retry", apitest.ProjectKey, "")
		if got.Status != status {
			t.Errorf("%q: %d %s, want %d", sent, got.Status, got.Body, status)
		}
	}
}
