package httpx_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/readapi"
)

// serveRaw serves an edge by the server and listener of the service, and returns its address.
func serveRaw(t *testing.T, register func(e *echo.Echo)) string {
	t.Helper()
	discard := slog.New(slog.DiscardHandler)
	e := httpx.New(httpx.Config{Log: discard, Keys: apitest.Keys{}, URLs: apitest.URLs})
	if register != nil {
		register(e)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := httpx.NewServer(e, discard)
	served := make(chan error, 1)
	go func() { served <- server.Serve(httpx.Listener(l)) }()
	t.Cleanup(func() {
		if err := server.Shutdown(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		<-served
	})
	return l.Addr().String()
}

// exchange sends bytes on a connection of its own and reads the answer.
func exchange(t *testing.T, address, request string) (status int, header http.Header, body string) {
	t.Helper()
	var dialer net.Dialer
	c, err := dialer.DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("%.80q: %v", request, err)
	}
	read, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("%.80q: %v", request, err)
	}
	if err := res.Body.Close(); err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, res.Header, string(read)
}

// What is no HTTP is refused before any handler sees it, and the refusal is an envelope all the same.
func TestWhatIsNoHTTPIsRefusedByAnEnvelope(t *testing.T) {
	address, contract := serveRaw(t, nil), apitest.Load(t, readapi.OpenAPI)
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
		"options of the whole":   {"OPTIONS * HTTP/1.1\r\n" + key + "\r\n", 404},
	} {
		t.Run(name, func(t *testing.T) {
			status, header, body := exchange(t, address, c.request)
			if status != c.status {
				t.Errorf("status %d, want %d: %s", status, c.status, body)
			}
			// Only that it is an envelope with a request id can be asked of a path that was not read.
			asked, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, "/api/v1/nothing", nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := contract.Check(asked, status, header, []byte(body)); err != nil && !strings.Contains(err.Error(), "no such route") {
				t.Errorf("%v: %s", err, body)
			}
		})
	}
}

// What a handler writes goes out as it is, whatever it looks like, also through the ways past Write.
func TestWhatHandlersWriteIsLeftAlone(t *testing.T) {
	const looks = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n400 Bad Request"
	address := serveRaw(t, func(e *echo.Echo) {
		e.GET("/text", func(c echo.Context) error {
			c.Response().Header().Set("Connection", "close")
			return c.String(http.StatusBadRequest, looks)
		})
		e.GET("/long", func(c echo.Context) error { return c.String(http.StatusOK, strings.Repeat("x", 100<<10)) })
	})
	for path, want := range map[string]string{"/text": looks, "/long": strings.Repeat("x", 100<<10)} {
		_, header, body := exchange(t, address, fmt.Sprintf("GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path))
		if body != want || !strings.HasPrefix(header.Get("Content-Type"), "text/plain") {
			t.Errorf("%s: %d bytes, headers %v", path, len(body), header)
		}
	}
}
