package httpx

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"syscall"

	"github.com/labstack/echo/v4"
)

const (
	// mostConnections is the most connections, however many descriptors there are.
	mostConnections = 4096
	// leastConnections is the least number of them, however few descriptors there are.
	leastConnections = 16
)

// ConnectionLimit returns how many connections a process takes: half of the descriptors that it may
// open, at most 4,096. The other half is for the log, the database and the index.
func ConnectionLimit() int {
	var limit syscall.Rlimit
	// The runtime has raised the soft limit to the hard one.
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return mostConnections
	}
	return int(min(max(limit.Cur/2, leastConnections), mostConnections))
}

// Connections bounds the connections of all listeners of a process. A new connection over the
// bound replaces the one that has been without a request for longest: an idle one, or one whose
// request does not arrive. If all of them serve a request, the new one is closed.
type Connections struct {
	most, ofOne int

	mu sync.Mutex
	// waiting are the connections without a request, the longest waiting first. The others serve one.
	waiting *list.List // of *connection
	open    int
	remotes map[netip.Addr]int
}

// NewConnections bounds connections to a number, and those of one remote address to half of it.
// The local machine has no separate bound, because its connections are those of a local proxy.
func NewConnections(most int) *Connections {
	return &Connections{most: most, ofOne: max(most/2, 1), waiting: list.New(), remotes: map[netip.Addr]int{}}
}

// Open returns how many connections are open.
func (l *Connections) Open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open
}

// Listen returns a listener whose connections are counted.
func (l *Connections) Listen(of net.Listener) net.Listener { return &limitedListener{of, l} }

type limitedListener struct {
	net.Listener
	limit *Connections
}

// Accept returns the next connection for which there is room. It never waits for room, so that the
// queue of the system holds no connection that could be served.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if limited := l.limit.admit(c); limited != nil {
			return limited, nil
		}
		_ = c.Close()
	}
}

// connection is a counted connection. It implements net.Conn.
type connection struct {
	net.Conn
	limit  *Connections
	remote netip.Addr
	// place is the element in waiting, nil while a request is served. The mutex of the limit guards
	// it and closed.
	place  *list.Element
	closed bool
}

// admit counts a connection. It returns nil if there is no room for it.
func (l *Connections) admit(c net.Conn) *connection {
	remote := remoteOf(c)
	l.mu.Lock()
	defer l.mu.Unlock()
	var evicted *connection
	switch {
	case !remote.IsLoopback() && remote.IsValid() && l.remotes[remote] >= l.ofOne:
		evicted = l.longestWaiting(func(other *connection) bool { return other.remote == remote })
	case l.open >= l.most:
		evicted = l.longestWaiting(func(*connection) bool { return true })
	default:
		return l.count(c, remote)
	}
	if evicted == nil {
		return nil
	}
	l.forget(evicted)
	_ = evicted.Conn.Close() // its server notices
	return l.count(c, remote)
}

func (l *Connections) longestWaiting(fits func(*connection) bool) *connection {
	for e := l.waiting.Front(); e != nil; e = e.Next() {
		if c, _ := e.Value.(*connection); fits(c) {
			return c
		}
	}
	return nil
}

func (l *Connections) count(c net.Conn, remote netip.Addr) *connection {
	counted := &connection{Conn: c, limit: l, remote: remote}
	counted.place = l.waiting.PushBack(counted)
	l.open++
	l.remotes[remote]++
	return counted
}

func (l *Connections) forget(c *connection) {
	if c.closed {
		return
	}
	c.closed = true
	if c.place != nil {
		l.waiting.Remove(c.place)
		c.place = nil
	}
	l.open--
	if l.remotes[c.remote]--; l.remotes[c.remote] == 0 {
		delete(l.remotes, c.remote)
	}
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.limit.mu.Lock()
	c.limit.forget(c)
	c.limit.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite is called by net/http before it closes a connection whose request it did not read.
func (c *connection) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// serving records whether a request of the connection is being served.
func (c *connection) serving(yes bool) {
	if c == nil {
		return
	}
	c.limit.mu.Lock()
	defer c.limit.mu.Unlock()
	switch {
	case c.closed:
	case yes && c.place != nil:
		c.limit.waiting.Remove(c.place)
		c.place = nil
	case !yes && c.place == nil:
		c.place = c.limit.waiting.PushBack(c)
	}
}

type connectionKey struct{}

// keepConnection is http.Server.ConnContext. The edge finds the connection of a request by it.
func keepConnection(ctx context.Context, c net.Conn) context.Context {
	if encrypted, ok := c.(*tls.Conn); ok {
		c = encrypted.NetConn()
	}
	if counted, ok := c.(*connection); ok {
		return context.WithValue(ctx, connectionKey{}, counted)
	}
	return ctx
}

// trackConnection is http.Server.ConnState: a connection waits again once its answer is written.
func trackConnection(c net.Conn, state http.ConnState) {
	if encrypted, ok := c.(*tls.Conn); ok {
		c = encrypted.NetConn()
	}
	if counted, ok := c.(*connection); ok && state == http.StateIdle {
		counted.serving(false)
	}
}

// holdConnection marks the connection of a request as busy while the request is served.
func holdConnection(c echo.Context) { connectionOf(c.Request()).serving(true) }

// releaseConnection ends that before the request ends.
func releaseConnection(c echo.Context) { connectionOf(c.Request()).serving(false) }

// connectionOf returns the connection of a request, nil if it is not counted.
func connectionOf(req *http.Request) *connection {
	counted, _ := req.Context().Value(connectionKey{}).(*connection)
	return counted
}

// remoteOf returns the address of the peer. The address of a peer without an IP address is
// invalid, and has no separate bound.
func remoteOf(c net.Conn) netip.Addr {
	if tcp, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}
