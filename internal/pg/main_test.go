package pg

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/runtest"
)

// childVariable makes the test binary a process that starts a server on the
// named folder, reports that, and waits to be killed.
const (
	childVariable         = "ANNALS_PG_TEST_CHILD"
	noDeathSignalVariable = "ANNALS_PG_TEST_NO_DEATH_SIGNAL"
	// killAllVariable kills the server too, right before its parent.
	killAllVariable = "ANNALS_PG_TEST_KILL_ALL"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childVariable); dir != "" {
		_, err := Start(context.Background(),
			Config{DataDir: dir, Settings: fast(), noDeathSignal: os.Getenv(noDeathSignalVariable) != ""})
		if err != nil {
			fmt.Println("failed:", err)
			os.Exit(1)
		}
		fmt.Println("started")
		if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
			os.Exit(1)
		}
		os.Exit(3) // only a kill is expected
	}
	temporary, err := os.MkdirTemp(runtest.MemoryFolder(), "pg-")
	if err == nil && !runsPrograms(temporary) {
		_ = os.Remove(temporary) // it is empty
		temporary, err = os.MkdirTemp("", "pg-")
	}
	if err == nil {
		err = errors.Join(os.Chmod(temporary, 0o755), os.Setenv("TMPDIR", temporary))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if err := os.RemoveAll(temporary); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		os.Exit(code)
	}))
}

// runsPrograms reports whether programs in a folder can be run, which a container may forbid for files in memory.
func runsPrograms(dir string) bool {
	program := filepath.Join(dir, "program")
	err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o700)
	if err == nil {
		err = exec.Command(program).Run()
	}
	return errors.Join(err, os.Remove(program)) == nil
}

// fast leaves out what only a crash of the machine needs.
func fast() map[string]string { return map[string]string{"fsync": "off"} }

// start starts a server, by default without fsync. The end of the test stops it.
func start(t *testing.T, cfg Config) *Server {
	t.Helper()
	if cfg.Settings == nil {
		cfg.Settings = fast()
	}
	s, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// query reads one value of the server.
func query[T any](t *testing.T, s *Server, sql string) T {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := conn.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	var value T
	if err := conn.QueryRow(t.Context(), sql).Scan(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

// statements runs statements on the server.
func statements(t *testing.T, s *Server, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.URL())
	if err != nil {
		t.Fatal(err)
	}
	_, err = conn.PgConn().Exec(t.Context(), sql).ReadAll()
	if err := errors.Join(err, conn.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// killedChild starts a process that runs a server on the folder, kills it, and returns the process id of the server.
func killedChild(t *testing.T, dir string, environment ...string) int {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), append(environment, childVariable+"="+dir)...)
	if _, err := child.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "started\n" {
		t.Fatalf("child printed %q, %v", line, err)
	}
	pid := postmaster(t, dir)
	if slices.Contains(environment, killAllVariable+"=1") {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := child.Wait(); err == nil {
		t.Fatal("the child ended by itself")
	}
	return pid
}

// postmaster is the process id of the server that runs on a folder.
func postmaster(t *testing.T, dir string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "postgres", "data", "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// alive reports whether the server of a folder runs under a process id. A zombie does not count.
func alive(t *testing.T, pid int, dir string) bool {
	t.Helper()
	running, err := isServerOf(pid, filepath.Join(dir, "postgres", "data"))
	if err != nil {
		t.Fatal(err)
	}
	return running
}

// eventually waits for a condition. Its limit catches what hangs, not what is slow.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	const limit = 3 * time.Minute
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for wait := (backoff.Backoff{First: time.Millisecond, Longest: 50 * time.Millisecond}); !condition(); {
		if wait.Wait(ctx) != nil {
			t.Fatalf("%s: not within %s", what, limit)
		}
	}
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root has this difficulty")
	}
}

// openDir is a folder that every user may enter, unlike t.TempDir.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "annals-pg-test-") //nolint:usetesting // its parent is closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func ownerOf(t *testing.T, path string) int {
	t.Helper()
	var stat syscall.Stat_t
	if err := syscall.Stat(path, &stat); err != nil {
		t.Fatal(err)
	}
	return int(stat.Uid)
}
