package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	client "github.com/annals-project/annals/client"
)

// ownServer is a separate server that a benchmark starts for itself.
type ownServer struct {
	child
	dir, addr, url string
	// console is the URL of its console.
	console string
	// limit is the longest time that a start may take.
	limit time.Duration
	// flags are additional flags of "serve".
	flags []string
}

// ownStartLimit is the longest time that the start of a separate server may take.
const ownStartLimit = 2 * time.Minute

// newOwn creates a folder and an address for a server that runs a program.
func newOwn(ctx context.Context, program string) (*ownServer, error) {
	addr, err := freeAddr(ctx)
	if err != nil {
		return nil, err
	}
	console, err := freeAddr(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "annals-bench-")
	if err != nil {
		return nil, fmt.Errorf("create a folder: %w", err)
	}
	return &ownServer{
		child: child{program: program, log: filepath.Join(dir, "serve.log")},
		dir:   filepath.Join(dir, "data"), addr: addr, url: "http://" + addr, console: "http://" + console,
		limit: ownStartLimit,
	}, nil
}

// start runs the server, waits until it is ready, and returns how long that took. The log of the
// server is a file next to its data.
func (s *ownServer) start(ctx context.Context) (time.Duration, error) {
	c, err := clientOf(s.url, "", client.WithAttemptTimeout(5*time.Second))
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := s.child.run(append([]string{
		"serve", "--data-dir", s.dir, "--api-addr", s.addr, "--console-addr", strings.TrimPrefix(s.console, "http://"),
		"--log-level", "warn",
	}, s.flags...)...); err != nil {
		return 0, err
	}
	err = s.await(ctx, s.limit, func(ctx context.Context) bool {
		status, err := c.Ready(ctx)
		return err == nil && status.Ready
	})
	if err != nil {
		return 0, errors.Join(err, s.stop())
	}
	return time.Since(began), nil
}

func freeAddr(ctx context.Context) (string, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String(), nil
}

// remove stops the server and removes its folder.
func (s *ownServer) remove() error {
	return errors.Join(s.stop(), os.RemoveAll(filepath.Dir(s.dir)))
}
