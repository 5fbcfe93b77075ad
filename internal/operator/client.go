package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/google/uuid"
)

// Client asks a running server through its socket.
type Client struct {
	path string
	http *http.Client
}

// Dial makes a client of the server that runs on a data folder. It opens nothing: a server that is not there shows at the first call.
func Dial(dataDir string) *Client {
	c := &Client{path: Socket(dataDir)}
	c.http = &http.Client{
		Timeout: 30 * time.Second,
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return c.dial(ctx) },
		},
	}
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

// Failed lists one page of stopped sends, oldest first; after is "" or that of the page before.
func (c *Client) Failed(ctx context.Context, limit int, after string) (FailedPage, error) {
	q := url.Values{"limit": {strconv.Itoa(limit)}}
	if after != "" {
		q.Set("after", after)
	}
	var page FailedPage
	err := c.call(ctx, http.MethodGet, "/operator/failed?"+q.Encode(), &page)
	return page, err
}

// Retry puts a stopped send back into the queue. ErrNotFound, ErrNotStopped and ErrDisabled are told apart.
func (c *Client) Retry(ctx context.Context, ingestionID uuid.UUID) error {
	return c.call(ctx, http.MethodPost, "/operator/failed/"+ingestionID.String()+"/retry", nil)
}

func (c *Client) call(ctx context.Context, method, path string, out any) error {
	req, err := http.NewRequestWithContext(ctx, method, "http://annals"+path, nil)
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return c.unreachable(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(res.Body, 16<<20))
	if err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	if res.StatusCode/100 != 2 {
		return refused(res.StatusCode, body)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("answer of the server cannot be read: %w", err)
	}
	return nil
}

// unreachable says in words of the operator why the socket does not answer.
func (c *Client) unreachable(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("no server is running on data folder %s (is --data-dir right?)", filepath.Dir(c.path))
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s may only be opened by the user that runs the server", c.path)
	default:
		return fmt.Errorf("ask the server through %s: %w", c.path, err)
	}
}

func refused(status int, body []byte) error {
	var r refusal
	if err := json.Unmarshal(body, &r); err != nil {
		return fmt.Errorf("the server answered %d", status)
	}
	switch r.Code {
	case codeNotFound:
		return ErrNotFound
	case codeNotStopped:
		return ErrNotStopped
	case codeDisabled:
		return ErrDisabled
	default:
		return fmt.Errorf("the server answered %d: %s", status, r.Message)
	}
}
