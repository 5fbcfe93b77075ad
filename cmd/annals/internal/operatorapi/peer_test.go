package operatorapi

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/user"
	"strings"
	"testing"
	"time"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/registry"
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
		peer peer
		err  error
		ok   bool
	}{
		"root": {peer{0}, nil, true}, "the service's user": {peer{own}, nil, true}, "another user": {peer{own + 12345}, nil, false}, "nobody": {peer{65534}, nil, own == 65534},
		"unknown": {peer{}, errors.New("not known"), false},
	} {
		here, there := net.Pipe()
		of := func(net.Conn) (peer, error) { return c.peer, c.err }
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

func TestBy_PeerWithRemark(t *testing.T) {
	root := context.WithValue(t.Context(), peerKey{}, peer{0})
	for says, want := range map[string]string{
		"": "operator root", "operator root": "operator root", "operator ana": "operator root (says: operator ana)",
		"a\nb\x1b[1m":            "operator root (says: ab[1m)",
		strings.Repeat("ü", 101): "operator root (says: " + strings.Repeat("ü", 100) + ")",
	} {
		if got, err := by(root, says); err != nil || got != want {
			t.Errorf("%q: %q, %v, want %q", says, got, err, want)
		}
	}
	if got, err := by(context.WithValue(t.Context(), peerKey{}, peer{4_000_000}), ""); err != nil ||
		got != "operator uid 4000000" {
		t.Errorf("a user without a name: %q, %v", got, err)
	}
	if got, err := by(t.Context(), "operator root"); err == nil {
		t.Errorf("without a peer it is %q", got)
	}
}

// Through a real socket the peer is the user of this process, whatever the request names.
func TestSocket_NamesItsPeer(t *testing.T) {
	dir := t.TempDir()
	l, err := Listen(t.Context(), dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(Socket(dir)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket: %v, %v", info, err)
	}
	said := make(chan string, 1)
	route := SetAside.ServeAs(time.Now, func(
		_ context.Context, call commands.Call, _ SetAsideRequest,
	) (registry.EventSetAside, error) {
		said <- call.Principal.Name()
		return registry.EventSetAside{}, nil
	})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, l, Handler(slog.New(slog.DiscardHandler), route)) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	if _, err := SetAside.Call(t.Context(), Dial(dir), SetAsideRequest{By: "operator somebody else"}); err != nil {
		t.Fatal(err)
	}
	current, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := <-said, "operator "+current.Username+" (says: operator somebody else)"; got != want {
		t.Errorf("by %q, want %q", got, want)
	}
}
