package peersocket

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"testing"
)

// fakeListener hands out the given connections, then fails.
type fakeListener struct{ conns []net.Conn }

var errEnd = errors.New("no more connections")

func (l *fakeListener) Accept() (net.Conn, error) {
	if len(l.conns) == 0 {
		return nil, errEnd
	}
	c := l.conns[0]
	l.conns = l.conns[1:]
	return c, nil
}
func (*fakeListener) Close() error   { return nil }
func (*fakeListener) Addr() net.Addr { return nil }

func TestAccept_PeersOfOtherUsers(t *testing.T) {
	own := os.Geteuid()
	for name, c := range map[string]struct {
		peer Peer
		err  error
		ok   bool
	}{
		"root": {Peer{0}, nil, true}, "the service's user": {Peer{own}, nil, true}, "another user": {Peer{own + 12345}, nil, false}, "nobody": {Peer{65534}, nil, own == 65534},
		"unknown": {Peer{}, errors.New("not known"), false},
	} {
		here, there := net.Pipe()
		of := func(net.Conn) (Peer, error) { return c.peer, c.err }
		got, err := accept(&fakeListener{[]net.Conn{here}}, of, slog.New(slog.DiscardHandler))
		if c.ok {
			if known, is := got.(*peerConn); err != nil || !is || known.peer != c.peer {
				t.Errorf("%s: %v, %v", name, got, err)
			}
		} else {
			if got != nil || !errors.Is(err, errEnd) {
				t.Errorf("%s is accepted: %v, %v", name, got, err)
			}
			if _, err := there.Write([]byte("GET")); err == nil {
				t.Errorf("%s: its connection is open", name)
			}
		}
		_, _ = here.Close(), there.Close()
	}
}
