package operator

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
)

// Listen opens the socket of a data folder, which this user alone may use. The caller holds the lock of the data folder,
// so a socket that is there was left by a server that died. Closing the listener removes the socket.
func Listen(ctx context.Context, dataDir string, log *slog.Logger) (net.Listener, error) {
	// The socket comes to be in a folder that nobody else can enter, and moves to its place with its mode set.
	hidden, err := os.MkdirTemp(dataDir, ".socket-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the socket: %w", err)
	}
	defer func() { _ = os.RemoveAll(hidden) }()
	born := filepath.Join(hidden, SocketName)
	var lc net.ListenConfig
	var l net.Listener
	err = reach(born, func(path string) (err error) {
		l, err = lc.Listen(ctx, "unix", path)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listen on a socket in %s: %w", dataDir, err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // it would look at the place that the socket has left
	path := Socket(dataDir)
	if err := errors.Join(os.Chmod(born, 0o600), os.Rename(born, path)); err != nil {
		return nil, errors.Join(fmt.Errorf("put the socket in its place: %w", err), l.Close())
	}
	return &listener{l, path, log}, nil
}

type listener struct {
	net.Listener
	path string
	log  *slog.Logger
}

// Accept waits for a connection of root or of the user of the service; others are closed.
func (l *listener) Accept() (net.Conn, error) { return accept(l.Listener, peerOf, l.log) }

// Close removes the socket, then stops listening.
func (l *listener) Close() error {
	err := os.Remove(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, l.Listener.Close())
}

// reach calls use with a path that leads to the socket at path and that is short enough for a Unix socket: a data
// folder may lie deep. The path given to use is good for that call only.
func reach(path string, use func(path string) error) error {
	if len(path) <= MaxSocketPath {
		return use(path)
	}
	whole, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("find the folder of the socket: %w", err)
	}
	dir, err := os.MkdirTemp("", "annals-")
	if err != nil {
		return fmt.Errorf("make a short path to the socket: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	link := filepath.Join(dir, "d")
	if err := os.Symlink(whole, link); err != nil {
		return fmt.Errorf("make a short path to the socket: %w", err)
	}
	return use(filepath.Join(link, filepath.Base(path)))
}
