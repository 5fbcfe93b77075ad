package pg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/annals-project/annals/eventstore/backoff"
)

// cluster is a database folder with its settings and its user.
type cluster struct {
	home        string
	user        osUser
	settings    map[string]string
	logger      *slog.Logger
	deathSignal bool
}

func (c cluster) data() string { return filepath.Join(c.home, "data") }

// major returns the major version that made the folder, 0 if it does not exist yet.
func (c cluster) major() (int, error) {
	text, err := os.ReadFile(filepath.Join(c.data(), "PG_VERSION"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("version of the database folder: %w", err)
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("version of the database folder %s: %w", c.data(), err)
	}
	return major, nil
}

// init creates the database folder under another name and renames it once it is complete, so that a
// crash leaves no partial folder.
func (c cluster) init(ctx context.Context, bin installation) error {
	fresh := c.data() + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return fmt.Errorf("initialize database folder: %w", err)
	}
	// --no-locale sorts by bytes, so that the order is the same on every machine. Trust is safe: only
	// the server's user and root can reach the socket.
	cmd := exec.Command(bin.program("initdb"), "-D", fresh, "--username="+role, "--auth=trust",
		"--encoding=UTF8", "--no-locale", "--no-sync")
	cmd.Dir, cmd.Env = c.home, environment()
	if err := run(ctx, cmd, c.user, slog.New(slog.DiscardHandler)); err != nil {
		return fmt.Errorf("initialize database folder: %w", err)
	}
	if c.settings["fsync"] != "off" {
		if err := syncTree(ctx, fresh); err != nil {
			return fmt.Errorf("initialize database folder: %w", err)
		}
	}
	if err := os.Rename(fresh, c.data()); err != nil {
		return fmt.Errorf("initialize database folder: %w", err)
	}
	return syncPath(c.home)
}

// run starts the server on the folder.
func (c cluster) run(ctx context.Context, bin installation, socket string) (*process, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	args := []string{"-D", c.data(), "-p", socketPort, "-k", `"` + strings.ReplaceAll(socket, `"`, `""`) + `"`}
	for name, value := range c.settings {
		args = append(args, "-c", name+"="+value)
	}
	cmd := exec.Command(bin.program("postgres"), args...)
	cmd.Dir, cmd.Env = c.data(), environment()
	return startProcess(cmd, c.user, c.deathSignal, c.logger)
}

// inherited are the environment variables that Postgres' programs receive. The others may contain
// keys, redirect the programs (PG…) or change the language of their messages (LANG, LC_…).
var inherited = []string{"PATH", "HOME", "TZ", "TMPDIR"}

// environment returns the environment of every program that is run for Postgres.
func environment() []string {
	variables := []string{}
	for _, name := range inherited {
		if value, set := os.LookupEnv(name); set {
			variables = append(variables, name+"="+value)
		}
	}
	return variables
}

// syncers is how many files are fsynced at once. A disk writes many in the time of one, while initdb
// would fsync its thousand files one after the other.
const syncers = 32

// syncTree writes all files and folders below a folder to the disk.
func syncTree(ctx context.Context, folder string) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(syncers)
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		if entry.IsDir() || entry.Type().IsRegular() {
			g.Go(func() error { return syncPath(path) })
		}
		return nil
	})
	return errors.Join(g.Wait(), err)
}

// syncPath writes a file, or the entries of a folder, to the disk.
func syncPath(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("write to disk: %w", err)
	}
	if err := errors.Join(file.Sync(), file.Close()); err != nil {
		return fmt.Errorf("write to disk: %w", err)
	}
	return nil
}

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
