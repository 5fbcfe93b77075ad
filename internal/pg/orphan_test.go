package pg

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/annals-project/annals/internal/runtest"
)

func TestServer_ParentIsKilled(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("a process cannot be made to end with its parent here")
	}
	dir := t.TempDir()
	pid := killedChild(t, dir)
	eventually(t, "the server ends", func() bool { return !alive(t, pid, dir) })
}

func TestStart_OrphanedServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pid := killedChild(t, dir, noDeathSignalVariable+"=1")
	if !alive(t, pid, dir) {
		t.Fatal("the server ended with its parent: there is no orphan to find")
	}
	s := start(t, Config{DataDir: dir})
	if alive(t, pid, dir) {
		t.Error("the orphan still runs")
	}
	if now := postmaster(t, dir); now == pid {
		t.Error("the orphan was taken over")
	}
	if n := query[int](t, s, "select 1"); n != 1 {
		t.Errorf("answered %d", n)
	}
}

// A killed process is followed at once by the next one: the server may still be on its way down.
func TestStart_RightAfterAKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	killedChild(t, dir)
	if n := query[int](t, start(t, Config{DataDir: dir}), "select 1"); n != 1 {
		t.Errorf("answered %d", n)
	}
}

// What a kill of the whole process group leaves does not hold up the next start: processes of Postgres that have not
// ended yet, and a lock file with the id of one that has.
func TestStart_RightAfterAKillOfAll(t *testing.T) {
	t.Parallel()
	rounds := 3
	if text := os.Getenv("ANNALS_PG_KILLS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		rounds = n
	}
	dir := t.TempDir()
	for range rounds {
		killedChild(t, dir, killAllVariable+"=1")
	}
	if n := query[int](t, start(t, Config{DataDir: dir}), "select 1"); n != 1 {
		t.Errorf("answered %d", n)
	}
}

// Postgres takes its lock file for that of a running server while any process has the id in it.
func TestStart_LockFileOfAnotherProgram(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("the processes of a folder are not known here")
	}
	dir := t.TempDir()
	first, err := Start(t.Context(), Config{DataDir: dir, Settings: fast()})
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	other := exec.Command("sleep", "600")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = other.Process.Kill(), other.Wait() })
	lock := strconv.Itoa(other.Process.Pid) + "\n" + dir + "\n1\n5432\n\n\n"
	if err := os.WriteFile(filepath.Join(dir, "postgres", "data", "postmaster.pid"), []byte(lock), 0o600); err != nil {
		t.Fatal(err)
	}
	if n := query[int](t, start(t, Config{DataDir: dir}), "select 1"); n != 1 {
		t.Errorf("answered %d", n)
	}
}

func TestSupervise_StartsAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var log runtest.Output
	s := start(t, Config{DataDir: dir, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	runtest.Part(t, s.Supervise)
	statements(t, s, "create table kept as select 42 as n")
	for round := range 2 {
		pid := postmaster(t, dir)
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		again := "postgres accepts connections again"
		eventually(t, again, func() bool { return strings.Count(log.String(), again) == round+1 })
		if now := postmaster(t, dir); now == pid {
			t.Error("the killed server is named")
		}
		if n := query[int](t, s, "select n from kept"); n != 42 {
			t.Errorf("kept %d, want 42", n)
		}
	}
	if strings.Contains(log.String(), "starting up") || strings.Contains(log.String(), "not yet accepting") {
		t.Errorf("the recovery is logged as a failure: %s", log.String())
	}
}

func TestSupervise_GivesUp(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var log runtest.Output
	s, err := Start(t.Context(), Config{DataDir: dir, Settings: fast(), Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Supervise(t.Context()) }()
	for round := range maxRestarts + 1 {
		const again = "postgres accepts connections again"
		eventually(t, again, func() bool { return strings.Count(log.String(), again) == round })
		if err := syscall.Kill(postmaster(t, dir), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-done; err == nil || !strings.Contains(err.Error(), "ended 6 times") {
		t.Errorf("it gave up with %v", err)
	}
	if err := s.Close(); err != nil && !strings.Contains(err.Error(), "killed") {
		t.Error(err)
	}
}
