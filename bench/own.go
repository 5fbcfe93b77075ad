package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	client "github.com/annals-project/annals/client"
)

// ownServer is a separate server that a benchmark starts for itself.
type ownServer struct {
	program, dir, addr, url string
	// console is the URL of its console.
	console string
	// limit is the longest time that a start may take.
	limit time.Duration
	// flags are additional flags of "serve".
	flags   []string
	process *exec.Cmd
	// exited is closed once the process has ended.
	exited chan struct{}
}

// The longest times that a separate server may take.
const (
	ownStartLimit = 2 * time.Minute
	ownStopLimit  = time.Minute
)

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
		program: program, dir: filepath.Join(dir, "data"), addr: addr, url: "http://" + addr,
		console: "http://" + console, limit: ownStartLimit,
	}, nil
}

// start runs the server, waits until it is ready, and returns how long that took. The log of the
// server is a file next to its data.
func (s *ownServer) start(ctx context.Context) (time.Duration, error) {
	log, err := os.OpenFile(s.logName(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return 0, fmt.Errorf("create a log: %w", err)
	}
	defer func() { _ = log.Close() }() // the child holds it open
	flags := append([]string{
		"serve", "--data-dir", s.dir, "--api-addr", s.addr, "--console-addr", strings.TrimPrefix(s.console, "http://"),
		"--log-level", "warn",
	}, s.flags...)
	s.process = exec.Command(s.program, flags...)
	s.process.Stdout, s.process.Stderr = log, log
	s.exited = make(chan struct{})
	began := time.Now()
	if err := s.process.Start(); err != nil {
		return 0, fmt.Errorf("start a server: %w", err)
	}
	go func() {
		defer close(s.exited)
		_ = s.process.Wait() // ProcessState has the result
	}()
	if err := s.awaitReady(ctx); err != nil {
		return 0, errors.Join(err, s.stop())
	}
	return time.Since(began), nil
}

// showLog writes the end of the server's log, for a benchmark that failed.
func (s *ownServer) showLog(w io.Writer) {
	text, err := os.ReadFile(s.logName())
	if err != nil {
		return // the server never started; the error of the benchmark has the reason
	}
	_, _ = w.Write(text[max(0, len(text)-4<<10):])
}

func (s *ownServer) logName() string { return filepath.Join(filepath.Dir(s.dir), "serve.log") }

func freeAddr(ctx context.Context) (string, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String(), nil
}

func (s *ownServer) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	c, err := clientOf(s.url, "", client.WithAttemptTimeout(5*time.Second))
	if err != nil {
		return err
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if status, err := c.Ready(ctx); err == nil && status.Ready {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the server did not become ready: %w", ctx.Err())
		case <-s.exited:
			return fmt.Errorf("the server ended before it was ready, with %v", s.process.ProcessState)
		case <-tick.C:
		}
	}
}

// stop ends the server in order and waits for it. It does nothing if the server does not run.
func (s *ownServer) stop() error {
	if s.process == nil {
		return nil
	}
	err := s.process.Process.Signal(syscall.SIGTERM)
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	select {
	case <-s.exited:
	case <-time.After(ownStopLimit):
		err = errors.Join(err, errors.New("the server did not stop and was killed"), s.process.Process.Kill())
		<-s.exited
	}
	s.process = nil
	return err
}

// remove stops the server and removes its folder.
func (s *ownServer) remove() error {
	return errors.Join(s.stop(), os.RemoveAll(filepath.Dir(s.dir)))
}
