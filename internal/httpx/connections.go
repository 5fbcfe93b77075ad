package httpx

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

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

const (
	// drainBytes and drainTime bound what is read of a body after its call was answered, and thrown away. Many
	// clients write the whole body before they read: if the connection were closed, they would see it broken
	// instead of the answer.
	drainBytes = 256 << 20
	drainTime  = 10 * time.Second
)

// watchedBody is the body of a request. It notices whether all of it was read. While a read waits, the connection
// counts as one without a request, so that a peer that is silent makes place for others.
type watchedBody struct {
	io.ReadCloser
	connection *connection
	// expected is true until the service asks for a body that the client keeps back until then.
	expected, ended bool
}

// watchBody returns the body of a request that may have one, else nil.
func watchBody(c echo.Context) *watchedBody {
	req := c.Request()
	if req.ContentLength == 0 {
		return nil
	}
	b := &watchedBody{ReadCloser: req.Body, connection: connectionOf(req), expected: req.Header.Get("Expect") != ""}
	// A copy of the request, since net/http looks at the body of its own one when it writes the answer.
	watched := req.WithContext(req.Context())
	watched.Body = b
	c.SetRequest(watched)
	return b
}

// Read implements io.Reader.
func (b *watchedBody) Read(p []byte) (int, error) {
	b.expected = false
	b.connection.serving(false)
	defer b.connection.serving(true)
	n, err := b.ReadCloser.Read(p)
	b.ended = b.ended || errors.Is(err, io.EOF)
	return n, err
}

// drain sends the answer, and reads what is left of the body. Meanwhile the connection counts as one without a
// request, so that it makes place for others. An answer without a length would end only afterwards: it is not for a
// client that still writes.
func (b *watchedBody) drain(c echo.Context) {
	if b == nil || b.ended || b.expected || c.Response().Header().Get(echo.HeaderContentLength) == "" {
		return
	}
	controller := http.NewResponseController(c.Response())
	if controller.Flush() != nil || controller.SetReadDeadline(time.Now().Add(drainTime)) != nil {
		return
	}
	releaseConnection(c)
	_, _ = io.CopyN(io.Discard, b.ReadCloser, drainBytes) // the client is gone or too slow: the connection ends
}

// Proxies are the networks of the proxies that are trusted to name who calls them.
type Proxies []netip.Prefix

// maxProxies bounds how many networks each request is compared with.
const maxProxies = 64

// ParseProxies reads networks such as 10.0.0.0/8, or single addresses, separated by commas. An empty text is none.
func ParseProxies(text string) (Proxies, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var proxies Proxies
	for _, entry := range strings.Split(text, ",") {
		entry = strings.TrimSpace(entry)
		network, err := netip.ParsePrefix(entry)
		if address, bad := netip.ParseAddr(entry); bad == nil && address.Zone() == "" {
			network, err = netip.PrefixFrom(address, address.BitLen()), nil
		}
		if err != nil {
			return nil, fmt.Errorf("names %q: want networks such as 10.0.0.0/8, separated by commas", entry)
		}
		if network.Addr().Is4In6() {
			return nil, fmt.Errorf("names %q: write an IPv4 network as IPv4", entry)
		}
		proxies = append(proxies, network.Masked())
	}
	if len(proxies) > maxProxies {
		return nil, fmt.Errorf("names %d networks: want at most %d", len(proxies), maxProxies)
	}
	return proxies, nil
}

// Caller returns the address of who sent a request: of the peer, or what a trusted proxy put last into
// X-Forwarded-For. What stands before that may come from anybody. All of a network of IPv6 count as one caller. The
// address is invalid if the peer has none.
func (p Proxies) Caller(req *http.Request) netip.Addr {
	at, err := netip.ParseAddrPort(req.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	caller := at.Addr().Unmap().WithZone("")
	if slices.ContainsFunc(p, func(network netip.Prefix) bool { return network.Contains(caller) }) {
		if named, err := forwarded(req.Header); err == nil {
			caller = named
		}
	}
	if network, err := caller.Prefix(64); caller.Is6() && err == nil {
		return network.Addr()
	}
	return caller
}

// forwarded returns the last address of X-Forwarded-For. Some proxies write it with a port.
func forwarded(header http.Header) (netip.Addr, error) {
	lines := header.Values("X-Forwarded-For")
	if len(lines) == 0 {
		return netip.Addr{}, errors.New("there is none")
	}
	last := lines[len(lines)-1]
	last = strings.TrimSpace(last[strings.LastIndexByte(last, ',')+1:])
	if at, err := netip.ParseAddrPort(last); err == nil {
		return at.Addr().Unmap().WithZone(""), nil
	}
	address, err := netip.ParseAddr(last)
	return address.Unmap().WithZone(""), err
}

// certificateCheck is the least time between two looks at the files of a certificate.
const certificateCheck = time.Second

// Certificate is a certificate with its key, which is read again when its files change. It is safe for
// concurrent use.
type Certificate struct {
	cert, key string
	log       *slog.Logger
	now       func() time.Time

	pair atomic.Pointer[tls.Certificate]

	mu      sync.Mutex // guards what is below
	checked time.Time
	// loaded is what the files were when pair was read, refused what they were when they could not be used.
	loaded, refused [2]fileState
}

// fileState differs after each change of a file. It is the zero value for a file that cannot be read.
type fileState struct{ modified, size int64 }

// LoadCertificate reads a certificate and its key from PEM files.
func LoadCertificate(cert, key string, log *slog.Logger) (*Certificate, error) {
	c := &Certificate{cert: cert, key: key, log: log, now: time.Now, checked: time.Now()}
	state, pair, err := c.read()
	if err != nil {
		return nil, err
	}
	c.loaded = state
	c.pair.Store(pair)
	return c, nil
}

// Get returns the current certificate, for tls.Config.GetCertificate. A changed pair that cannot be used, such as one
// that is half written, is logged once, and the one before stays.
func (c *Certificate) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c.mu.TryLock() { // else another handshake looks
		defer c.mu.Unlock()
		if now := c.now(); now.Sub(c.checked) >= certificateCheck {
			c.checked = now
			c.refresh()
		}
	}
	return c.pair.Load(), nil
}

func (c *Certificate) refresh() {
	if c.state() == c.loaded {
		return
	}
	state, pair, err := c.read()
	if err == nil {
		c.loaded = state
		c.pair.Store(pair)
		c.log.Info("certificate changed, new connections get it", "file", c.cert, "expires", pair.Leaf.NotAfter)
		return
	}
	if state != c.refused {
		c.log.Warn("changed certificate cannot be used, the one before stays, will retry", "file", c.cert, "err", err)
	}
	c.refused = state
}

// read reads the pair. The state is that before, so that a change during the read is noticed by the next check.
func (c *Certificate) read() (state [2]fileState, pair *tls.Certificate, err error) {
	state = c.state()
	read, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return state, nil, fmt.Errorf("load the certificate: %w", err)
	}
	return state, &read, nil
}

func (c *Certificate) state() (state [2]fileState) {
	for i, name := range []string{c.cert, c.key} {
		if info, err := os.Stat(name); err == nil {
			state[i] = fileState{info.ModTime().UnixNano(), info.Size()}
		}
	}
	return state
}

// strictTransport has browsers use HTTPS alone with this host, for a year from each answer (RFC 6797).
const strictTransport = "max-age=31536000"

// StrictTransport serves a handler over TLS. Over plain HTTP browsers ignore the header; a proxy in front sets its own.
func StrictTransport(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Strict-Transport-Security", strictTransport)
		handler.ServeHTTP(w, r)
	})
}
