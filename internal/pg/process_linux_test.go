package pg

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// A process that the system is ending holds the shared memory of its server after its program is gone.
func TestServersIn(t *testing.T) {
	root, folder := t.TempDir(), t.TempDir()
	for pid, links := range map[string]map[string]string{
		"11":   {"exe": "/usr/lib/postgresql/postgres", "cwd": folder},
		"12":   {"exe": "/usr/lib/postgresql/postgres (deleted)", "cwd": folder},
		"13":   {"exe": "/usr/lib/postgresql/postgres", "cwd": root},
		"14":   {"exe": "/bin/bash", "cwd": folder},
		"15":   {"cwd": folder}, // being ended
		"16":   {},              // has ended
		"17":   {"cwd": root},   // a thread of the kernel
		"self": {"exe": "/usr/lib/postgresql/postgres", "cwd": folder},
	} {
		if err := os.Mkdir(filepath.Join(root, pid), 0o700); err != nil {
			t.Fatal(err)
		}
		for name, target := range links {
			if err := os.Symlink(target, filepath.Join(root, pid, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	pids, known, err := serversIn(root, folder)
	slices.Sort(pids)
	if err != nil || !known || !slices.Equal(pids, []int{11, 12, 15}) {
		t.Errorf("%v, %v, %v", pids, known, err)
	}
	if pids, known, err := serversIn(filepath.Join(root, "missing"), folder); known || err != nil {
		t.Errorf("%v, %v, %v", pids, known, err)
	}
}
