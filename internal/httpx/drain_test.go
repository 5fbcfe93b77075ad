package httpx_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
)

// serveOver serves an edge over TCP, as the service does.
func serveOver(t *testing.T, cfg httpx.Config, register func(e *echo.Echo)) (address string) {
	t.Helper()
	cfg.Log, cfg.Keys, cfg.URLs = slog.New(slog.DiscardHandler), apitest.Keys{}, apitest.URLs
	e := httpx.New(cfg)
	register(e)
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, served := httpx.NewServer(e, cfg.Log), make(chan error, 1)
	go func() { served <- server.Serve(httpx.NewConnections(64).Listen(l)) }()
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		<-served
	})
	return l.Addr().String()
}

// zeros are bytes without an end.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// A client that writes its whole body before it reads gets the answer to a call that is refused before that.
func TestRefusal_OfBodyThatIsNotRead(t *testing.T) {
	const small = 1 << 20
	register := func(e *echo.Echo) { e.POST("/api/v1/recall", echoBody(small)) }
	limited := func(auth.Principal) (time.Duration, bool) { return time.Second, false }
	unavailable := func(context.Context, admission.Write) (func(), error) {
		return nil, fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "no room")
	}
	for name, c := range map[string]struct {
		cfg          httpx.Config
		key, path    string
		bytes        int64
		status       int
		inBody, head string
	}{
		"a byte too long":    {httpx.Config{}, apitest.ProjectKey, "/recall", small + 1, 413, "content-too-large", ""},
		"far too long":       {httpx.Config{}, apitest.ProjectKey, "/recall", 60 << 20, 413, "content-too-large", ""},
		"an unknown key":     {httpx.Config{}, apitest.UnknownKey, "/recall", 20 << 20, 401, "unauthorized", ""},
		"beyond the rate":    {httpx.Config{Limit: limited}, apitest.ProjectKey, "/recall", 20 << 20, 429, "", "1"},
		"no room":            {httpx.Config{Writes: unavailable}, apitest.ProjectKey, "/ingest/batch", 20 << 20, 503, "no room", "2"},
		"no such route":      {httpx.Config{}, apitest.ProjectKey, "/nothing", 20 << 20, 404, "not-found", ""},
		"as long as is read": {httpx.Config{}, apitest.ProjectKey, "/recall", httpx.DrainBytes, 413, "content-too-large", ""},
	} {
		t.Run(name, func(t *testing.T) {
			address := serveOver(t, c.cfg, register)
			conn := connect(t, address)
			if _, err := fmt.Fprintf(conn, "POST /api/v1%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"+
				"Content-Length: %d\r\n\r\n", c.path, c.key, c.bytes); err != nil {
				t.Fatal(err)
			}
			if n, err := io.CopyN(conn, zeros{}, c.bytes); err != nil {
				t.Fatalf("the connection broke after %d bytes: %v", n, err)
			}
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(res.Body)
			if err := errors.Join(err, res.Body.Close()); err != nil {
				t.Fatal(err)
			}
			if res.StatusCode != c.status || !strings.Contains(string(body), c.inBody) ||
				res.Header.Get("Retry-After") != c.head {
				t.Errorf("%d, Retry-After %q: %s", res.StatusCode, res.Header.Get("Retry-After"), body)
			}
			if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && c.bytes > 1<<20+1 {
				t.Errorf("the connection goes on with %v", err)
			}
			res, err = http.Post("http://"+address+"/api/v1"+c.path, "application/json", //nolint:noctx // of the test
				bytes.NewReader(make([]byte, min(c.bytes, 20<<20))))
			if err != nil {
				t.Fatalf("net/http: %v", err)
			}
			if err := res.Body.Close(); err != nil || res.StatusCode != 401 {
				t.Errorf("net/http: %d, %v", res.StatusCode, err)
			}
		})
	}
}

// What is read of such a body is bounded.
func TestRefusal_OfBodyWithoutEnd(t *testing.T) {
	conn := connect(t, serveOver(t, httpx.Config{}, func(*echo.Echo) {}))
	const head = "POST /api/v1/recall HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
	if _, err := io.WriteString(conn, head); err != nil {
		t.Fatal(err)
	}
	chunk := "100000\r\n" + strings.Repeat("x", 1<<20) + "\r\n"
	for n := int64(0); ; n += 1 << 20 {
		if _, err := io.WriteString(conn, chunk); err != nil {
			if n < httpx.DrainBytes/2 {
				t.Errorf("the connection ended after %d bytes", n)
			}
			return
		}
		if n > 2*httpx.DrainBytes {
			t.Fatal("the body is read without end")
		}
	}
}

// The time of a call does not run while it waits for room.
func TestWrites_WaitTakesNoTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 5 * time.Second
		l := servePipes(t, httpx.Config{
			Timeout: timeout,
			Writes: func(_ context.Context, w admission.Write) (func(), error) {
				w.Parked()
				pass(8 * time.Minute) // longer than any body may take
				return func() {}, nil
			},
		}, func(e *echo.Echo) {
			e.POST("/api/v1/ingest", func(c echo.Context) error {
				if _, err := httpx.Body(c, 100); err != nil {
					return err
				}
				pass(timeout - time.Second)
				return c.Request().Context().Err()
			})
		})
		if status := send(t, l, apitest.ProjectKey, 20); status != 200 {
			t.Errorf("status %d", status)
		}
	})
}

// A write that waits for room holds no place among the calls. The end of its connection ends the wait, although its
// body is not read.
func TestWrites_Wait(t *testing.T) {
	room := admission.NewRoom(admission.RoomWait)
	var mu sync.Mutex
	wait := true
	set := func(waits bool) {
		mu.Lock()
		wait = waits
		mu.Unlock()
		room.Set(admission.State{Waits: func(_ allowance.Owner, _ admission.Lane) string {
			if wait {
				return "it waits"
			}
			return ""
		}})
	}
	set(true)
	parked, ended := make(chan struct{}, 8), make(chan error, 8)
	address := serveOver(t, httpx.Config{
		MaxRequests: 2, MaxOfOne: 2,
		Writes: func(ctx context.Context, w admission.Write) (func(), error) {
			park := w.Parked
			w.Parked = func() { park(); parked <- struct{}{} }
			leave, err := room.Enter(ctx, w)
			ended <- err
			return leave, err
		},
	}, func(e *echo.Echo) {
		e.POST("/api/v1/ingest/batch", echoBody(httpx.IngestLimit))
		e.GET("/api/v1/usage", noContent)
	})
	send := func() net.Conn {
		c := connect(t, address)
		if _, err := fmt.Fprintf(c, "POST /api/v1/ingest/batch HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"+
			"Content-Length: 8\r\n\r\n\"012345\"", apitest.ProjectKey); err != nil {
			t.Fatal(err)
		}
		<-parked
		return c
	}
	first, second, third := send(), send(), send()
	for range 3 { // of two places
		conn := connect(t, address)
		if _, err := fmt.Fprintf(conn, "GET /api/v1/usage HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n",
			apitest.ProjectKey); err != nil {
			t.Fatal(err)
		}
		if status, body := answer(t, conn); status != 204 {
			t.Errorf("a call while others wait: %d %s", status, body)
		}
	}
	if err := third.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the wait of a client that left ended with %v", err)
	}
	set(false)
	for _, c := range []net.Conn{first, second} {
		if status, body := answer(t, c); status != 200 {
			t.Errorf("after the wait: %d %s", status, body)
		}
	}
}
