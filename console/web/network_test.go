package web_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/console/signin"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/access"
)

// crowd is a console at the end of pipes, which hold nothing that is not read. The token of a session is the id of the
// person.
type crowd struct {
	t        *testing.T
	accept   chan net.Conn
	cookies  web.Cookies
	mu       sync.Mutex
	of       map[uuid.UUID]uuid.UUID // organizations by person
	streams  atomic.Int64            // that are written
	answered chan error              // what streams ended with
	answers  *allowance.Allowance
}

func (c *crowd) Session(_ context.Context, token string) (signin.Session, bool, error) {
	id, err := uuid.Parse(token)
	return signin.Session{Person: id}, err == nil, nil
}

func (*crowd) KnownBrowser(context.Context, string) (uuid.UUID, error) { return uuid.Nil, nil }

func (c *crowd) Opens(signin.Session, string, uuid.UUID) bool { return true }

func (c *crowd) Memberships(_ context.Context, person uuid.UUID) (p access.Person, ok bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o, ok := c.of[person]
	return access.Person{ID: person, Memberships: []access.Membership{{
		Organization: o, Role: organization.Admin, Prepared: true,
	}}}, ok, nil
}

func (c *crowd) ProjectNamed(context.Context, uuid.UUID, string) (auth.Named, bool, error) {
	return auth.Named{}, false, nil
}

// member is somebody in an organization.
func (c *crowd) member(of uuid.UUID) uuid.UUID {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := uuid.New()
	c.of[id] = of
	return id
}

func (c *crowd) remove(person uuid.UUID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.of, person)
}

// stream writes parts without end.
func (c *crowd) stream(r *web.Request) error {
	c.streams.Add(1)
	defer c.streams.Add(-1)
	var ended error
	defer func() { c.answered <- ended }()
	return r.Stream("text/plain", "file.txt", func(w io.Writer) error {
		for {
			if _, ended = io.WriteString(w, strings.Repeat("x", 64<<10)); ended != nil {
				return ended
			}
			if ended = r.Again(); ended != nil {
				return ended
			}
		}
	})
}

// Accept implements net.Listener.
func (c *crowd) Accept() (net.Conn, error) {
	conn, ok := <-c.accept
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

// Close implements net.Listener.
func (c *crowd) Close() error { return nil }

// Addr implements net.Listener.
func (c *crowd) Addr() net.Addr { return &net.TCPAddr{} }

// startCrowd serves a console in the bubble of the test.
func startCrowd(t *testing.T) *crowd {
	t.Helper()
	c := &crowd{
		t: t, accept: make(chan net.Conn), of: map[uuid.UUID]uuid.UUID{}, answered: make(chan error, 100),
		cookies: web.NewCookies(console, uuid.Nil), answers: admission.Answers.New(),
	}
	long := strings.Repeat("a long text ", 8<<10)
	site, err := web.New(web.Config{
		URL: console, Sessions: c, Access: c, Cookies: c.cookies, Answers: c.answers, Admit: func() error { return nil },
		Logger: slog.New(slog.DiscardHandler), Now: time.Now,
	}, []web.Area{{Templates: templatesOfTest, Routes: []web.Route{
		{Pattern: "GET /member", Needs: web.Member, Serve: func(r *web.Request) error { return r.Text("text/plain", "done") }},
		{Pattern: "GET /nothing", Serve: func(r *web.Request) error { return r.Text("text/plain", "done") }},
		{Pattern: "GET /text", Needs: web.Member, Serve: func(r *web.Request) error { return r.Text("text/plain", long) }},
		{Pattern: "GET /kept", Needs: web.Member, Serve: func(r *web.Request) error {
			if err := r.Reserve(admission.Answers.Organization); err != nil {
				return err
			}
			return r.Text("text/plain", long)
		}},
		{Pattern: "GET /stream", Needs: web.Member, Time: time.Hour, Serve: c.stream},
		{Pattern: "POST /form", Needs: web.Member, Body: 12 << 20, Serve: func(r *web.Request) error {
			return r.Form(nil, "page.html", fmt.Sprintf("%d bytes", len(r.Field("text"))))
		}},
	}}})
	runtest.Must(t, err)
	edge := httpx.NewConsole(httpx.Config{Log: slog.New(slog.DiscardHandler)})
	edge.HandleSite(site.Serve)
	server := httpx.NewServer(edge, slog.New(slog.DiscardHandler))
	served := make(chan error, 1)
	go func() { served <- server.Serve(httpx.NewConnections(1000).Listen(c)) }()
	t.Cleanup(func() {
		close(c.accept)
		_ = server.Close()
		<-served
		<-time.After(time.Minute) // what is refused lingers for a moment
	})
	return c
}

// send sends a request of a person up to the beginning of its body, of a length.
func (c *crowd) send(person uuid.UUID, method, path string, length int) net.Conn {
	c.t.Helper()
	client, server := net.Pipe()
	c.t.Cleanup(func() { _ = client.Close() })
	c.accept <- server
	set := httptest.NewRecorder()
	c.cookies.Set(set, web.SessionCookie, person.String(), time.Hour)
	cookie, _, _ := strings.Cut(set.Header().Get("Set-Cookie"), ";")
	_, err := fmt.Fprintf(client, "%s %s HTTP/1.1\r\nHost: x\r\nOrigin: %s\r\nCookie: %s\r\nContent-Length: %d\r\n"+
		"Content-Type: application/x-www-form-urlencoded\r\n\r\n", method, path, console, cookie, length)
	runtest.Must(c.t, err)
	return client
}

// read reads an answer. The error is that of a broken one.
func read(conn net.Conn) (status int, body string, err error) {
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	return res.StatusCode, string(text), err
}

// opens opens a page at once, and wants it.
func (c *crowd) opens(person uuid.UUID, path string) {
	c.t.Helper()
	began := time.Now()
	if status, body, err := read(c.send(person, http.MethodGet, path, 0)); status != http.StatusOK || err != nil {
		c.t.Errorf("%s: %d %s, %v", path, status, body, err)
	}
	if took := time.Since(began); took != 0 {
		c.t.Errorf("%s waited for %s", path, took)
	}
}

// Bodies that do not arrive, and pages that nobody reads, hold no place of their organization: not even it waits.
func TestSite_SilentPeersHoldNoPlace(t *testing.T) {
	for name, c := range map[string]struct {
		method, path string
		length       int
	}{
		"short bodies": {http.MethodPost, "/form", 60_000}, "long bodies": {http.MethodPost, "/form", 12 << 20},
		"pages": {http.MethodGet, "/text", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := startCrowd(t)
				attacker, member := s.member(acme), s.member(acme)
				for range 3 * admission.Pages.Organization {
					s.send(attacker, c.method, c.path, c.length)
				}
				synctest.Wait()
				s.opens(member, "/member")
				s.opens(s.member(other), "/member")
				s.opens(uuid.Nil, "/nothing")
			})
		})
	}
}

// A long form arrives only for who has the right, and is whole.
func TestSite_LongBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startCrowd(t)
		member := s.member(acme)
		const length = 11 << 20 // more than net/http reads of a body that it does not know to be bounded
		status, body, err := read(s.send(uuid.Nil, http.MethodPost, "/form", length))
		if status != http.StatusUnauthorized || err != nil {
			t.Errorf("without a session: %d %s, %v", status, body, err)
		}
		if status, _, _ := read(s.send(member, http.MethodPost, "/form", 12<<20+1)); status != http.StatusRequestEntityTooLarge {
			t.Errorf("longer than the form may be: %d", status)
		}
		conn := s.send(member, http.MethodPost, "/form", length)
		_, err = io.WriteString(conn, "text="+strings.Repeat("x", length-5))
		runtest.Must(t, err)
		whole := fmt.Sprintf("%d bytes", length-5)
		if status, body, err := read(conn); status != http.StatusOK || !strings.Contains(body, whole) || err != nil {
			t.Errorf("a whole form: %d %s, %v", status, body, err)
		}
		conn = s.send(member, http.MethodPost, "/form", length)
		_, err = io.WriteString(conn, "text=")
		runtest.Must(t, err)
		synctest.Wait()
		s.remove(member)
		_, err = io.WriteString(conn, strings.Repeat("x", length-5))
		runtest.Must(t, err)
		if status, body, err := read(conn); status != http.StatusUnauthorized || err != nil {
			t.Errorf("removed while the form arrived: %d %s, %v", status, body, err)
		}
	})
}

func TestStream_EndsWithTheRight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startCrowd(t)
		member := s.member(acme)
		conn := s.send(member, http.MethodGet, "/stream", 0)
		synctest.Wait() // it is written, and nobody reads
		s.remove(member)
		status, body, err := read(conn)
		if status != http.StatusOK || len(body) == 0 || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("a removed reader gets %d, %d bytes, %v", status, len(body), err)
		}
		if err := <-s.answered; err == nil {
			t.Error("the stream did not end by the right")
		}
	})
}

func TestStream_EndsWithTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startCrowd(t)
		conn := s.send(s.member(acme), http.MethodGet, "/stream", 0)
		synctest.Wait()
		_ = conn.Close()
		<-s.answered
		synctest.Wait()
		if n := s.streams.Load(); n != 0 {
			t.Errorf("%d streams are written for nobody", n)
		}
	})
}

// Files that nobody reads hold what their organization and person may, and nothing of others.
func TestStream_SharedByPerson(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startCrowd(t)
		var organizations [4]uuid.UUID
		for i := range organizations { // together they hold the total
			organizations[i] = uuid.New()
			for range 2 {
				reader := s.member(organizations[i])
				for range 2 {
					s.send(reader, http.MethodGet, "/stream", 0)
				}
			}
		}
		synctest.Wait()
		if n := s.streams.Load(); n != admission.Exports.Total {
			t.Fatalf("%d streams, want %d", n, admission.Exports.Total)
		}
		began := time.Now()
		status, body, _ := read(s.send(s.member(organizations[0]), http.MethodGet, "/stream", 0))
		if status != http.StatusServiceUnavailable || time.Since(began) != admission.Exports.Wait {
			t.Errorf("beyond the share of its organization: %d after %s: %s", status, time.Since(began), body)
		}
		began = time.Now()
		conn := s.send(s.member(acme), http.MethodGet, "/stream", 0)
		res, err := http.ReadResponse(bufio.NewReader(conn), nil) //nolint:bodyclose // it ends with the connection
		if err != nil || res.StatusCode != http.StatusOK || time.Since(began) > admission.Exports.Wait/2 {
			t.Errorf("of another organization: %v, %v after %s", res, err, time.Since(began))
		}
		s.opens(s.member(organizations[0]), "/member")
	})
}
