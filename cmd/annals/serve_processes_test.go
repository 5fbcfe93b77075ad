package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/secret"
)

// A process that is asked to stop is no longer ready, and serves calls until the delay is over. A second signal ends it
// at once. A delay ends by itself, and the process ends well.
func TestServe_StopDelay(t *testing.T) {
	t.Parallel()
	d := newDeployment(t, time.Now(), 1)
	s := d.processes[0]
	s.args = []string{"--stop-delay-seconds", "300"}
	s.start()
	s.signal(syscall.SIGTERM)
	runtest.Await(t, "the process is not ready", func() bool {
		status, body := s.get("/readyz")
		return status == http.StatusServiceUnavailable && strings.Contains(body, "the service is stopping")
	})
	s.ingest("a", "Ana likes tea.")
	if status, _ := s.get("/healthz"); status != http.StatusOK {
		t.Errorf("/healthz during the delay: %d", status)
	}
	s.signal(syscall.SIGTERM)
	select {
	case <-s.done: //nolint:errcheck // a signal ended it
		s.cmd = nil
	case <-time.After(runtest.Timeout):
		t.Fatal("a second signal did not end the process")
	}
	s.args = []string{"--stop-delay-seconds", "1", "--log-level", "info"}
	s.start()
	s.signal(os.Interrupt)
	if err := <-s.done; err != nil || !strings.Contains(s.said.Tail(64<<10), "service stops after a delay") {
		t.Errorf("ended with %v", err)
	}
	s.cmd = nil
}

// A closed terminal is a request to stop, however often it is sent and though nobody reads the output any more: the
// process stops in order, and its Postgres with it.
func TestServe_HangUp(t *testing.T) {
	t.Parallel()
	dir, addr := t.TempDir(), runtest.FreeAddress(t)
	output, terminal, err := os.Pipe()
	runtest.Must(t, err)
	cmd := program(t, "serve", "--data-dir", dir, "--api-addr", addr, "--console-addr", "127.0.0.1:0",
		"--min-free-disk", "0", "--log-level", "info")
	cmd.Stdout, cmd.Stderr = terminal, terminal
	// A process inherits that a signal is ignored, as under nohup, but not one that its parent waits for.
	hungUp := make(chan os.Signal, 1)
	signal.Notify(hungUp, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(hungUp) })
	runtest.Must(t, cmd.Start())
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	t.Cleanup(func() {
		if t.Failed() {
			_ = cmd.Process.Kill() // it may have ended
		}
	})
	runtest.Must(t, terminal.Close())
	said := &runtest.Output{}
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(said, output) // until it is closed
	}()
	runtest.Await(t, "the process is ready", func() bool {
		select {
		case err := <-done:
			t.Fatalf("the process ended: %v\n%s", err, said)
		default:
		}
		res, err := http.Get("http://" + addr + "/readyz")
		return err == nil && res.Body.Close() == nil && res.StatusCode == http.StatusOK
	})
	lock, err := os.ReadFile(filepath.Join(dir, "postgres", "data", "postmaster.pid"))
	runtest.Must(t, err)
	first, _, _ := strings.Cut(string(lock), "\n")
	postgres, err := strconv.Atoi(first)
	runtest.Must(t, err)
	runtest.Must(t, output.Close())
	<-read
	for range 3 {
		if err := cmd.Process.Signal(syscall.SIGHUP); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatal(err)
		}
	}
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("the process ended with %v\n%s", err, said)
		}
	case <-time.After(runtest.Timeout):
		t.Fatal("the process does not end")
	}
	if err := syscall.Kill(postgres, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("Postgres runs on: %v", err)
	}
}

// nohup has a process go on when its terminal is closed: the signal stays ignored.
func TestNode_Nohup(t *testing.T) {
	t.Parallel()
	nohup, err := exec.LookPath("nohup")
	if _, noProc := os.Stat("/proc/self/status"); err != nil || noProc != nil {
		t.Skip("this system has no nohup, or does not show which signals a process ignores")
	}
	cmd := program(t, "node", "--data-dir", t.TempDir(), "--addr", "127.0.0.1:0", "--insecure")
	cmd.Path, cmd.Args = nohup, append([]string{nohup}, cmd.Args...)
	out, err := cmd.StdoutPipe()
	runtest.Must(t, err)
	runtest.Must(t, cmd.Start())
	if lines := bufio.NewScanner(out); !lines.Scan() || !strings.HasPrefix(lines.Text(), "annals node is ready") {
		t.Errorf("printed %q, %v", lines.Text(), lines.Err())
	}
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(cmd.Process.Pid), "status"))
	runtest.Must(t, err)
	_, mask, _ := strings.Cut(string(status), "SigIgn:\t")
	mask, _, _ = strings.Cut(mask, "\n")
	if ignored, err := strconv.ParseUint(mask, 16, 64); err != nil || ignored&(1<<(syscall.SIGHUP-1)) == 0 {
		t.Errorf("the process ignores the signals %q: a hang-up is not one of them, %v", mask, err)
	}
	runtest.Must(t, cmd.Process.Signal(syscall.SIGTERM))
	runtest.Must(t, cmd.Wait())
}

// The commands that open the database themselves use the prefix of the service.
func TestServe_SchemaPrefix(t *testing.T) {
	t.Parallel()
	d := newDeployment(t, time.Now(), 1)
	s := d.processes[0]
	d.env = []string{"ANNALS_SEAL_KEY=", "ANNALS_POSTGRES_SCHEMA_PREFIX=a_"}
	s.args = []string{"--eventstore", "embedded", "--postgres", "embedded"}
	s.start()
	s.ingest("a", "Ana likes tea.")
	s.stop()
	with := map[string]string{
		"ANNALS_DATA_DIR": s.dir, "ANNALS_HASH_KEY": datafolder.EncodeSecrets([][]byte{make([]byte, datafolder.SecretBytes)}),
		"ANNALS_API_ADDR": "127.0.0.1:0", "ANNALS_CONSOLE_ADDR": "127.0.0.1:0", "ANNALS_POSTGRES_SCHEMA_PREFIX": "a_",
	}
	run := func(code int, words string, args ...string) {
		t.Helper()
		got := annals(t.Context(), with, "", args...)
		if got.code != code || !strings.Contains(got.stdout+got.stderr, words) {
			t.Errorf("annals %s: %+v, want %q", args[0], got, words)
		}
	}
	run(exitOK, "access", "rebuild", "access")
	run(exitOK, "no seal key is missing", "seal-key", "accept-loss")
	run(exitOK, "backed up to", "backup", filepath.Join(t.TempDir(), "backup"))
	with["ANNALS_POSTGRES_SCHEMA_PREFIX"] = "b_"
	run(exitFailed, "the database has no schema b_ops: is ANNALS_POSTGRES_SCHEMA_PREFIX", "backup", filepath.Join(t.TempDir(), "b"))
	with["ANNALS_POSTGRES_SCHEMA_PREFIX"] = "pg_"
	run(exitUsage, "ANNALS_POSTGRES_SCHEMA_PREFIX must not begin with pg_", "serve")

	var made string
	err := datafolder.Folder{Dir: s.dir}.UseDatabase(t.Context(), "embedded", func(db *pgxpool.Pool) error {
		return db.QueryRow(t.Context(), `select string_agg(nspname, ',' order by nspname) from pg_namespace
			where nspname !~ '^pg_' and nspname not in ('public', 'information_schema')`).Scan(&made)
	})
	if err != nil || !strings.HasPrefix(made, "a_access,a_audit,a_datapoints,") || strings.Count(made, "a_") != strings.Count(made, ",")+1 {
		t.Errorf("schemas %s, %v", made, err)
	}
}

// refusedFor wants a process to be refused at its start with a reason that has some texts, and to make no seal key.
func (s *served) refusedFor(name string, want ...string) {
	s.d.t.Helper()
	s.begin()
	select {
	case err := <-s.done:
		if s.cmd = nil; err == nil {
			s.d.t.Errorf("%s: the process ended without an error", name)
		}
	case <-time.After(runtest.Timeout):
		s.d.t.Fatalf("%s: the process runs", name)
	}
	said := s.said.Tail(64 << 10)
	for _, text := range want {
		if !strings.Contains(said, text) {
			s.d.t.Errorf("%s: no %q in\n%s", name, text, said)
		}
	}
	if _, err := os.Stat(filepath.Join(s.dir, datafolder.SealKeyFile)); !os.IsNotExist(err) {
		s.d.t.Errorf("%s: it made a seal key, %v", name, err)
	}
}

// Processes that share a database have one seal key: one without it is refused, before it makes a key of its own. A
// rotation replaces the key, and an operator may go on without one that is lost.
func TestServe_SealKeyOfTheDatabase(t *testing.T) {
	t.Parallel()
	d := newDeployment(t, time.Now(), 2)
	first, second := d.processes[0], d.processes[1]
	old, fresh := make([]byte, datafolder.SecretBytes), bytes.Repeat([]byte{7}, datafolder.SecretBytes)
	with := func(keys ...[]byte) []string { return []string{"--seal-key", datafolder.EncodeSecrets(keys)} }
	first.start()
	second.args = with(fresh)
	second.refusedFor("with another key", "annals: seal keys: the database is sealed with the seal key "+secret.Name(old),
		"(known: "+secret.Name(fresh)+")", "set ANNALS_SEAL_KEY to that one", "annals seal-key accept-loss")
	second.args, d.env = nil, []string{"ANNALS_SEAL_KEY="}
	second.refusedFor("without a key", "the database is sealed with the seal key "+secret.Name(old), "(known: none)",
		"copy "+filepath.Join(second.dir, datafolder.SealKeyFile))
	second.args = with(fresh, old)
	second.start() // a rotation
	second.stop()
	first.stop()
	first.args = with(old)
	first.refusedFor("with the retired key", secret.Name(fresh))
	second.args = with(fresh)
	second.start()
	second.operate("key", "list", "default")
	second.stop()

	other := bytes.Repeat([]byte{8}, datafolder.SecretBytes)
	accept := func(args ...string) outcome {
		return annals(t.Context(), nil, "", append([]string{
			"seal-key", "accept-loss", "--data-dir", first.dir, "--postgres", d.database, "--json",
		}, args...)...)
	}
	type answer struct {
		Missing, Known []string
		Lost           []secret.Loss
		Accepted       bool
	}
	read := func(got outcome) (a answer) {
		runtest.Must(t, json.Unmarshal([]byte(got.stdout), &a))
		return a
	}
	got := accept(with(other)...)
	if a := read(got); got.code != exitFailed || !strings.Contains(got.stderr, "nothing was changed") || a.Accepted ||
		len(a.Missing) != 1 || a.Missing[0] != secret.Name(fresh) || len(a.Lost) == 0 || a.Lost[0].Count < 1 {
		t.Errorf("not accepted: %+v", got)
	}
	first.args = with(other)
	first.refusedFor("before the loss is accepted", secret.Name(fresh))
	got = accept("--yes")
	made, err := datafolder.StoredSealKeys(first.dir)
	if a := read(got); got.code != exitOK || !a.Accepted || err != nil || len(made) != 1 ||
		a.Known[0] != secret.Name(made[0]) {
		t.Errorf("accepted: %+v, %v", got, err)
	}
	first.args = nil
	first.start()
	// The keys of projects work without the seal key.
	first.ingest("a", "Ana likes tea.")
	first.stop()
	if got := accept(); got.code != exitOK || !read(got).Accepted {
		t.Errorf("after the loss was accepted: %+v", got)
	}
}

// A service of one machine has its seal key in the data folder. Without the file it does not make another one.
func TestServe_SealKeyOfTheFolder(t *testing.T) {
	t.Parallel()
	d := newDeployment(t, time.Now(), 1)
	s := d.processes[0]
	d.env, s.args = []string{"ANNALS_SEAL_KEY="}, []string{"--eventstore", "embedded", "--postgres", "embedded"}
	s.start()
	accept := []string{"seal-key", "accept-loss", "--data-dir", s.dir, "--yes"}
	annals(t.Context(), nil, "", accept...).wants(t, exitFailed)
	s.stop()
	file := filepath.Join(s.dir, datafolder.SealKeyFile)
	kept, err := os.ReadFile(file)
	runtest.Must(t, err)
	runtest.Must(t, os.Remove(file))
	s.refusedFor("without the file", "(known: none): copy "+file)
	runtest.Must(t, os.WriteFile(file, kept, 0o600))
	s.start()
	s.stop()

	runtest.Must(t, os.Remove(file))
	another, err := (datafolder.Folder{Dir: s.dir}).NewSealKey()
	runtest.Must(t, err)
	backup := annals(t.Context(), nil, "", "backup", filepath.Join(t.TempDir(), "backup"), "--data-dir", s.dir,
		"--hash-key", base64.StdEncoding.EncodeToString(make([]byte, datafolder.SecretBytes)))
	if backup.code != exitFailed || !strings.Contains(backup.stderr, "known: "+secret.Name(another)) {
		t.Errorf("a backup with another seal key: %+v", backup)
	}
	annals(t.Context(), nil, "", accept...).
		wants(t, exitOK, "project keys and webhooks: they still work",
			"the service starts with the seal key "+secret.Name(another))
	s.start()
	s.stop()
}

// The names of keys tell which of two folders has the key of the database.
func TestSealKeyList(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	annals(t.Context(), nil, "", "seal-key", "list", "--data-dir", dir).prints(t, "no seal key is known\n")
	made, err := (datafolder.Folder{Dir: dir}).NewSealKey()
	runtest.Must(t, err)
	set := bytes.Repeat([]byte{7}, datafolder.SecretBytes)
	annals(t.Context(), map[string]string{"ANNALS_SEAL_KEY": base64.StdEncoding.EncodeToString(set)}, "",
		"seal-key", "list", "--data-dir", dir).prints(t, secret.Name(set)+"\n"+secret.Name(made)+"\n")
}
