package pg

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestRootBelowAFolderThatOnlyRootEnters(t *testing.T) {
	needRoot(t)
	dir := filepath.Join(t.TempDir(), "closed", "data")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s, err := Start(t.Context(), Config{DataDir: dir, Settings: fast()})
	if err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(dir, "postgres", "data")
	owner := ownerOf(t, data)
	who, home, err := s.settle(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(who.name, "namespace") && (owner != 0 || home != filepath.Join(dir, "postgres")) {
		t.Errorf("in a namespace, but the files at %s are of user %d", home, owner)
	}
	if n := query[int](t, s, "select 1"); n != 1 {
		t.Errorf("answered %d", n)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestRootWithoutNamespaces(t *testing.T) {
	needRoot(t)
	dir := openDir(t)
	start(t, Config{DataDir: dir, noNamespaces: true})
	if owner := ownerOf(t, filepath.Join(dir, "postgres", "data")); owner == 0 {
		t.Error("the files are root's")
	}
}

func TestFolderChangesItsUser(t *testing.T) {
	needRoot(t)
	dir := openDir(t)
	for _, noNamespaces := range []bool{false, true, false} {
		s, err := Start(t.Context(), Config{DataDir: dir, Settings: fast(), noNamespaces: noNamespaces})
		if err != nil {
			t.Fatal(err)
		}
		statements(t, s, "create table if not exists kept (n int)")
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRootWithoutNamespacesBelowAFolderThatOnlyRootEnters(t *testing.T) {
	needRoot(t)
	elsewhere := openDir(t)
	dir := filepath.Join(openDir(t), "closed")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for round := range 2 {
		s, err := Start(t.Context(), Config{DataDir: dir, Settings: fast(), noNamespaces: true, elsewhere: elsewhere})
		if err != nil {
			t.Fatal(err)
		}
		statements(t, s, "create table if not exists kept (n int); insert into kept values (1)")
		if n := query[int](t, s, "select count(*) from kept"); n != round+1 {
			t.Errorf("round %d kept %d rows", round, n)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	link, err := os.Readlink(filepath.Join(dir, "postgres"))
	if err != nil || !strings.HasPrefix(link, elsewhere) {
		t.Errorf("postgres in the data folder leads to %q, %v", link, err)
	}
}

func TestOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		dir := t.TempDir()
		if n := query[int](t, start(t, Config{DataDir: dir}), "select 1"); n != 1 {
			t.Errorf("answered %d", n)
		}
		return
	}
	const nobody = 65534
	dir := openDir(t)
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "pg.test")
	copyProgram(t, os.Args[0], program)
	again := exec.CommandContext(t.Context(), program, "-test.run=^(TestOrdinaryUser|TestOrphanIsStoppedAndStartedAnew|TestFolderInUse)$", "-test.v")
	again.Dir, again.Env = dir, append(os.Environ(), "TMPDIR="+dir, "HOME="+dir)
	again.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := again.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestOrdinaryUser") {
		t.Errorf("as user %d: %v\n%s", nobody, err, out)
	}
}

func copyProgram(t *testing.T, from, to string) {
	t.Helper()
	source, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := source.Close(); err != nil {
			t.Error(err)
		}
	}()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(target, source); err != nil {
		t.Fatal(err)
	}
	if err := target.Close(); err != nil {
		t.Fatal(err)
	}
}
