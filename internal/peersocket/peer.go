package peersocket

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/user"
	"strconv"
	"time"
)

// Peer is the user of the process at the other end of a socket.
type Peer struct{ UID int }

// Name returns the name of the user, or "uid" and the number of one without a name.
func (p Peer) Name() string {
	id := strconv.Itoa(p.UID)
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return "uid " + id
}

// allowed reports whether the peer is root or the user of this process.
func (p Peer) allowed() bool { return p.UID == 0 || p.UID == os.Geteuid() }

type peerKey struct{}

// With returns a context of a request of a peer.
func With(ctx context.Context, p Peer) context.Context { return context.WithValue(ctx, peerKey{}, p) }

// Of returns the peer of a request that Serve serves; ok is false for another request.
func Of(ctx context.Context) (p Peer, ok bool) {
	p, ok = ctx.Value(peerKey{}).(Peer)
	return p, ok
}

// headerLimit is the longest time for the header of a request.
const headerLimit = 30 * time.Second

// Serve serves the handler to the peers of a socket until the context ends.
func Serve(ctx context.Context, l net.Listener, handler http.Handler) error {
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: headerLimit,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if known, is := c.(*peerConn); is {
				return With(ctx, known.peer)
			}
			return ctx
		},
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	err := server.Close()
	<-served // http.ErrServerClosed
	return err
}

// peerConn is a connection whose peer is allowed.
type peerConn struct {
	net.Conn
	peer Peer
}

// accept accepts connections until one has an allowed peer. The mode of the socket already refuses
// other users, unless an operator has changed it.
func accept(l net.Listener, of func(net.Conn) (Peer, error), log *slog.Logger) (net.Conn, error) {
	for {
		c, err := l.Accept()
		if err != nil {
			return nil, err
		}
		p, err := of(c)
		if err == nil && p.allowed() {
			return &peerConn{c, p}, nil
		}
		if err == nil {
			err = fmt.Errorf("user %d is neither root nor the user of the service", p.UID)
		}
		log.Warn("operator socket refused a connection", "err", errors.Join(err, c.Close()))
	}
}
