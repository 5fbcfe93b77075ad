package main

import (
	"context"
	"errors"
	"fmt"
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
	dir, url string
	// ready is how long its start took.
	ready   time.Duration
	process *exec.Cmd
	// exited is closed once the process has ended.
	exited chan struct{}
}

// The longest that a server of a bench may take.
const (
	ownStartLimit = 2 * time.Minute
	ownStopLimit  = time.Minute
)

// startOwn runs this program as a server on a new folder and waits until it is ready. Its log goes to a file in the folder.
func startOwn(ctx context.Context, env *Env) (*ownServer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	dir, err := os.MkdirTemp("", "annals-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	addr, err := freeAddr(ctx)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	log, err := os.Create(filepath.Join(dir, "serve.log"))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a log: %w", err), os.RemoveAll(dir))
	}
	defer func() { _ = log.Close() }() // the child holds it open
	s := &ownServer{dir: filepath.Join(dir, "data"), url: "http://" + addr, exited: make(chan struct{})}
	s.process = exec.Command(self, "serve", "--data-dir", s.dir, "--api-addr", addr, "--log-level", "warn") //nolint:noctx // it is stopped by a signal, so that it ends in order
	s.process.Stdout, s.process.Stderr = log, log
	began := time.Now()
	if err := s.process.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start a server: %w", err), os.RemoveAll(dir))
	}
	go func() {
		defer close(s.exited)
		_ = s.process.Wait() // how it ended is in ProcessState
	}()
	if err := s.awaitReady(ctx); err != nil {
		text, _ := os.ReadFile(log.Name()) // best effort: the error says the rest
		_, _ = env.Stderr.Write(text)
		return nil, errors.Join(err, s.remove())
	}
	s.ready = time.Since(began)
	return s, nil
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

func (s *ownServer) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, ownStartLimit)
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

// remove stops the server and removes its folder.
func (s *ownServer) remove() error {
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
	return errors.Join(err, os.RemoveAll(filepath.Dir(s.dir)))
}
