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
