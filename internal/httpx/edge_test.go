package httpx_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/runtest"
	_ "github.com/annals-project/annals/internal/seedtest"
	"github.com/annals-project/annals/readapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start serves an edge whose routes are what register adds.
func start(t *testing.T, cfg httpx.Config, register func(e *echo.Echo)) (*apitest.Client, *runtest.Output) {
	t.Helper()
	said := &runtest.Output{}
	cfg.Log = slog.New(slog.NewJSONHandler(said, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if cfg.Keys == nil {
		cfg.Keys = apitest.Keys{}
	}
	cfg.URLs = apitest.URLs
	e := httpx.New(cfg)
	if register != nil {
		register(e)
	}
	return apitest.StartEdge(t, readapi.OpenAPI, e), said
}

// at registers one handler on a route of the contract.
func at(method, path string, h echo.HandlerFunc) func(e *echo.Echo) {
	return func(e *echo.Echo) { e.Add(method, "/api/v1"+path, h) }
}

func noContent(c echo.Context) error { return c.NoContent(http.StatusNoContent) }

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
	runtest.Must(t, err)
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

// exchange sends bytes on a connection of its own and reads the answer.
func exchange(t *testing.T, address, request string) (status int, header http.Header, body string) {
	t.Helper()
	c := connect(t, address)
	runtest.Must(t, errorOf(io.WriteString(c, request)))
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("%.80q: %v", request, err)
	}
	read, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("%.80q: %v", request, err)
	}
	runtest.Must(t, res.Body.Close())
	return res.StatusCode, res.Header, string(read)
}

// What cannot be read as HTTP never reaches a handler: net/http answers it with a plain text and
// closes the connection.
func TestServer_RequestsThatAreNotHTTP(t *testing.T) {
	address := serveOver(t, httpx.Config{}, nil)
	key := "Host: x\r\nAuthorization: Bearer " + apitest.ProjectKey + "\r\n"
	for name, c := range map[string]struct {
		request string
		status  int
	}{
		"bad escape in the path": {"DELETE /api/v1/data-points/100% HTTP/1.1\r\n" + key + "\r\n", 400},
		"bad method":             {"B@D /api/v1/projects HTTP/1.1\r\n" + key + "\r\n", 400},
		"no host":                {"GET /api/v1/projects HTTP/1.1\r\n\r\n", 400},
		"bad name of a header":   {"GET /api/v1/projects HTTP/1.1\r\n" + key + "B d: x\r\n\r\n", 400},
		"two lengths":            {"POST /api/v1/recall HTTP/1.1\r\n" + key + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}x", 400},
		"no version":             {"GET /\r\n\r\n", 400},
		"headers too long":       {"GET /api/v1/projects HTTP/1.1\r\n" + key + "X: " + strings.Repeat("x", 80<<10) + "\r\n\r\n", 431},
		"transfer encoding":      {"POST /api/v1/recall HTTP/1.1\r\n" + key + "Transfer-Encoding: gzip\r\n\r\n", 501},
		"version":                {"GET /api/v1/projects HTTP/3.7\r\n" + key + "\r\n", 505},
		"expectation":            {"POST /api/v1/recall HTTP/1.1\r\n" + key + "Expect: tea\r\nContent-Length: 2\r\n\r\n{}", 417},
	} {
		t.Run(name, func(t *testing.T) {
			status, header, body := exchange(t, address, c.request)
			if status != c.status || strings.HasPrefix(body, "{") {
				t.Errorf("status %d, want %d, headers %v: %s", status, c.status, header, body)
			}
		})
	}
}

// Everything else is answered by an envelope with a request id, whatever its method.
func TestServer_OptionsOfTheWhole(t *testing.T) {
	status, header, body := exchange(t, serveOver(t, httpx.Config{}, nil), "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n")
	if status != 404 || header.Get("X-Request-Id") == "" || !strings.Contains(body, `"code":"not-found"`) {
		t.Errorf("status %d, headers %v: %s", status, header, body)
	}
}

// What a handler writes reaches the client byte by byte, also where a write of the socket begins
// with what looks like a status line.
func TestServer_AnswersThatLookLikeStatusLines(t *testing.T) {
	const line = "HTTP/1.1 417 "
	const refusal = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n400 Bad Request"
	long := strings.Repeat(line, 40_000)
	address := serveOver(t, httpx.Config{}, func(e *echo.Echo) {
		e.GET("/text", func(c echo.Context) error { return c.String(http.StatusBadRequest, refusal) })
		// However the answer is cut into writes, one of the shifts puts the line at the start of each
		// of them.
		e.GET("/long/:shift/:length", func(c echo.Context) error {
			shift, err := strconv.Atoi(c.Param("shift"))
			if err != nil {
				return err
			}
			if c.Param("length") == "known" {
				c.Response().Header().Set("Content-Length", strconv.Itoa(len(long)-shift))
			}
			return c.String(http.StatusOK, long[shift:])
		})
	})
	get := func(path, want string) {
		t.Helper()
		_, _, body := exchange(t, address, fmt.Sprintf("GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", path))
		if body != want {
			t.Errorf("%s: %d bytes, want %d, differ at %d", path, len(body), len(want), differ(body, want))
		}
	}
	get("/text", refusal)
	for shift := range len(line) {
		get(fmt.Sprintf("/long/%d/known", shift), long[shift:])
		get(fmt.Sprintf("/long/%d/chunked", shift), long[shift:])
	}
}

// differ returns the first index at which two texts are not the same.
func differ(a, b string) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

func TestCalls_ServedAtOnce(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	api, _ := start(t, httpx.Config{MaxRequests: 2, MaxOfOne: 2}, func(e *echo.Echo) {
		e.POST("/api/v1/ingest", func(c echo.Context) error {
			entered <- struct{}{}
			<-leave
			return c.NoContent(http.StatusNoContent)
		})
		e.POST("/api/v1/recall", noContent)
		e.GET("/healthz", noContent)
	})
	done := make(chan apitest.Response)
	for range 2 {
		go func() { done <- api.Call(http.MethodPost, "/api/v1/ingest", apitest.ProjectKey, "") }()
		<-entered
	}
	for range 3 {
		got := api.Call(http.MethodPost, "/api/v1/recall", apitest.ProjectKey, "")
		got.Want(t, 503, `"code":"service-unavailable"`)
		if got.Header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
	}
	api.Call(http.MethodGet, "/healthz", "", "").Want(t, 204)
	close(leave)
	for range 2 {
		(<-done).Want(t, 204)
	}
	api.Call(http.MethodPost, "/api/v1/recall", apitest.ProjectKey, "").Want(t, 204)
}

// Whatever id is percent-encoded into a path comes out as it was, through the real server and
// router.
func TestPath_AnyID(t *testing.T) {
	var got string
	api, _ := start(t, httpx.Config{}, at(http.MethodDelete, "/data-points/:sourceId", func(c echo.Context) error {
		id, err := httpx.PathParam(c, "sourceId")
		got = id
		if err != nil {
			return err
		}
		return c.NoContent(http.StatusNoContent)
	}))
	rapid.Check(t, func(r *rapid.T) {
		id := rapid.OneOf(rapid.String(), rapid.StringMatching(`[%/@ +:*?#.a2Ff]{1,12}`)).Draw(r, "id")
		if id == "" {
			return
		}
		res := api.Call(http.MethodDelete, "/api/v1/data-points/"+url.PathEscape(id), apitest.ProjectKey, "")
		switch {
		case strings.ContainsRune(id, 0) || !utf8.ValidString(id):
			if res.Status != 400 {
				r.Errorf("%q: status %d", id, res.Status)
			}
		case res.Status != 204 || got != id:
			r.Errorf("%q came out as %q, status %d", id, got, res.Status)
		}
	})
}
