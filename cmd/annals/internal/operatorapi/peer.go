package operatorapi

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
	"strings"
	"time"
	"unicode"
)

// peer is the user of the process at the other end of the socket, as the system reports it. The name
// that a client sends is only a remark.
type peer struct{ uid int }

// name returns the name of the peer for events.
func (p peer) name() string {
	id := strconv.Itoa(p.uid)
	if u, err := user.LookupId(id); err == nil {
		return "operator " + u.Username
	}
	return "operator uid " + id
}

// allowed reports whether the peer is root or the user of the service.
func (p peer) allowed() bool { return p.uid == 0 || p.uid == os.Geteuid() }

type peerKey struct{}

// headerLimit is the longest time for the header of a request.
const headerLimit = 30 * time.Second

// Serve serves the handler to the peers of a socket until the context ends.
func Serve(ctx context.Context, l net.Listener, handler http.Handler) error {
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: headerLimit,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if known, is := c.(*peerConn); is {
				return context.WithValue(ctx, peerKey{}, known.peer)
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
	peer peer
}

// accept accepts connections until one has an allowed peer. The mode of the socket already refuses
// other users, unless an operator has changed it.
func accept(l net.Listener, of func(net.Conn) (peer, error), log *slog.Logger) (net.Conn, error) {
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
			err = fmt.Errorf("user %d is neither root nor the user of the service", p.uid)
		}
		log.Warn("operator socket refused a connection", "err", errors.Join(err, c.Close()))
	}
}

// attributed is a request whose event names the operator.
type attributed interface {
	// setBy replaces the name that the client sent by the name of the peer.
	setBy(ctx context.Context) error
}

func (t *Target) setBy(ctx context.Context) (err error) {
	t.By, err = by(ctx, t.By)
	return err
}

func (q *RetryRequest) setBy(ctx context.Context) (err error) {
	q.By, err = by(ctx, q.By)
	return err
}

// by returns the name for events: that of the peer, and the name that the client sent as a remark
// if it differs.
func by(ctx context.Context, remark string) (string, error) {
	p, known := ctx.Value(peerKey{}).(peer)
	if !known {
		return "", errors.New("the user at the other end of the socket is not known")
	}
	name := p.name()
	remark = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, remark)
	if runes := []rune(remark); len(runes) > maxRemark {
		remark = string(runes[:maxRemark])
	}
	if remark == "" || remark == name {
		return name, nil
	}
	return name + " (says: " + remark + ")", nil
}

// maxRemark is the longest remark in characters.
const maxRemark = 100
