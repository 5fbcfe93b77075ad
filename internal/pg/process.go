package pg

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/annals-project/annals/internal/panics"
)

// process is a running server.
type process struct {
	os     *os.Process
	done   chan struct{} // closed once it has ended and its output is read
	err    error         // how it ended, once done
	output *lastLines
}

// startProcess starts a program in its own process group, out of reach of the terminal's signals, that
// ends with this process if the system supports it.
//
// The death signal is sent when the thread that started the process ends. So the process is started
// on its own thread, which runs until the process ends.
func startProcess(cmd *exec.Cmd, user osUser, deathSignal bool, log *slog.Logger) (*process, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if deathSignal {
		setParentDeathSignal(cmd.SysProcAttr)
	}
	user.apply(cmd.SysProcAttr)
	output, input, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("output of %s: %w", cmd.Path, err)
	}
	cmd.Stdout, cmd.Stderr = input, input
	p := &process{done: make(chan struct{}), output: &lastLines{}}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		err := panics.Call(context.Background(), log, "start of a process panicked", func() error {
			return errors.Join(cmd.Start(), input.Close())
		})
		p.os = cmd.Process
		started <- err
		if p.os == nil {
			return
		}
		defer close(p.done)
		p.err = panics.Call(context.Background(), log, "wait for a process panicked", func() error {
			return p.wait(cmd, output, log)
		})
	}()
	if err := <-started; err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", cmd.Path, err), output.Close())
	}
	return p, nil
}

// wait reads the output of the process and waits for its end. If reading panics, the rest of the output
// is discarded, so that the process does not block on it.
func (p *process) wait(cmd *exec.Cmd, output io.ReadCloser, log *slog.Logger) error {
	read := make(chan error, 1)
	go func() {
		err := panics.Call(context.Background(), log, "reading the output of a process panicked", func() error {
			p.output.read(output, log)
			return nil
		})
		if err != nil {
			_, copyErr := io.Copy(io.Discard, output)
			err = errors.Join(err, copyErr)
		}
		read <- err
	}()
	return errors.Join(cmd.Wait(), <-read, output.Close())
}

// stop requests a fast shutdown, and after the limit stronger ones.
func (p *process) stop(limit time.Duration) error {
	var errs []error
	for _, ask := range []struct {
		signal syscall.Signal
		limit  time.Duration
	}{{syscall.SIGINT, limit}, {syscall.SIGQUIT, 5 * time.Second}, {syscall.SIGKILL, 5 * time.Second}} {
		if err := p.os.Signal(ask.signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("stop postgres: %w", err)
		}
		select {
		case <-p.done:
			if len(errs) == 0 && p.err != nil {
				errs = append(errs, fmt.Errorf("postgres ended: %w", p.err))
			}
			return errors.Join(errs...)
		case <-time.After(ask.limit):
			errs = append(errs, fmt.Errorf("postgres did not end within %s of %s", ask.limit, ask.signal))
		}
	}
	return errors.Join(errs...)
}

// run runs a program to its end. An error contains the last lines of its output.
func run(ctx context.Context, cmd *exec.Cmd, user osUser, log *slog.Logger) error {
	p, err := startProcess(cmd, user, true, log)
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("%s: %w", cmd.Path, context.Cause(ctx)), p.stop(time.Second))
	case <-p.done:
	}
	if p.err != nil {
		return fmt.Errorf("%s: %w: %s", cmd.Path, p.err, p.output)
	}
	return nil
}

// lastLines logs the output of a program and keeps the last lines for an error.
type lastLines struct {
	mu    sync.Mutex
	lines []string
}

const tailLines = 8

func (l *lastLines) read(r io.Reader, log *slog.Logger) {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if line = strings.TrimRight(line, "\n"); line != "" {
			if !slices.Contains(expected, line) {
				l.add(line)
			}
			logLine(log, line)
		}
		if err != nil {
			return // the program has ended or closed its output
		}
	}
}

func (l *lastLines) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lines = append(l.lines, line); len(l.lines) > tailLines {
		l.lines = slices.Delete(l.lines, 0, 1)
	}
}

func (l *lastLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "; ")
}

// expected are lines that every start and stop print.
var expected = []string{
	"FATAL:  the database system is starting up", "FATAL:  the database system is in recovery mode",
	"FATAL:  the database system is not yet accepting connections", "FATAL:  the database system is shutting down",
	`FATAL:  database "` + database + `" does not exist`, "FATAL:  terminating connection due to administrator command",
}

// logLine logs a line of the server at the level that matters to an operator. An ERROR is logged for
// debugging only: the client that sent the statement receives it.
func logLine(log *slog.Logger, line string) {
	level := slog.LevelDebug
	switch severity, _, _ := strings.Cut(line, ":"); severity {
	case "WARNING":
		level = slog.LevelWarn
	case "FATAL", "PANIC":
		if !slices.Contains(expected, line) {
			level = slog.LevelError
		}
	}
	log.Log(context.Background(), level, "postgres output", "line", line)
}
