package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/annals-project/annals/domain/audit/proof"
	"github.com/annals-project/annals/internal/auditfiles"
	"github.com/annals-project/annals/internal/auditfiles/auditfilestest"
)

func TestRun(t *testing.T) {
	dir := t.TempDir()
	l := auditfilestest.New(t, 1)
	l.Some(t, 20)
	checkpoint := l.Checkpoint(t, 20, l.Keys)
	tree := filepath.Join(dir, "tree")
	to, err := auditfiles.NewFolder(tree)
	if err != nil {
		t.Fatal(err)
	}
	l.WriteTree(t, to, 20, checkpoint)
	err = to.Close()
	for name, data := range map[string][]byte{
		"policy": auditfilestest.Policy(l.Verifiers), "other": auditfilestest.Policy(auditfilestest.New(t, 2).Verifiers),
		"earlier":            l.Checkpoint(t, 5, l.Keys),
		"plain.tlog-proof":   l.Prove(t, 7, 20, checkpoint, l.Extra(t, 7, false)),
		"salt.tlog-proof":    l.Prove(t, 7, 20, checkpoint, l.Extra(t, 7, true)),
		"kept.tlog-proof":    l.Prove(t, 7, 20, checkpoint, proof.Extra{Kept: &proof.Kept{Record: record(t, l, 7), Stream: "a\nb"}}),
		"damaged.tlog-proof": append(l.Prove(t, 7, 20, checkpoint, l.Extra(t, 7, false)), ' '),
	} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	if err := errors.Join(err, os.Mkdir(filepath.Join(dir, "empty"), 0o700)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		code int
		want []string
	}{
		{"", misused, []string{"Usage:"}},
		{"--policy policy", misused, []string{"Usage:"}},
		{"--wrong", misused, []string{"Usage:"}},
		{"--help", right, []string{"Usage:"}},
		{"--policy gone plain.tlog-proof", wrong, []string{"no such file"}},
		{"--policy earlier plain.tlog-proof", wrong, []string{"policy: invalid line"}},
		{"--policy policy plain.tlog-proof", right, []string{l.Events[7].ID.String(), `"made.up.v1" at "2026-05-01T00:00:07Z"`, "nothing is wrong: 1 checked"}},
		{"--policy policy salt.tlog-proof", right, []string{"metadata and data of the event are in the file"}},
		{"--policy policy kept.tlog-proof", right, []string{`Not proved by these files: it was`, `"a\nb"`}},
		{"--policy policy tree", right, []string{"20 leaves", "nothing is wrong: 1 checked"}},
		{"--policy policy --since earlier tree", right, []string{"nothing is wrong: 1 checked"}},
		{"--policy policy --since earlier plain.tlog-proof", wrong, []string{"no tree of the origin"}},
		{"--policy policy damaged.tlog-proof plain.tlog-proof", wrong, []string{"WRONG", "1 of 2 are wrong"}},
		{"--policy other plain.tlog-proof tree", wrong, []string{"2 of 2 are wrong"}},
		{"--policy policy empty", wrong, []string{"no proof and no checkpoint"}},
		{"--policy policy gone", wrong, []string{"no such file"}},
	} {
		args := strings.Fields(c.args)
		for i, arg := range args {
			if !strings.HasPrefix(arg, "-") {
				args[i] = filepath.Join(dir, arg)
			}
		}
		var out strings.Builder
		if code := run(args, &out, &out); code != c.code {
			t.Errorf("%s: exit code %d, want %d:\n%s", c.args, code, c.code, &out)
		}
		for _, want := range c.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: it prints\n%s, without %q", c.args, &out, want)
			}
		}
	}
}

func record(t *testing.T, l *auditfilestest.Log, n int) []byte {
	t.Helper()
	r, err := l.Events[n].Record()
	if err != nil {
		t.Fatal(err)
	}
	return r[:]
}
