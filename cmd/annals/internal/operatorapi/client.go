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
)

// Client calls a running server through its socket.
type Client struct {
	path string
	http *http.Client
}

// Dial returns a client of the server that runs on a data folder. It opens no connection: without a
// server the first call fails.
func Dial(dataDir string) *Client {
	c := &Client{path: Socket(dataDir)}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return c.dial(ctx) }
	c.http = &http.Client{Transport: &http.Transport{DialContext: dial}}
	return c
}

func (c *Client) dial(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	var conn net.Conn
	err := reach(c.path, func(path string) (err error) {
		conn, err = d.DialContext(ctx, "unix", path)
		return err
	})
	return conn, err
}

// Running reports whether a server responds on the data folder.
func (c *Client) Running(ctx context.Context) bool {
	conn, err := c.dial(ctx)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

// unreachable explains to the operator why the socket does not respond.
func (c *Client) unreachable(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("no server is running on data folder %s (is --data-dir right?)", filepath.Dir(c.path))
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s may only be opened by the user that runs the server", c.path)
	default:
		return fmt.Errorf("call the server through %s: %w", c.path, err)
	}
}
