package httpx_test

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/runtest"
)

// serveLimited serves an edge over TCP with a bound of connections.
func serveLimited(t *testing.T, limit *httpx.Connections, register func(e *echo.Echo)) (address string) {
	t.Helper()
	discard := slog.New(slog.DiscardHandler)
	e := httpx.New(httpx.Config{Log: discard, Keys: apitest.Keys{}, URLs: apitest.URLs})
	register(e)
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	runtest.Must(t, err)
	server := httpx.NewServer(e, discard)
	served := make(chan error, 1)
	go func() { served <- server.Serve(limit.Listen(l)) }()
	t.Cleanup(func() {
		if err := server.Shutdown(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		<-served
		if n := limit.Open(); n != 0 {
			t.Errorf("%d connections are counted after the end", n)
		}
	})
	return l.Addr().String()
}

func connect(t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	runtest.Must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// ask makes a call on a connection that stays open, and returns its status, 0 if the connection was
// closed.
func ask(t *testing.T, c net.Conn, path string) int {
	t.Helper()
	if _, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return 0
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0
	}
	defer func() { _ = res.Body.Close() }()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		t.Error(err)
	}
	return res.StatusCode
}

func TestConnections_LongestWaitingGivesWay(t *testing.T) {
	limit := httpx.NewConnections(8)
	address := serveLimited(t, limit, func(e *echo.Echo) { e.GET("/fine", noContent) })
	var all []net.Conn
	for range 8 {
		c := connect(t, address)
		if status := ask(t, c, "/fine"); status != 204 {
			t.Fatalf("status %d", status)
		}
		all = append(all, c)
	}
	for range 100 { // idle, never a request, half a header
		c := connect(t, address)
		if _, err := io.WriteString(c, "GET /fine HTTP/1.1\r\nHost:"); err != nil {
			t.Error(err)
		}
	}
	if status := ask(t, connect(t, address), "/fine"); status != 204 {
		t.Errorf("a new connection: status %d", status)
	}
	if status := ask(t, all[0], "/fine"); status != 0 {
		t.Errorf("the longest idle connection is still served: status %d", status)
	}
	if n := limit.Open(); n > 8 {
		t.Errorf("%d connections are open", n)
	}
}

func TestConnections_ServedOnesStay(t *testing.T) {
	limit := httpx.NewConnections(4)
	entered, leave := make(chan struct{}), make(chan struct{})
	address := serveLimited(t, limit, func(e *echo.Echo) {
		e.GET("/fine", noContent)
		e.GET("/slow", func(c echo.Context) error {
			entered <- struct{}{}
			<-leave
			return c.NoContent(http.StatusNoContent)
		})
	})
	statuses := make(chan int)
	for range 4 {
		c := connect(t, address)
		go func() { statuses <- ask(t, c, "/slow") }()
		<-entered
	}
	if status := ask(t, connect(t, address), "/fine"); status != 0 {
		t.Errorf("one connection too many: status %d", status)
	}
	close(leave)
	for range 4 {
		if status := <-statuses; status != 204 {
			t.Errorf("a served connection: status %d", status)
		}
	}
	if status := ask(t, connect(t, address), "/fine"); status != 204 {
		t.Errorf("after they were served: status %d", status)
	}
}

// remoteConn is a connection from an address, which does nothing.
type remoteConn struct {
	net.Conn
	from   netip.Addr
	closed bool
}

func (c *remoteConn) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(c.from, 1))
}

func (c *remoteConn) Close() error {
	c.closed = true
	return nil
}

type remotes struct {
	net.Listener
	next []*remoteConn
}

func (l *remotes) Accept() (net.Conn, error) {
	if len(l.next) == 0 {
		return nil, net.ErrClosed
	}
	c := l.next[0]
	l.next = l.next[1:]
	return c, nil
}

func TestConnections_ShareOfOneAddress(t *testing.T) {
	for from, most := range map[string]int{"192.0.2.1": 4, "2001:db8::1": 4, "::ffff:192.0.2.1": 4, "127.0.0.1": 8, "::1": 8} {
		limit := httpx.NewConnections(8)
		of := &remotes{}
		l := limit.Listen(of)
		var all []*remoteConn
		accept := func(address string) {
			t.Helper()
			c := &remoteConn{from: netip.MustParseAddr(address)}
			all, of.next = append(all, c), []*remoteConn{c}
			runtest.Must(t, errorOf(l.Accept()))
		}
		for range most + 3 {
			accept(from)
		}
		open := 0
		for i, c := range all {
			if !c.closed {
				open++
			}
			if c.closed != (i < 3) {
				t.Errorf("%s: connection %d is closed: %t", from, i, c.closed)
			}
		}
		if open != most || limit.Open() != most {
			t.Errorf("%s: %d connections are open, %d counted, want %d", from, open, limit.Open(), most)
		}
		accept("198.51.100.7")
		if all[len(all)-1].closed {
			t.Errorf("a neighbour of %s finds no room", from)
		}
	}
}

func TestProxies_Caller(t *testing.T) {
	proxies, err := httpx.ParseProxies("10.0.0.0/8, 192.0.2.7,2001:db8:aa::/48")
	runtest.Must(t, err)
	for _, c := range []struct {
		name, peer string
		forwarded  []string
		want       string
	}{
		{"no proxy", "198.51.100.1:7", nil, "198.51.100.1"},
		{"a stranger names another", "198.51.100.1:7", []string{"203.0.113.9"}, "198.51.100.1"},
		{"a proxy without a header", "10.1.2.3:7", nil, "10.1.2.3"},
		{"a proxy", "10.1.2.3:7", []string{"203.0.113.9"}, "203.0.113.9"},
		{"a proxy alone", "192.0.2.7:7", []string{"203.0.113.9"}, "203.0.113.9"},
		{"its neighbour", "192.0.2.8:7", []string{"203.0.113.9"}, "192.0.2.8"},
		{"a proxy by IPv6", "[2001:db8:aa::1]:7", []string{"203.0.113.9"}, "203.0.113.9"},
		{"a peer as mapped IPv4", "[::ffff:10.1.2.3]:7", []string{"203.0.113.9"}, "203.0.113.9"},
		{"what the caller wrote before", "10.1.2.3:7", []string{"1.1.1.1, 2.2.2.2,203.0.113.9"}, "203.0.113.9"},
		{"in a line of its own", "10.1.2.3:7", []string{"203.0.113.9", "2.2.2.2"}, "2.2.2.2"},
		{"with a port", "10.1.2.3:7", []string{"203.0.113.9:4711"}, "203.0.113.9"},
		{"IPv6 with a port", "10.1.2.3:7", []string{"[2001:db8:1:2:3::4]:4711"}, "2001:db8:1:2::"},
		{"IPv6 of one network", "10.1.2.3:7", []string{"2001:db8:1:2:ffff::9"}, "2001:db8:1:2::"},
		{"no address", "10.1.2.3:7", []string{"unknown"}, "10.1.2.3"},
		{"an empty end", "10.1.2.3:7", []string{"203.0.113.9,"}, "10.1.2.3"},
		{"a peer without an address", "@", []string{"203.0.113.9"}, "invalid IP"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
		r.RemoteAddr = c.peer
		for _, line := range c.forwarded {
			r.Header.Add("X-Forwarded-For", line)
		}
		if got := proxies.Caller(r).String(); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		if got := httpx.Proxies(nil).Caller(r).String(); len(c.forwarded) > 0 && got == "203.0.113.9" {
			t.Errorf("%s: without trusted proxies a header names the caller", c.name)
		}
	}
}

func TestParseProxies_Refuses(t *testing.T) {
	for _, text := range []string{"10.0.0.0/33", "proxy", "10.0.0.0/8,", "::ffff:10.0.0.0/104", "fe80::1%eth0"} {
		if p, err := httpx.ParseProxies(text); err == nil {
			t.Errorf("%q is read as %v", text, p)
		}
	}
	if p, err := httpx.ParseProxies(" "); err != nil || p != nil {
		t.Errorf("nothing is %v, %v", p, err)
	}
}
