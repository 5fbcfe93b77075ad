package pg

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/internal/runtest"
)

func TestStart_KeepsCommittedRows(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := Start(t.Context(), Config{DataDir: dir, Settings: fast()})
	if err != nil {
		t.Fatal(err)
	}
	statements(t, first, "create table kept as select 42 as n")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-first.Exited():
	default:
		t.Error("the server still runs after Close")
	}
	if n := query[int](t, start(t, Config{DataDir: dir}), "select n from kept"); n != 42 {
		t.Errorf("kept %d, want 42", n)
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := start(t, Config{DataDir: dir, Settings: map[string]string{"work_mem": "9MB"}})
	if got := query[string](t, s, "show listen_addresses"); got != "" {
		t.Errorf("listens on %q", got)
	}
	for _, folder := range []string{s.socket.path, filepath.Join(dir, "postgres")} {
		info, err := os.Stat(folder)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o700 {
			t.Errorf("%s has mode %v, want 0700", folder, info.Mode().Perm())
		}
	}
	for name, want := range map[string]string{
		"work_mem": "9MB", "fsync": "on", "synchronous_commit": "on", "jit": "off", "autovacuum": "on",
		"max_connections": "100", "server_encoding": "UTF8", "lc_collate": "C",
	} {
		if got := query[string](t, s, "show "+name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

func TestStart_NothingAlarmingIsLogged(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	dir := t.TempDir()
	for range 2 {
		logger := slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelWarn}))
		s, err := Start(t.Context(), Config{DataDir: dir, Settings: fast(), Logger: logger})
		if err != nil {
			t.Fatal(err)
		}
		conn, err := pgx.Connect(t.Context(), s.URL())
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(s.Close(), conn.Close(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	if said.Len() > 0 {
		t.Errorf("said %s", &said)
	}
}

func TestStart_FolderInUse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start(t, Config{DataDir: dir})
	_, err := Start(t.Context(), Config{DataDir: dir})
	const inUse = "the data folder is in use by another annals"
	if err == nil || !strings.Contains(err.Error(), inUse) || strings.Contains(err.Error(), "\n") {
		t.Errorf("second start: %v", err)
	}
}

func TestStart_FolderWithSpecialCharacters(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"ä b+c%20'", `"&=#?\:@`, "Application Support"} {
		root, err := os.MkdirTemp("/tmp", "annals-pg-") //nolint:usetesting // its path is too long for a socket
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.RemoveAll(root); err != nil {
				t.Error(err)
			}
		})
		s := start(t, Config{DataDir: filepath.Join(root, name)})
		if want := filepath.Join(root, name, "postgres", "socket"); s.socket.path != want {
			t.Errorf("the socket is in %s, want %s", s.socket.path, want)
		}
		if n := query[int](t, s, "select 7"); n != 7 {
			t.Errorf("%s: answered %d", name, n)
		}
	}
}

func TestStart_DeepFolder(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), strings.Repeat("deep/", 25), "a,b")
	s, err := Start(t.Context(), Config{DataDir: dir, Settings: fast()})
	if err != nil {
		t.Fatal(err)
	}
	socket := s.socket.path
	if strings.HasPrefix(socket, dir) {
		t.Errorf("socket folder %s is below the data folder", socket)
	}
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("socket folder: %v, %v", info, err)
	}
	if n := query[int](t, s, "select 7"); n != 7 {
		t.Errorf("answered %d", n)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(socket); !os.IsNotExist(err) {
		t.Errorf("socket folder is left: %v", err)
	}
}

func TestStart_OtherMajorVersion(t *testing.T) {
	nothing := httptest.NewServer(http.NotFoundHandler())
	defer nothing.Close()
	for _, major := range []string{"12", "14"} {
		dir := t.TempDir()
		data := filepath.Join(dir, "postgres", "data")
		if err := os.MkdirAll(data, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(data, "PG_VERSION"), []byte(major+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Start(t.Context(), Config{DataDir: dir, repository: nothing.URL})
		if err == nil || !strings.Contains(err.Error(), "was made by Postgres "+major) ||
			!strings.Contains(err.Error(), "install Postgres "+major) || strings.Contains(err.Error(), "\n") {
			t.Errorf("start on a folder of version %s: %v", major, err)
		}
	}
}

func TestStart_HalfInitialisedFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fresh := filepath.Join(dir, "postgres", "data.new")
	if err := os.MkdirAll(filepath.Join(fresh, "base"), 0o700); err != nil {
		t.Fatal(err)
	}
	if n := query[int](t, start(t, Config{DataDir: dir}), "select 1"); n != 1 {
		t.Errorf("answered %d", n)
	}
	if _, err := os.Stat(fresh); !os.IsNotExist(err) {
		t.Errorf("the half-made folder is left: %v", err)
	}
}

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
	config := Config{DataDir: dir, Settings: fast(), Logger: slog.New(slog.NewTextHandler(&log, nil))}
	s, err := Start(t.Context(), config)
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
	// The folder can be used again. That start also removes the shared memory of the server that was killed.
	next, err := Start(t.Context(), config)
	runtest.Must(t, err)
	runtest.Must(t, next.Close())
}
