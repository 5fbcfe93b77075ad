package httpx_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/httpx"
)

// serveRaw serves an edge by the server of the service, and returns its address.
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
	go func() { served <- server.Serve(l) }()
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

// What cannot be read as HTTP never reaches a handler: net/http answers it with a plain text and
// closes the connection.
func TestServer_RequestsThatAreNotHTTP(t *testing.T) {
	address := serveRaw(t, nil)
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
	status, header, body := exchange(t, serveRaw(t, nil), "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n")
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
	address := serveRaw(t, func(e *echo.Echo) {
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
