package httpx_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/httpx"
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
