package httpx_test

import (
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/httpx"
)

// Bodies of four organizations fill the allowance and then stay silent, within the time that a body may take. A
// neighbour's body is read nevertheless, and so is a small one of each of the four.
func TestBody_SilentBodiesKeepNobodyOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const share = 1 << 20
		bodies := httpx.NewBodies(admission.Bodies.Of(4 * share))
		l := servePipes(t, httpx.Config{Bodies: bodies}, ingest)
		for _, key := range hostileKeys {
			for range 4 {
				peer := l.dial(t)
				go func() {
					announce(t, peer, key, share/4)
					_, _ = io.WriteString(peer, strings.Repeat("x", share/4-1))
					_, _ = io.Copy(io.Discard, peer)
				}()
			}
		}
		synctest.Wait()
		if n := bodies.InFlight(); n != 4*share {
			t.Fatalf("%d bytes are reserved, want all", n)
		}
		for _, length := range []int{httpx.FreeBody + 1, share / 2, share} {
			if status := send(t, l, neighbourKey, length); status != 200 {
				t.Errorf("a neighbour's body of %d bytes: status %d", length, status)
			}
		}
		if n := bodies.InFlight(); n == 0 {
			t.Error("nothing is silent any more: the test shows nothing")
		}
		if status := send(t, l, hostileKeys[0], httpx.FreeBody); status != 200 {
			t.Errorf("a small body of a silent organization: status %d", status)
		}
	})
}

// A connection whose body does not arrive makes place for a new one.
func TestConnections_SilentBodiesMakePlace(t *testing.T) {
	l := httpx.NewConnections(4)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{}, 8)
	e := httpx.New(httpx.Config{Log: slog.New(slog.DiscardHandler), Keys: apitest.Keys{}, URLs: apitest.URLs})
	e.POST("/api/v1/ingest", func(c echo.Context) error {
		read <- struct{}{}
		return echoBody(httpx.SmallLimit)(c)
	})
	server := httpx.NewServer(e, slog.New(slog.DiscardHandler))
	served := make(chan error, 1)
	go func() { served <- server.Serve(l.Listen(listener)) }()
	defer func() {
		_ = server.Close()
		<-served
	}()
	dial := func() net.Conn {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for range 4 {
		c := dial()
		defer func() { _ = c.Close() }()
		announce(t, c, apitest.ProjectKey, 10)
		<-read
	}
	for l.Waiting() < 4 { // the handlers wait for their bodies
		runtime.Gosched()
	}
	c := dial()
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(time.Minute)) // for a hang alone
	announce(t, c, apitest.ProjectKey, 10)
	<-read
	if _, err := io.WriteString(c, text(10)); err != nil {
		t.Fatal(err)
	}
	if status, body := answer(t, c); status != 200 {
		t.Errorf("a fifth connection: status %d %s", status, body)
	}
}
