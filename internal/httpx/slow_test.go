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
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/secret"
)

// neighbourKey is the key of an organization next to that of apitest.ProjectKey.
const neighbourKey = "svc_sk_00000000000000000000000000000000000000ff"

// hostileKeys are the keys of four more organizations.
var hostileKeys = []string{
	"svc_sk_00000000000000000000000000000000000000a1", "svc_sk_00000000000000000000000000000000000000a2",
	"svc_sk_00000000000000000000000000000000000000a3", "svc_sk_00000000000000000000000000000000000000a4",
}

type twoOrganizations struct{ apitest.Keys }

func (k twoOrganizations) KeyByHash(ctx context.Context, kind auth.Kind, hash [32]byte) (auth.Holder, bool, error) {
	for i, key := range hostileKeys {
		if hash == secret.Hash(key) {
			hostile := apitest.Principal
			hostile.OrganizationID = uuid.UUID{byte(i + 1)}
			return auth.Holder{Principal: hostile}, true, nil
		}
	}
	if hash == secret.Hash(neighbourKey) {
		other := apitest.Principal
		other.OrganizationID = uuid.MustParse("77777777-7777-4777-8777-777777777777")
		return auth.Holder{Principal: other}, true, nil
	}
	return k.Keys.KeyByHash(ctx, kind, hash)
}

// pipes is a listener whose connections are pipes, so that a bubble of synctest holds both ends.
type pipes struct {
	accept chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accept:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial(t *testing.T) net.Conn {
	client, server := net.Pipe()
	t.Cleanup(func() { _ = client.Close() })
	p.accept <- server
	return client
}

// servePipes serves an edge in the bubble of the test.
func servePipes(t *testing.T, cfg httpx.Config, register func(e *echo.Echo)) *pipes {
	t.Helper()
	cfg.Log, cfg.Keys, cfg.URLs = slog.New(slog.DiscardHandler), twoOrganizations{}, apitest.URLs
	e := httpx.New(cfg)
	register(e)
	l := &pipes{accept: make(chan net.Conn), closed: make(chan struct{})}
	server := httpx.NewServer(e, cfg.Log)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		_ = server.Close()
		<-served
		pass(time.Minute) // connections that are refused linger for a moment
	})
	return l
}

// announce writes the headers of a call whose body has a length.
func announce(t *testing.T, c net.Conn, key string, length int) {
	t.Helper()
	if _, err := fmt.Fprintf(c, "POST /api/v1/ingest HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n", key, length); err != nil {
		t.Error(err)
	}
}

// answer reads the status and body of an answer.
func answer(t *testing.T, c net.Conn) (int, string) {
	t.Helper()
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Error(err)
	}
	return res.StatusCode, string(body)
}

// text is a JSON string of n bytes.
func text(n int) string { return `"` + strings.Repeat("x", n-2) + `"` }

// pass lets time of the bubble pass.
func pass(d time.Duration) { <-time.After(d) }

// send makes a whole call and returns its status.
func send(t *testing.T, l *pipes, key string, length int) int {
	t.Helper()
	c := l.dial(t)
	announce(t, c, key, length)
	if _, err := io.WriteString(c, text(length)); err != nil {
		t.Error(err)
	}
	status, _ := answer(t, c)
	return status
}

// skipHuge skips tests with bodies that fill the memory under the race detector, which needs
// several times as much.
func skipHuge(t *testing.T, sent int) {
	t.Helper()
	if testing.Short() && sent > 32<<20 {
		t.Skip("sends bodies of tens of MiB")
	}
}

func ingest(e *echo.Echo) { e.POST("/api/v1/ingest", echoBody(httpx.IngestLimit)) }

func TestBody_AnnouncedByManySlowPeers(t *testing.T) {
	for name, c := range map[string]struct{ peers, announced, sent int }{
		"three of 98 MiB":         {3, httpx.IngestLimit, 0},
		"140 of 256 KiB":          {140, 256 << 10, httpx.FreeBody + 1},
		"500 of 98 MiB":           {500, httpx.IngestLimit, 1},
		"500 with half sent":      {500, 1 << 20, 512 << 10},
		"four of 98 MiB, 40 sent": {4, httpx.IngestLimit, 40 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			skipHuge(t, c.sent)
			synctest.Test(t, func(t *testing.T) {
				bodies := httpx.NewBodies(admission.Bodies)
				l := servePipes(t, httpx.Config{Bodies: bodies}, ingest)
				for range c.peers {
					peer := l.dial(t)
					go func() {
						announce(t, peer, apitest.ProjectKey, c.announced)
						_, _ = io.WriteString(peer, strings.Repeat("x", c.sent))
						_, _ = io.Copy(io.Discard, peer)
					}()
				}
				synctest.Wait()
				if n := bodies.InFlight(); n > admission.Bodies.Organization {
					t.Errorf("%d bytes are reserved for one organization", n)
				}
				for _, length := range []int{10, 1 << 20, httpx.IngestLimit} {
					if status := send(t, l, neighbourKey, length); status != 200 {
						t.Errorf("a neighbour's body of %d bytes: status %d", length, status)
					}
				}
				if status := send(t, l, apitest.ProjectKey, httpx.FreeBody); status != 200 {
					t.Errorf("a small body of the same organization: status %d", status)
				}
				pass(httpx.BodyTime + time.Minute)
				synctest.Wait()
				if n := bodies.InFlight(); n != 0 {
					t.Errorf("%d bytes are still reserved", n)
				}
			})
		})
	}
}

func TestBody_LeastRate(t *testing.T) {
	for name, c := range map[string]struct {
		perSecond, length, status int
	}{
		"at the rate":        {httpx.LeastRate, 30 * httpx.LeastRate, 200},
		"under the rate":     {httpx.LeastRate / 3, 30 * httpx.LeastRate, 408},
		"all in the grace":   {100, 900, 200},
		"past the longest":   {20 * httpx.LeastRate, 98 << 20, 408},
		"before the longest": {24 * httpx.LeastRate, 98 << 20, 200},
	} {
		t.Run(name, func(t *testing.T) {
			skipHuge(t, c.length)
			synctest.Test(t, func(t *testing.T) {
				l := servePipes(t, httpx.Config{}, ingest)
				peer := l.dial(t)
				var sending sync.WaitGroup
				sending.Go(func() {
					announce(t, peer, apitest.ProjectKey, c.length)
					for rest := text(c.length); rest != ""; {
						step := min(c.perSecond, len(rest))
						if _, err := io.WriteString(peer, rest[:step]); err != nil {
							return
						}
						rest = rest[step:]
						pass(time.Second)
					}
				})
				if status, body := answer(t, peer); status != c.status {
					t.Errorf("status %d, want %d: %s", status, c.status, body)
				}
				_ = peer.Close()
				sending.Wait()
			})
		})
	}
}

// Two bodies that are half read and need room that the other holds do not wait for each other
// without end.
func TestBody_HalfReadBodies(t *testing.T) {
	for name, c := range map[string]struct{ total, length int }{
		"long":  {4 * httpx.IngestLimit, 90 << 20},
		"short": {4 << 20, 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			skipHuge(t, c.length)
			synctest.Test(t, func(t *testing.T) {
				bodies := httpx.NewBodies(admission.Bodies.Of(int64(c.total)))
				l := servePipes(t, httpx.Config{Bodies: bodies}, ingest)
				statuses := make(chan int, 2)
				for range 2 {
					peer := l.dial(t)
					go func() {
						announce(t, peer, apitest.ProjectKey, c.length)
						whole := text(c.length)
						_, _ = io.WriteString(peer, whole[:c.length/2])
						pass(time.Second)
						_, _ = io.WriteString(peer, whole[c.length/2:])
					}()
					go func() {
						status, _ := answer(t, peer)
						statuses <- status
					}()
					pass(100 * time.Millisecond)
				}
				one, other := <-statuses, <-statuses
				if one != 200 && other != 200 || one+other != 400 && one+other != 703 {
					t.Errorf("statuses %d and %d", one, other)
				}
				synctest.Wait()
				if n := bodies.InFlight(); n != 0 {
					t.Errorf("%d bytes are still reserved", n)
				}
			})
		})
	}
}

// A body is weighed by what it becomes: a body of many values takes room that one of the same
// length does not.
func TestBody_Weight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bodies := httpx.NewBodies(admission.Bodies.Of(8 << 20))
		var held int64
		l := servePipes(t, httpx.Config{Bodies: bodies}, func(e *echo.Echo) {
			e.POST("/api/v1/ingest", func(c echo.Context) error {
				if _, err := httpx.Body(c, 1<<20); err != nil {
					return err
				}
				held = bodies.InFlight()
				return c.NoContent(http.StatusNoContent)
			})
		})
		dense := func(n int) string { return "[0" + strings.Repeat(",0", n-1) + "]" }
		for name, c := range map[string]struct {
			body string
			held int64
		}{
			"one text that needs none":    {text(httpx.FreeBody), 0},
			"one text a byte longer":      {text(httpx.FreeBody + 1), httpx.FreeBody + 1 + 64},
			"few values that need none":   {dense(600), 0},
			"many values, small text":     {dense(8000), 16001 + 8001*64},
			"more than the share at once": {dense(100_000), 2 << 20},
		} {
			peer := l.dial(t)
			announce(t, peer, apitest.ProjectKey, len(c.body))
			if _, err := io.WriteString(peer, c.body); err != nil {
				t.Error(err)
			}
			if status, body := answer(t, peer); status != 204 || held != c.held {
				t.Errorf("%s: status %d %s, %d bytes held, want %d", name, status, body, held, c.held)
			}
		}
	})
}

// An answer that is read too slowly is broken off; one that is read at the least rate arrives,
// however long it takes.
func TestAnswer_LeastRate(t *testing.T) {
	const length = 4 << 20
	for name, c := range map[string]struct {
		perSecond int
		whole     bool
	}{
		"at the rate":    {httpx.LeastRate + httpx.LeastRate/8, true},
		"under the rate": {httpx.LeastRate / 2, false},
		"not read":       {0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ended := make(chan error, 1)
				l := servePipes(t, httpx.Config{}, func(e *echo.Echo) {
					e.POST("/api/v1/ingest", func(c echo.Context) error {
						_, err := io.WriteString(c.Response(), strings.Repeat("x", length))
						ended <- err
						return nil
					})
				})
				peer := l.dial(t)
				announce(t, peer, apitest.ProjectKey, 0)
				var reading sync.WaitGroup
				reading.Go(func() {
					for buffer := make([]byte, c.perSecond); c.perSecond > 0; pass(time.Second) {
						if _, err := io.ReadFull(peer, buffer); err != nil {
							return
						}
					}
				})
				began := time.Now()
				if err := <-ended; (err == nil) != c.whole {
					t.Errorf("the write ended with %v after %s", err, time.Since(began))
				}
				if took := time.Since(began); took > httpx.AnswerTime {
					t.Errorf("it took %s", took)
				}
				_ = peer.Close()
				reading.Wait()
			})
		})
	}
}

func TestRequests_OfOneOrganization(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leave := make(chan struct{})
		l := servePipes(t, httpx.Config{MaxRequests: 8, MaxOfOne: 2}, func(e *echo.Echo) {
			e.POST("/api/v1/ingest", func(c echo.Context) error {
				<-leave
				return c.NoContent(http.StatusNoContent)
			})
		})
		statuses := make(chan int, 8)
		call := func(key string) {
			peer := l.dial(t)
			announce(t, peer, key, 0)
			go func() {
				status, _ := answer(t, peer)
				statuses <- status
			}()
			synctest.Wait()
		}
		for range 3 {
			call(apitest.ProjectKey)
		}
		if status := <-statuses; status != 503 {
			t.Errorf("the third of two calls: status %d", status)
		}
		call(neighbourKey)
		close(leave)
		for range 3 {
			if status := <-statuses; status != 204 {
				t.Errorf("status %d", status)
			}
		}
	})
}

// Four bodies over 16 MiB that hardly arrive hold their slots for seconds: then a neighbour's long body arrives.
func TestBody_SlowLongBodies(t *testing.T) {
	skipHuge(t, 5*(17<<20))
	synctest.Test(t, func(t *testing.T) {
		l := servePipes(t, httpx.Config{}, ingest)
		const length = 20 << 20
		for _, key := range hostileKeys {
			peer := l.dial(t)
			go func() {
				announce(t, peer, key, length)
				_, _ = io.WriteString(peer, strings.Repeat("x", 17<<20))
				for range 300 { // the least rate of a short body
					if _, err := io.WriteString(peer, strings.Repeat("x", httpx.LeastRate)); err != nil {
						break
					}
					pass(time.Second)
				}
			}()
			go func() { _, _ = io.Copy(io.Discard, peer) }()
		}
		synctest.Wait()
		began := time.Now()
		status := send(t, l, neighbourKey, length)
		if took := time.Since(began); status != 200 || took > 2*httpx.BodyGrace {
			t.Errorf("a neighbour's long body: status %d after %s", status, took)
		}
	})
}
