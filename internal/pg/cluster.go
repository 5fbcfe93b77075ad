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
	"strconv"
	"strings"
	"syscall"
	"time"
)

// cluster is a database folder with its settings and its user.
type cluster struct {
	home        string
	who         identity
	settings    map[string]string
	log         *slog.Logger
	deathSignal bool
}

func (c cluster) data() string { return filepath.Join(c.home, "data") }

// major is the major version that made the folder, 0 where it is not made yet.
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

// init makes the folder beside its place and moves it there when it is whole.
func (c cluster) init(ctx context.Context, bin installation) error {
	fresh := c.data() + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return fmt.Errorf("initialise database folder: %w", err)
	}
	// Order is by bytes, so that it is the same on every machine. Who reaches the socket's folder is the one user there is.
	cmd := exec.Command(bin.program("initdb"), "-D", fresh, "--username="+role, "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync")
	cmd.Dir, cmd.Env = c.home, environment()
	if err := run(ctx, cmd, c.who, slog.New(slog.DiscardHandler)); err != nil {
		return fmt.Errorf("initialise database folder: %w", err)
	}
	if c.settings["fsync"] != "off" {
		if err := syncTree(ctx, fresh); err != nil {
			return fmt.Errorf("initialise database folder: %w", err)
		}
	}
	if err := os.Rename(fresh, c.data()); err != nil {
		return fmt.Errorf("initialise database folder: %w", err)
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
	return startProcess(cmd, c.who, c.deathSignal, c.log)
}

// inherited are the variables that Postgres' programs get of ours: none that holds a key, nor one that leads them elsewhere (PG…) or
// makes them speak another language (LANG, LC_…).
var inherited = []string{"PATH", "HOME", "TZ", "TMPDIR"}

// environment is that of every program that is run for Postgres.
func environment() []string {
	variables := []string{}
	for _, name := range inherited {
		if value, set := os.LookupEnv(name); set {
			variables = append(variables, name+"="+value)
		}
	}
	return variables
}

// stopOrphan stops a server that an annals which was killed has left on the folder, or that is still on its way down, and
// removes its socket. The caller holds the lock of the folder, so whatever runs there has lost its parent.
func (c cluster) stopOrphan(ctx context.Context) error {
	text, err := os.ReadFile(filepath.Join(c.data(), "postmaster.pid"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("orphaned server: %w", err)
	}
	// Process id, data folder, start time, port, socket folder, …
	lines := strings.Split(string(text), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(lines[0]))
	if err != nil || pid <= 1 {
		return nil // a file cut off by a crash; the server tells by itself whether its folder is in use
	}
	for _, ask := range []struct {
		signal syscall.Signal
		limit  time.Duration
	}{{syscall.SIGINT, 10 * time.Second}, {syscall.SIGQUIT, 5 * time.Second}, {syscall.SIGKILL, 5 * time.Second}} {
		gone, err := c.stopPID(ctx, pid, ask.signal, ask.limit)
		if err != nil {
			return fmt.Errorf("orphaned server: %w", err)
		}
		if gone {
			if len(lines) > 4 {
				return removeLeft(lines[4])
			}
			return nil
		}
	}
	return fmt.Errorf("orphaned server: process %d on %s does not end", pid, c.data())
}

// stopPID signals the server with a process id and waits until it is gone, or the limit is over.
func (c cluster) stopPID(ctx context.Context, pid int, signal syscall.Signal, limit time.Duration) (gone bool, err error) {
	running, err := isServerOf(pid, c.data())
	if err != nil || !running {
		return !running, err
	}
	c.log.WarnContext(ctx, "stopping a server that an earlier process left", "pid", pid, "signal", signal.String())
	if err := syscall.Kill(pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
		return false, fmt.Errorf("signal process %d: %w", pid, err)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for wait := newBackoff(5*time.Millisecond, 100*time.Millisecond); ; {
		if running, err = isServerOf(pid, c.data()); err != nil || !running {
			return !running, err
		}
		if !wait.sleep(ctx) {
			return false, nil
		}
	}
}
