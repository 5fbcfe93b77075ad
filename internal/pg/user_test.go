package pg

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func TestUser_RootBelowAClosedFolder(t *testing.T) {
	t.Parallel()
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
	user, home, err := s.chooseUser(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(user.name, "namespace") && (owner != 0 || home != filepath.Join(dir, "postgres")) {
		t.Errorf("in a namespace, but the files at %s are of user %d", home, owner)
	}
	if n := query[int](t, s, "select 1"); n != 1 {
		t.Errorf("answered %d", n)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestUser_RootWithoutNamespaces(t *testing.T) {
	t.Parallel()
	needRoot(t)
	dir := openDir(t)
	start(t, Config{DataDir: dir, noNamespaces: true})
	if owner := ownerOf(t, filepath.Join(dir, "postgres", "data")); owner == 0 {
		t.Error("the files are root's")
	}
}

func TestUser_FolderChangesItsUser(t *testing.T) {
	t.Parallel()
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

func TestUser_RootWithoutNamespacesBelowAClosedFolder(t *testing.T) {
	t.Parallel()
	needRoot(t)
	elsewhere := openDir(t)
	dir := filepath.Join(openDir(t), "closed")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for round := range 2 {
		s, err := Start(t.Context(), Config{DataDir: dir, Settings: fast(), noNamespaces: true, fallbackBase: elsewhere})
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

func TestUser_Ordinary(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		dir := t.TempDir()
		if n := query[int](t, start(t, Config{DataDir: dir}), "select 1"); n != 1 {
			t.Errorf("answered %d", n)
		}
		return
	}
	dir := openDir(t)
	if err := os.Chown(dir, nobodyUID, nobodyUID); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "pg.test")
	copyProgram(t, os.Args[0], program)
	again := exec.CommandContext(t.Context(), program, "-test.v",
		"-test.run=^(TestUser_Ordinary|TestStart_OrphanedServer|TestStart_FolderInUse)$")
	again.Dir, again.Env = dir, append(os.Environ(), "TMPDIR="+dir, "HOME="+dir)
	again.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobodyUID, Gid: nobodyUID}}
	out, err := again.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestUser_Ordinary") {
		t.Errorf("as user %d: %v\n%s", nobodyUID, err, out)
	}
}

// copyProgram copies a program by another process. If this one wrote the file, a test that starts a
// process meanwhile would pass the open file on to it, and the copy could not be run: it is busy.
func copyProgram(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "cp", from, to).CombinedOutput(); err != nil {
		t.Fatalf("copy %s: %v\n%s", from, err, out)
	}
	if err := os.Chmod(to, 0o755); err != nil {
		t.Fatal(err)
	}
}

// planted is a folder of programs, one of which notes who runs it with which variables.
func planted(t *testing.T, dir, notes string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\n(id -u; env) >> " + notes + "\necho 'postgres (PostgreSQL) 18.9'\n"
	for _, name := range []string{"postgres", "initdb", "pg_ctl"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// No program is run as root, nor with a key in its environment, wherever it comes from.
func TestPrograms_RunAsTheServersUser(t *testing.T) {
	needRoot(t)
	t.Setenv("ANNALS_HASH_KEY", "a key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "a key")
	dir := openDir(t)
	notes := filepath.Join(dir, "notes")
	if err := errors.Join(os.WriteFile(notes, nil, 0o666), os.Chmod(notes, 0o666)); err != nil {
		t.Fatal(err)
	}
	planted(t, filepath.Join(dir, "bin"), notes)
	s := &Server{cfg: Config{searchPath: []string{filepath.Join(dir, "bin")}, noNamespaces: true}, logger: discard()}
	user, home, err := s.chooseUser(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.binaries(t.Context(), 0, dir, home, user); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(notes)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	if lines[0] != strconv.Itoa(user.uid) || user.uid == 0 || strings.Contains(string(text), "KEY") {
		t.Errorf("user %d of %d runs it with\n%s", user.uid, os.Geteuid(), text)
	}
}

// Programs that the server's user left in its own folder are not run, and a cache that others may change is not used.
func TestCache_OnlyRootChangesIt(t *testing.T) {
	needRoot(t)
	dir, elsewhere := openDir(t), openDir(t)
	notes := filepath.Join(dir, "notes")
	s := &Server{logger: discard(), cfg: Config{
		searchPath: []string{filepath.Join(dir, "none")}, noNamespaces: true, fallbackBase: elsewhere,
		repository: "http://127.0.0.1:1",
	}}
	user, home, err := s.chooseUser(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	planted(t, filepath.Join(home, "cache", "18", "bin"), notes)
	if _, err := s.binaries(t.Context(), 0, dir, home, user); err == nil {
		t.Error("programs of the server's user are used")
	}
	if text, err := os.ReadFile(notes); !os.IsNotExist(err) {
		t.Errorf("they were run: %s, %v", text, err)
	}
	inside, outside := filepath.Join(dir, "postgres-programs"), filepath.Join(elsewhere, "annals-postgres-programs")
	for _, c := range []struct {
		name   string
		change func() error
		want   string
	}{
		{"root's", func() error { return nil }, inside},
		{"another user's", func() error { return os.Chown(inside, user.uid, user.gid) }, outside},
		{"of anybody", func() error { return errors.Join(os.Chown(inside, 0, 0), os.Chmod(inside, 0o777)) }, outside},
		{"data folder of another user", func() error { return errors.Join(os.RemoveAll(inside), os.Chown(dir, user.uid, user.gid)) }, outside},
		{"a link", func() error { return errors.Join(os.Chown(dir, 0, 0), os.Symlink(home, inside)) }, outside},
		{"both of others", func() error { return os.Chmod(elsewhere, 0o777) }, ""},
	} {
		if err := c.change(); err != nil {
			t.Fatal(err)
		}
		if got, err := s.cacheFolder(t.Context(), dir, home, user); got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %q, %v, want %q", c.name, got, err, c.want)
		}
	}
}

func TestUsers_NeverNobodyNorRoot(t *testing.T) {
	needRoot(t)
	dir := openDir(t)
	for _, uid := range []int{0, nobodyUID} {
		if err := os.Chown(dir, uid, uid); err != nil {
			t.Fatal(err)
		}
		for _, user := range append(otherUsers(dir), namedUsers("root", "nobody", "no such user")...) {
			if user.uid == 0 || user.uid == nobodyUID || user.name == "nobody" {
				t.Errorf("Postgres would run as %s (%d)", user.name, user.uid)
			}
		}
	}
}

// The server itself has no key in its environment either, in a namespace or without one.
func TestServer_Environment(t *testing.T) {
	if _, err := os.Stat("/proc/self/environ"); err != nil {
		t.Skip("no /proc")
	}
	t.Setenv("ANNALS_HASH_KEY", "a key")
	t.Setenv("ANNALS_MODEL_KEY", "a key")
	t.Setenv("LANG", "de_DE.UTF-8")
	for _, noNamespaces := range []bool{false, true} {
		dir := openDir(t)
		start(t, Config{DataDir: dir, noNamespaces: noNamespaces})
		text, err := os.ReadFile("/proc/" + strconv.Itoa(postmaster(t, dir)) + "/environ")
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range strings.Split(strings.Trim(string(text), "\x00"), "\x00") {
			name, _, _ := strings.Cut(entry, "=")
			// The server sets those that begin with PG by itself.
			if !slices.Contains(inherited, name) && !strings.HasPrefix(name, "PG") && !strings.HasPrefix(name, "LC_") {
				t.Errorf("without namespaces %t: the server has %s", noNamespaces, name)
			}
		}
	}
}

func TestCreateUser_FirstCommandOfTheMachine(t *testing.T) {
	dir := t.TempDir()
	notes, tool := filepath.Join(dir, "notes"), filepath.Join(dir, "usertool")
	script := "#!/bin/sh\n(echo \"$@\"; env) > " + notes + "\necho no room >&2\n[ \"$1\" = fine ]\n"
	if err := os.WriteFile(tool, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("ANNALS_HASH_KEY", "secret")
	missing := []string{filepath.Join(dir, "missing"), "x"}
	if err := createUser(t.Context(), [][]string{missing, {tool, "fine", serviceUser}}); err != nil {
		t.Fatal(err)
	}
	noted, err := os.ReadFile(notes)
	if err != nil || !strings.HasPrefix(string(noted), "fine annals\n") || strings.Contains(string(noted), "secret") {
		t.Errorf("ran with %q, %v", noted, err)
	}
	err = createUser(t.Context(), [][]string{{tool, "wrong"}})
	if err == nil || !strings.Contains(err.Error(), "no room") {
		t.Errorf("a command that fails: %v", err)
	}
	if err := createUser(t.Context(), [][]string{missing}); err == nil {
		t.Error("no command for it, and no error")
	}
}
