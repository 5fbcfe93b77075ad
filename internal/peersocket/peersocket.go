// Package peersocket serves HTTP on a Unix socket that knows the user at its other end, as the system reports it. Root
// and the user of this process may connect.
package peersocket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"time"
)

// maxSocketPath is the longest path of a Unix socket on every supported system.
const maxSocketPath = 103

// Listen opens a socket at a path for this user only; its mode is 0600. The caller makes sure that no other server
// listens there: a socket that is there is replaced. Closing the listener removes the socket.
func Listen(ctx context.Context, path string, log *slog.Logger) (net.Listener, error) {
	// Create the socket in a folder that no other user can enter, set its mode, then move it.
	hidden, err := os.MkdirTemp(filepath.Dir(path), ".socket-")
	if err != nil {
		return nil, fmt.Errorf("create a folder for the socket: %w", err)
	}
	defer func() { _ = os.RemoveAll(hidden) }()
	created := filepath.Join(hidden, filepath.Base(path))
	var lc net.ListenConfig
	var l net.Listener
	err = reach(created, func(path string) (err error) {
		l, err = lc.Listen(ctx, "unix", path)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listen on a socket in %s: %w", filepath.Dir(path), err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // its path has changed
	if err := errors.Join(os.Chmod(created, 0o600), os.Rename(created, path)); err != nil {
		return nil, errors.Join(fmt.Errorf("move the socket: %w", err), l.Close())
	}
	return &listener{l, path, log}, nil
}

type listener struct {
	net.Listener
	path string
	log  *slog.Logger
}

// Accept waits for a connection of root or of the user of the service. It closes other connections.
func (l *listener) Accept() (net.Conn, error) { return accept(l.Listener, peerOf, l.log) }

// Close removes the socket, then stops listening.
func (l *listener) Close() error {
	err := os.Remove(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, l.Listener.Close())
}

// Dial connects to the socket at a path.
func Dial(ctx context.Context, path string) (conn net.Conn, err error) {
	var d net.Dialer
	err = reach(path, func(path string) (err error) {
		conn, err = d.DialContext(ctx, "unix", path)
		return err
	})
	return conn, err
}

// reach calls use with a path of the socket that is short enough for a Unix socket: that of its folder
// may be long. The path is valid during the call only.
func reach(path string, use func(path string) error) error {
	if len(path) <= maxSocketPath {
		return use(path)
	}
	folder, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("find the folder of the socket: %w", err)
	}
	dir, err := os.MkdirTemp("", "annals-")
	if err != nil {
		return fmt.Errorf("create a short path to the socket: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	link := filepath.Join(dir, "d")
	if err := os.Symlink(folder, link); err != nil {
		return fmt.Errorf("create a short path to the socket: %w", err)
	}
	return use(filepath.Join(link, filepath.Base(path)))
}

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
