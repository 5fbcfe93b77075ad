package operatorapi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"path/filepath"
	"syscall"

	"github.com/annals-project/annals/internal/peersocket"
)

// Socket returns the path of the socket of a data folder. Who listens there holds the lock of the folder.
func Socket(dataDir string) string { return filepath.Join(dataDir, "annals.sock") }

// Client calls a running server through its socket.
type Client struct {
	path string
	http *http.Client
}

// Dial returns a client of the server that runs on a data folder. It opens no connection: without a
// server the first call fails.
func Dial(dataDir string) *Client {
	path := Socket(dataDir)
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return peersocket.Dial(ctx, path) }
	return &Client{path, &http.Client{Transport: &http.Transport{DialContext: dial}}}
}

// Running reports whether a server responds on the data folder.
func (c *Client) Running(ctx context.Context) bool {
	conn, err := peersocket.Dial(ctx, c.path)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

// ErrNotRunning is the error of a call on a data folder that no server listens on.
var ErrNotRunning = errors.New("no server is running")

// unreachable explains to the operator why the socket does not respond.
func (c *Client) unreachable(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%w on data folder %s (is --data-dir right?)", ErrNotRunning, filepath.Dir(c.path))
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s may only be opened by the user that runs the server", c.path)
	default:
		return fmt.Errorf("call the server through %s: %w", c.path, err)
	}
}
