package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/annals-project/annals/internal/client"
)

// ownServer is a server that a bench started for itself.
type ownServer struct {
	self, dir, addr, url string
	// limit is the longest that a start may take.
	limit time.Duration
	// flags are more flags of "serve".
	flags   []string
	process *exec.Cmd
	// exited is closed once the process has ended.
	exited chan struct{}
}

// The longest that a server of a bench may take.
const (
	ownStartLimit = 2 * time.Minute
	ownStopLimit  = time.Minute
)

// newOwn makes a folder and an address for a server that runs this program.
func newOwn(ctx context.Context) (*ownServer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	addr, err := freeAddr(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "annals-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	return &ownServer{self: self, dir: filepath.Join(dir, "data"), addr: addr, url: "http://" + addr, limit: ownStartLimit}, nil
}

// start runs the server and waits until it is ready, and says how long that took. Its log goes to a file beside its data.
func (s *ownServer) start(ctx context.Context) (time.Duration, error) {
	log, err := os.OpenFile(s.logName(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return 0, fmt.Errorf("make a log: %w", err)
	}
	defer func() { _ = log.Close() }() // the child holds it open
	flags := append([]string{"serve", "--data-dir", s.dir, "--api-addr", s.addr, "--console-addr", "127.0.0.1:0", "--log-level", "warn"}, s.flags...)
	s.process = exec.Command(s.self, flags...)
	s.process.Stdout, s.process.Stderr = log, log
	s.exited = make(chan struct{})
	began := time.Now()
	if err := s.process.Start(); err != nil {
		return 0, fmt.Errorf("start a server: %w", err)
	}
	go func() {
		defer close(s.exited)
		_ = s.process.Wait() // how it ended is in ProcessState
	}()
	if err := s.awaitReady(ctx); err != nil {
		return 0, errors.Join(err, s.stop())
	}
	return time.Since(began), nil
}

// lastWords shows the end of the server's log, for a bench that failed.
func (s *ownServer) lastWords(w io.Writer) {
	text, err := os.ReadFile(s.logName())
	if err != nil {
		return // it never began; the error of the bench says why
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
	c, err := client.New(s.url, "", client.Options{Timeout: 5 * time.Second})
	if err != nil {
		return fmt.Errorf("address of the server: %w", err)
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if ready, _, err := c.Ready(ctx); err == nil && ready {
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

// stop asks the server to end in order, and waits for it; one that does not run is fine.
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
