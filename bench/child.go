package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// child is a process that a benchmark starts and ends.
type child struct {
	program string
	// log is the file that its output is added to.
	log string
	// env is its environment; nil is that of this process.
	env     []string
	process *exec.Cmd
	// exited is closed once the process has ended.
	exited chan struct{}
}

// stopLimit is the longest time that a child may take to stop.
const stopLimit = time.Minute

// run starts the program.
func (c *child) run(args ...string) error {
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("create a log: %w", err)
	}
	defer func() { _ = log.Close() }() // the child holds it open
	process, exited := exec.Command(c.program, args...), make(chan struct{})
	process.Stdout, process.Stderr, process.Env = log, log, c.env
	if err := process.Start(); err != nil {
		return fmt.Errorf("start %s: %w", args[0], err)
	}
	c.process, c.exited = process, exited
	go func() {
		defer close(exited)
		_ = process.Wait() // ProcessState has the result
	}()
	return nil
}

// await waits until the child is ready.
func (c *child) await(ctx context.Context, limit time.Duration, ready func(context.Context) bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if ready(ctx) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the server did not become ready: %w", ctx.Err())
		case <-c.exited:
			return fmt.Errorf("the server ended before it was ready, with %v", c.process.ProcessState)
		case <-tick.C:
		}
	}
}

// stop ends the child in order and waits for it. It does nothing if the child does not run.
func (c *child) stop() error {
	if c.process == nil {
		return nil
	}
	err := c.process.Process.Signal(syscall.SIGTERM)
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	select {
	case <-c.exited:
	case <-time.After(stopLimit):
		err = errors.Join(err, errors.New("the server did not stop and was killed"), c.process.Process.Kill())
		<-c.exited
	}
	c.process = nil
	return err
}

// showLog writes the end of the child's log, for a benchmark that failed.
func (c *child) showLog(w io.Writer) {
	text, err := os.ReadFile(c.log)
	if err != nil {
		return // the child never started; the error of the benchmark has the reason
	}
	_, _ = w.Write(text[max(0, len(text)-4<<10):])
}
