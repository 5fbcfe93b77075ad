package operator

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

// peer is the user of the process at the other end of the socket, as the system knows it. What a client says of itself is a remark.
type peer struct{ uid int }

// name is the peer as events name it.
func (p peer) name() string {
	id := strconv.Itoa(p.uid)
	if u, err := user.LookupId(id); err == nil {
		return "operator " + u.Username
	}
	return "operator uid " + id
}

// allowed says whether the peer may give commands: root and the user of the service.
func (p peer) allowed() bool { return p.uid == 0 || p.uid == os.Geteuid() }

type peerKey struct{}

// headerLimit is how long a client may take for the header of its request.
const headerLimit = 30 * time.Second

// Server serves the handler to the peers of a socket.
func Server(handler http.Handler) *http.Server {
	return &http.Server{
		Handler: handler, ReadHeaderTimeout: headerLimit,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if known, is := c.(*peerConn); is {
				return context.WithValue(ctx, peerKey{}, known.peer)
			}
			return ctx
		},
	}
}

// peerConn is a connection whose peer is allowed.
type peerConn struct {
	net.Conn
	peer peer
}

// accept accepts connections until one is of an allowed peer: the mode of the socket keeps others away, unless somebody changed it.
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

// attributed is a request that an event names somebody for.
type attributed interface {
	// setBy replaces what the client says by who it is.
	setBy(ctx context.Context) error
}

func (w *Whom) setBy(ctx context.Context) (err error) {
	w.By, err = by(ctx, w.By)
	return err
}

func (n *NewOrganization) setBy(ctx context.Context) (err error) {
	n.By, err = by(ctx, n.By)
	return err
}

func (s *SetAside) setBy(ctx context.Context) (err error) {
	s.By, err = by(ctx, s.By)
	return err
}

// by is who gives a command: the peer, with what the client says of itself as a remark where that is something else.
func by(ctx context.Context, says string) (string, error) {
	p, known := ctx.Value(peerKey{}).(peer)
	if !known {
		return "", errors.New("who asks is not known")
	}
	name := p.name()
	says = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, says)
	if runes := []rune(says); len(runes) > maxRemark {
		says = string(runes[:maxRemark])
	}
	if says == "" || says == name {
		return name, nil
	}
	return name + " (says: " + says + ")", nil
}

// maxRemark is the longest remark of a client about who it is, in characters.
const maxRemark = 100
