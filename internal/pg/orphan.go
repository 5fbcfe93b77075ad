package pg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/annals-project/annals/eventstore/backoff"
)

// stopOrphan stops what is left of an earlier server on the folder: a server that a killed annals left running, or that
// is still shutting down, and the processes of a server that was killed, which end by themselves a moment later. It
// removes the socket and the lock file of that server. The caller holds the lock of the folder, so a server that runs
// there has lost its parent.
func (c cluster) stopOrphan(ctx context.Context) error {
	lockFile := filepath.Join(c.data(), "postmaster.pid")
	text, err := os.ReadFile(lockFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("orphaned server: %w", err)
	}
	// Process id, data folder, start time, port, socket folder, …
	lines := strings.Split(string(text), "\n")
	if pid, err := strconv.Atoi(strings.TrimSpace(lines[0])); err == nil && pid > 1 {
		if err := c.stopAll(ctx, func() ([]int, error) { return c.onlyIfServer(pid) }, []stopTry{
			{syscall.SIGINT, 10 * time.Second}, {syscall.SIGQUIT, 5 * time.Second}, {syscall.SIGKILL, 5 * time.Second},
		}); err != nil {
			return err
		}
	}
	alone, err := c.stopOthers(ctx)
	if err != nil || text == nil {
		return err
	}
	if len(lines) > 4 {
		if err := removeOrphanedSocket(lines[4]); err != nil {
			return err
		}
	}
	if !alone {
		return nil // a new server checks by itself whether the folder is in use
	}
	// Postgres takes both files for those of a running server as long as any process has that id: one that has ended
	// and is not reaped, or another program.
	for _, name := range []string{filepath.Join(c.home, "socket", socketName+".lock"), lockFile} {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("orphaned server: %w", err)
		}
	}
	return nil
}

// stopOthers waits for the processes of a server that was killed, and stops those that do not end. alone is true if it
// is known that no process is left.
func (c cluster) stopOthers(ctx context.Context) (alone bool, err error) {
	if _, known, err := serversOf(c.data()); err != nil || !known {
		return false, err
	}
	return true, c.stopAll(ctx, func() ([]int, error) {
		pids, _, err := serversOf(c.data())
		return pids, err
	}, []stopTry{{0, 10 * time.Second}, {syscall.SIGQUIT, 5 * time.Second}, {syscall.SIGKILL, 5 * time.Second}})
}

// onlyIfServer returns a process id if its process is a server of the folder.
func (c cluster) onlyIfServer(pid int) ([]int, error) {
	running, err := isServerOf(pid, c.data())
	if err != nil || !running {
		return nil, err
	}
	return []int{pid}, nil
}

// stopTry is a signal, 0 for none, and how long processes may take to end.
type stopTry struct {
	signal syscall.Signal
	limit  time.Duration
}

// stopAll tries to stop processes until none is left.
func (c cluster) stopAll(ctx context.Context, left func() ([]int, error), tries []stopTry) error {
	for _, try := range tries {
		pids, err := left()
		if err != nil {
			return fmt.Errorf("orphaned server: %w", err)
		}
		if len(pids) == 0 {
			return nil
		}
		if try.signal != 0 {
			c.logger.WarnContext(ctx, "stop postgres left by an earlier process", "pids", pids, "signal", try.signal.String())
		}
		for _, pid := range pids {
			if try.signal == 0 {
				break
			}
			if err := syscall.Kill(pid, try.signal); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("orphaned server: signal process %d: %w", pid, err)
			}
		}
		gone, err := awaitNone(ctx, left, try.limit)
		if err != nil {
			return fmt.Errorf("orphaned server: %w", err)
		}
		if gone {
			return nil
		}
	}
	pids, err := left()
	slices.Sort(pids)
	return errors.Join(err, fmt.Errorf("orphaned server: processes %v on %s do not end", pids, c.data()))
}

// awaitNone waits until no process is left, at most until the limit.
func awaitNone(ctx context.Context, left func() ([]int, error), limit time.Duration) (gone bool, err error) {
	waitCtx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for wait := (backoff.Backoff{First: 5 * time.Millisecond, Longest: 100 * time.Millisecond}); ; {
		pids, err := left()
		if err != nil || len(pids) == 0 {
			return len(pids) == 0, err
		}
		if wait.Wait(waitCtx) != nil {
			return false, context.Cause(ctx)
		}
	}
}
