package httpx_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/webhook"
	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/requestlog"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/shorten"
)

// Whatever becomes of a page is a page with headers and a line in the log. What no page serves gets an envelope.
func TestConsole_Pages(t *testing.T) {
	const plain, html, envelope = "text/plain; charset=utf-8", "text/html; charset=UTF-8", "application/json"
	var log bytes.Buffer
	c := httpx.NewConsole(httpx.Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
	c.Handle("/page", func(w http.ResponseWriter, r *http.Request) error {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return err
		}
		w.Header().Set("Content-Type", plain)
		_, err = w.Write(body)
		return err
	})
	c.Handle("/failing/", func(_ http.ResponseWriter, r *http.Request) error {
		switch r.URL.Path {
		case "/failing/fault":
			return fault.New(fault.Conflict, fault.CodeInternal, "<b> is & taken")
		case "/failing/panic":
			panic("secret")
		default:
			return errors.New("secret")
		}
	})
	for _, call := range []struct {
		method, path, body string
		status             int
		want, contentType  string
		line               string // of the log, "" for none
	}{
		{"POST", "/page", "text", 200, "text", plain, ""},
		{"POST", "/page", strings.Repeat("x", 65<<10), 413, "<h1>Request Entity Too Large</h1>", html, ""},
		{"GET", "/failing/fault", "", 409, "<p>&lt;b&gt; is &amp; taken (request ", html, ""},
		{"GET", "/failing/panic", "", 500, "<h1>Internal Server Error</h1>", html, "route=/failing/ status=500"},
		{"GET", "/failing/", "", 500, "<h1>Internal Server Error</h1>", html, "route=/failing/ status=500"},
		{"GET", "/failing", "", 404, `"code":"not-found"`, envelope, ""},
		{"GET", "/page/more", "", 404, `"code":"not-found"`, envelope, ""},
		{"BREW", "/page", "", 405, `"code":"method-not-allowed"`, envelope, ""},
	} {
		log.Reset()
		rec := httptest.NewRecorder()
		c.ServeHTTP(rec, httptest.NewRequest(call.method, call.path, strings.NewReader(call.body)))
		got, header := rec.Body.String(), rec.Header()
		isPage := call.contentType != envelope
		if rec.Code != call.status || !strings.Contains(got, call.want) || header.Get("X-Request-Id") == "" ||
			header.Get("Content-Type") != call.contentType || header.Get("X-Content-Type-Options") != "nosniff" ||
			strings.HasPrefix(header.Get("Content-Security-Policy"), "default-src 'none'; ") != isPage {
			t.Errorf("%s %s: %d %v %.300s", call.method, call.path, rec.Code, header, got)
		}
		if strings.Contains(got, "secret") || !strings.Contains(log.String(), call.line) {
			t.Errorf("%s %s: %.300s, logged %s", call.method, call.path, got, &log)
		}
	}
}

// Each address names the one that serves what was asked for.
func TestNotFound_NamesTheOtherAddress(t *testing.T) {
	cfg := httpx.Config{Log: slog.New(slog.DiscardHandler), Keys: apitest.Keys{}, URLs: apitest.URLs}
	console := httpx.NewConsole(cfg)
	console.HandleSite(func(w http.ResponseWriter, _ *http.Request, _ *httpx.PageNote) error {
		w.WriteHeader(http.StatusTeapot)
		return nil
	})
	for _, c := range []struct {
		handler      http.Handler
		method, path string
		want         string
	}{
		{httpx.New(cfg), http.MethodPost, "/mcp", apitest.URLs.Console + "/mcp"},
		{httpx.New(cfg), http.MethodGet, "/mcp/read", apitest.URLs.Console + "/mcp/read"},
		{console, http.MethodPost, "/api/v1/recall", apitest.URLs.API + "/api/v1"},
		{console, http.MethodGet, "/api/v1", apitest.URLs.API + "/api/v1"},
	} {
		w := httptest.NewRecorder()
		c.handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), c.method, c.path, nil))
		if w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), c.want+`"`) {
			t.Errorf("%s %s: %d %s", c.method, c.path, w.Code, w.Body)
		}
	}
}

// callLog holds the rows of calls.
type callLog struct {
	room *allowance.Allowance
	rows []requestlog.Record
}

func (l *callLog) Open(_ context.Context, o allowance.Owner) (*allowance.Hold, error) {
	return l.room.Open(o), nil
}

func (l *callLog) RetainsBodies(metering.Plan) bool { return true }

func (l *callLog) Add(r requestlog.Record) { l.rows = append(l.rows, r) }

// innerAPI is an edge for calls in the process with its log. Its limits refuse everything: events as too many.
func innerAPI(register func(e *echo.Echo)) (httpx.Inner, *callLog) {
	calls := &callLog{room: admission.LoggedCalls.New()}
	e := httpx.New(httpx.Config{
		Log: slog.New(slog.DiscardHandler), Keys: apitest.Keys{}, URLs: apitest.URLs, Calls: calls, Events: tooMany{},
		Limit: func(auth.Principal) (time.Duration, bool) { return time.Second, false },
	})
	register(e)
	return httpx.Inner{API: e}, calls
}

// tooMany admits no event of a webhook that is called busy.
type tooMany struct{}

func (tooMany) Includes(auth.Principal) bool { return true }

func (tooMany) Count(_ context.Context, webhookID string) (time.Duration, bool, error) {
	return 1500 * time.Millisecond, webhookID != "whk_busy", nil
}

// person is the caller of a call at the console.
func person() auth.Principal {
	p := apitest.Principal
	p.Kind, p.KeyID, p.KeyName, p.KeyPrefix = auth.Person, uuid.UUID{7}, auth.ConsoleName, ""
	return p
}

// A call in the process has the caller that it is given, is outside of the limit a minute, and has a row in the
// request log with its bodies.
func TestInner_LoggedAsACallFromOutside(t *testing.T) {
	api, calls := innerAPI(at(http.MethodPost, "/recall", func(c echo.Context) error {
		body, err := httpx.Body(c, httpx.SmallLimit)
		if err != nil {
			return err
		}
		if p := httpx.Principal(c); p.Name() != person().Name() || p.Project != apitest.Principal.Project {
			t.Errorf("the caller is %+v", p)
		}
		httpx.NoteOf(c).Identity = "ana"
		return c.Blob(http.StatusOK, "application/json", append([]byte(`{"asked":`), append(body, '}')...))
	}))
	answer, err := api.Do(t.Context(), httpx.InnerCall{
		As: person(), Method: http.MethodPost, Path: "/api/v1/recall", ContentType: "application/json", Body: []byte(`"tea"`),
	})
	if err != nil || answer.Status != http.StatusOK || string(answer.Body) != `{"asked":"tea"}` {
		t.Fatalf("answer %+v %s, %v", answer, answer.Body, err)
	}
	if len(calls.rows) != 1 {
		t.Fatalf("%d rows", len(calls.rows))
	}
	row := calls.rows[0]
	if row.RequestID != answer.RequestID || row.Key != (requestlog.Key{Name: "console"}) || row.Identity != "ana" ||
		row.Endpoint != "POST /api/v1/recall" || row.Status != http.StatusOK || row.Project != apitest.Principal.Project.ID ||
		string(row.Payload.Request) != `"tea"` || !bytes.Equal(row.Payload.Response, answer.Body) || row.Webhook != nil {
		t.Errorf("row %+v", row)
	}
}

// A refused call is the fault that a client would read, and has its row too.
func TestInner_Refusals(t *testing.T) {
	api, calls := innerAPI(func(e *echo.Echo) {
		e.POST("/api/v1/recall", func(echo.Context) error {
			return fault.New(fault.PaymentRequired, fault.CodeOutOfCredits, "no credits").With("creditsLeft", 0)
		})
		e.GET("/api/v1/usage", func(c echo.Context) error {
			_, err := c.Response().Write(make([]byte, httpx.MaxInnerAnswer))
			_, more := c.Response().Write([]byte("x"))
			return errors.Join(err, more)
		})
		e.GET("/api/v1/audiences", func(c echo.Context) error {
			_, _ = c.Response().Write([]byte("{"))
			return errors.New("the table is gone")
		})
	})
	for path, want := range map[string]string{
		"POST /api/v1/recall": "out-of-credits", "GET /api/v1/nothing": "not-found", "GET /api/v1/usage": "content-too-large",
		"GET /api/v1/audiences": "internal",
	} {
		calls.rows = nil
		method, path, _ := bytes.Cut([]byte(path), []byte(" "))
		answer, err := api.Do(t.Context(), httpx.InnerCall{As: person(), Method: string(method), Path: string(path)})
		f, is := errors.AsType[*fault.Error](err)
		if !is || f.Code != want || answer.Body != nil || answer.RequestID == uuid.Nil || len(calls.rows) != 1 ||
			calls.rows[0].RequestID != answer.RequestID {
			t.Errorf("%s: %+v, %v, want %s and a row: %+v", path, answer, err, want, calls.rows)
		}
		if want == "out-of-credits" && is && f.Data["creditsLeft"] != 0 {
			t.Errorf("the fault has the data %v", f.Data)
		}
	}
}

// An event in the process passes the checks of its webhook, and its row has no token.
func TestInner_Events(t *testing.T) {
	api, calls := innerAPI(at(http.MethodPost, "/webhooks/:webhookId/:token", func(c echo.Context) error {
		httpx.NoteOf(c).Verdict = "ingested"
		return c.NoContent(http.StatusAccepted)
	}))
	send := func(w auth.Webhook, test bool) error {
		p := person()
		w.Settings = webhook.Settings{Name: "Tickets"}
		p.Kind, p.KeyName, p.KeyPrefix, p.Webhook = auth.WebhookToken, "Tickets", w.ID, &w
		_, err := api.Do(t.Context(), httpx.InnerCall{
			As: p, Method: http.MethodPost, Path: "/api/v1/webhooks/" + w.ID + "/console", Body: []byte("text"), Test: test,
		})
		return err
	}
	for _, test := range []bool{true, false} {
		calls.rows = nil
		runtest.Must(t, send(auth.Webhook{ID: "whk_one"}, test))
		row := calls.rows[0]
		if row.Webhook.ID != "whk_one" || row.Webhook.Test != test || row.Webhook.Verdict != "ingested" ||
			row.Key != (requestlog.Key{Name: "Tickets", Prefix: "whk_one"}) || row.Endpoint != requestlog.EventEndpoint {
			t.Errorf("row %+v of %+v", row, row.Webhook)
		}
	}
	calls.rows = nil
	for code, w := range map[string]auth.Webhook{
		fault.CodeWebhookPaused: {ID: "whk_one", Paused: true}, fault.CodeProjectArchived: {ID: "whk_one", Archived: true},
	} {
		if f, is := errors.AsType[*fault.Error](send(w, true)); !is || f.Code != code {
			t.Errorf("%s: %v", code, f)
		}
	}
	if len(calls.rows) != 2 {
		t.Errorf("%d rows of refused events", len(calls.rows))
	}
	f, is := errors.AsType[*fault.Error](send(auth.Webhook{ID: "whk_busy"}, true))
	if !is || f.Kind != fault.LimitReached || f.Msg != "too many calls in this minute: try again in 2 s" || len(calls.rows) != 2 {
		t.Errorf("beyond the limit: %v, %d rows", f, len(calls.rows))
	}
}

// A path that leads to another route than that of the call is not found, whatever id is in it.
func TestInner_Route(t *testing.T) {
	api, _ := innerAPI(func(e *echo.Echo) {
		for _, path := range []string{"/api/v1/requests/histogram", "/api/v1/requests/:requestId"} {
			e.GET(path, func(c echo.Context) error { return c.String(http.StatusOK, path) })
		}
	})
	const route = "/api/v1/requests/:requestId"
	for id, want := range map[string]string{"7": route, "histogram": "", "%68istogram": route, "..": route, "a%2Fb": route, "a/b": "", "": ""} {
		answer, err := api.Do(t.Context(), httpx.InnerCall{
			As: person(), Method: http.MethodGet, Path: "/api/v1/requests/" + id, Route: route,
		})
		if string(answer.Body) != want || (err == nil) != (want != "") {
			t.Errorf("%q reached %q: %v", id, answer.Body, err)
		}
	}
}

// An answer goes to a writer that asks for it, with the count of what the API left out; one that takes no more, or a
// caller that leaves, ends it.
func TestInner_To(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	api, _ := innerAPI(func(e *echo.Echo) {
		e.GET("/api/v1/usage", func(c echo.Context) error {
			if v := httpx.ValuesOf(c); v != (httpx.Values{Total: 10, Each: 5}) {
				t.Errorf("the answer is bounded by %+v", v)
			}
			httpx.LeftOut(c, "metadata", 2)
			_, err := c.Response().Write(make([]byte, 3*httpx.MaxInnerAnswer))
			return err
		})
		e.GET("/api/v1/audiences", func(c echo.Context) error {
			leave()
			_, err := c.Response().Write([]byte("{"))
			return err
		})
	})
	var to bytes.Buffer
	usage := httpx.InnerCall{
		As: person(), Method: http.MethodGet, Path: "/api/v1/usage", To: &to, Values: httpx.Values{Total: 10, Each: 5},
	}
	answer, err := api.Do(t.Context(), usage)
	if err != nil || answer.Body != nil || to.Len() != 3*httpx.MaxInnerAnswer || answer.LeftOut["metadata"] != 2 {
		t.Errorf("%d bytes, without %v: %v", to.Len(), answer.LeftOut, err)
	}
	usage.To = shorten.New(t.Context(), shorten.Limits{})
	err = errorOf(api.Do(t.Context(), usage))
	if f, is := errors.AsType[*fault.Error](err); !is || f.Code != fault.CodeContentTooLarge {
		t.Errorf("a writer that takes no more: %v", err)
	}
	left := httpx.InnerCall{
		As: person(), Method: http.MethodGet, Path: "/api/v1/audiences", To: shorten.New(ctx, shorten.Limits{Whole: 9}),
	}
	if err := errorOf(api.Do(ctx, left)); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that left: %v", err)
	}
}

// errorOf returns the error of a call.
func errorOf[T any](_ T, err error) error { return err }

func TestRequestOfEvent(t *testing.T) {
	for _, id := range []uuid.UUID{uuid.Nil, uuid.Max, uuid.MustParse("019e8a8e-1234-7abc-8def-0123456789ab")} {
		if got, ok := httpx.RequestOfEvent(httpx.EventID(id)); !ok || got != id {
			t.Errorf("%s becomes %s, %v", id, got, ok)
		}
	}
	for _, text := range []string{
		"", "evt_", "evt_0000000000000000000000000", "whk_00000000000000000000000000", "evt_ZZZZZZZZZZZZZZZZZZZZZZZZZZ",
		"evt_0000000000000000000000000I",
	} {
		if _, ok := httpx.RequestOfEvent(text); ok {
			t.Errorf("%q is the id of an event", text)
		}
	}
}
