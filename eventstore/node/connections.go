package node

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// connections bounds the connections of a listener. A new one over the bound replaces the oldest on which no call was
// admitted yet. If there is none, the new one is closed.
type connections struct {
	net.Listener
	most int

	mu     sync.Mutex
	open   int
	closed bool
	// strangers are the connections without an admitted call, the oldest first.
	strangers *list.List // of *connection
}

func newConnections(of net.Listener, most int) *connections {
	return &connections{Listener: of, most: most, strangers: list.New()}
}

// Accept returns the next connection for which there is room. It never waits for room.
func (l *connections) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := l.admit(conn); c != nil {
			return c, nil
		}
		_ = conn.Close() // nobody waits for what it returns
	}
}

// Close closes the listener and the connections without an admitted call: nothing waits for a handshake to end.
func (l *connections) Close() error {
	l.mu.Lock()
	l.closed = true
	var strangers []*connection
	for e := l.strangers.Front(); e != nil; e = e.Next() {
		strangers = append(strangers, e.Value.(*connection))
	}
	l.mu.Unlock()
	for _, c := range strangers {
		_ = c.Close() // its transport notices
	}
	return l.Listener.Close()
}

// admit counts a connection. It returns nil if there is no room for it.
func (l *connections) admit(conn net.Conn) *connection {
	c := &connection{Conn: conn, of: l}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	var replaced *connection
	if l.open >= l.most {
		oldest := l.strangers.Front()
		if oldest == nil {
			l.mu.Unlock()
			return nil
		}
		replaced = oldest.Value.(*connection)
		l.remove(replaced)
	}
	l.open++
	c.place = l.strangers.PushBack(c)
	l.mu.Unlock()
	if replaced != nil {
		_ = replaced.Conn.Close() // its transport notices
	}
	return c
}

// remove no longer counts a connection. The caller holds mu.
func (l *connections) remove(c *connection) {
	if c.removed {
		return
	}
	c.removed = true
	l.open--
	if c.place != nil {
		l.strangers.Remove(c.place)
	}
}

// connection is a counted connection.
type connection struct {
	net.Conn
	of       *connections
	admitted atomic.Bool
	// place is in strangers, nil once a call was admitted. The mutex of the connections guards it, as removed.
	place   *list.Element
	removed bool
}

// admit records that a call of the connection was admitted.
func (c *connection) admit() {
	if c.admitted.Load() || c.admitted.Swap(true) {
		return
	}
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if !c.removed {
		c.of.strangers.Remove(c.place)
	}
	c.place = nil
}

// Close closes the connection.
func (c *connection) Close() error {
	c.of.mu.Lock()
	c.of.remove(c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// counted are credentials that tell each call on which connection it came. They refuse what does not speak HTTP/2.
type counted struct {
	credentials.TransportCredentials
	// secure is nil without TLS.
	secure *tls.Config
}

// countedInfo is what counted adds to the peer of a call.
type countedInfo struct {
	credentials.AuthInfo
	connection *connection
}

// ServerHandshake implements credentials.TransportCredentials.
func (c counted) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.handshake(raw)
	if err != nil {
		return nil, nil, err
	}
	from, _ := raw.(*connection) // every connection of the listener is one
	return conn, countedInfo{info, from}, nil
}

// handshake makes the TLS handshake, which grpc refuses to clients that do not ask for HTTP/2.
func (c counted) handshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if c.secure == nil {
		conn, err := onlyHTTP2(raw)
		if err != nil {
			return nil, nil, err
		}
		return c.TransportCredentials.ServerHandshake(conn)
	}
	secured := tls.Server(raw, c.secure)
	if err := secured.Handshake(); err != nil {
		return nil, nil, err
	}
	info := credentials.TLSInfo{
		State:          secured.ConnectionState(),
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
	}
	if info.State.NegotiatedProtocol == protocolHTTP2 {
		return &checkedConn{Conn: secured}, info, nil
	}
	conn, err := onlyHTTP2(secured)
	return conn, info, err
}

// Clone implements credentials.TransportCredentials.
func (c counted) Clone() credentials.TransportCredentials {
	return counted{c.TransportCredentials.Clone(), c.secure.Clone()}
}

// connectionOf returns the connection of a call, nil if it is not counted.
func connectionOf(ctx context.Context) *connection {
	from, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	info, _ := from.AuthInfo.(countedInfo)
	return info.connection
}
