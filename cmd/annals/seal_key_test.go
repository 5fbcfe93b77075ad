package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/secret"
)

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
	if _, err := first.client().Ingest(t.Context(), client.DataPoint{ID: "a", Content: "Ana likes tea."}); err != nil {
		t.Errorf("the keys of projects do not work without the seal key: %v", err)
	}
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
	if got := annals(t.Context(), nil, "", accept...); got.code != exitFailed {
		t.Errorf("while the service runs: %+v", got)
	}
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
	if got := annals(t.Context(), nil, "", accept...); got.code != exitOK ||
		!strings.Contains(got.stdout, "project keys and webhooks: they still work") ||
		!strings.Contains(got.stdout, "the service starts with the seal key "+secret.Name(another)) {
		t.Errorf("accepted: %+v", got)
	}
	s.start()
	s.stop()
}

// The names of keys tell which of two folders has the key of the database.
func TestSealKeyList(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if got := annals(t.Context(), nil, "", "seal-key", "list", "--data-dir", dir); got.stdout != "no seal key is known\n" {
		t.Errorf("%+v", got)
	}
	made, err := (datafolder.Folder{Dir: dir}).NewSealKey()
	runtest.Must(t, err)
	set := bytes.Repeat([]byte{7}, datafolder.SecretBytes)
	got := annals(t.Context(), map[string]string{"ANNALS_SEAL_KEY": base64.StdEncoding.EncodeToString(set)}, "",
		"seal-key", "list", "--data-dir", dir)
	if got.stdout != secret.Name(set)+"\n"+secret.Name(made)+"\n" || got.code != exitOK {
		t.Errorf("%+v", got)
	}
}
