package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/annals-project/annals/internal/importer"
	"github.com/annals-project/annals/internal/runtest"
)

// imported is what the command prints of an import.
type imported struct {
	Points    int `json:"points"`
	Sent      int `json:"sent"`
	Unchanged int `json:"unchanged"`
}

// An import whose process and whose service are killed goes on where it was: every line arrives, none twice.
func TestImport_ContinuesAfterAKill(t *testing.T) {
	t.Parallel()
	const points = 3000
	var lines bytes.Buffer
	for i := range points {
		// Every second id comes again later with another text.
		_, _ = fmt.Fprintf(&lines, "{\"id\":\"n%d\",\"content\":\"Note %d of many.\"}\n", i%(points/2), i)
	}
	file := filepath.Join(t.TempDir(), "notes.jsonl")
	if err := os.WriteFile(file, lines.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newService(t, sharedPostgres(t))
	s.start()
	command := func(args ...string) *exec.Cmd {
		return exec.Command(binary, append([]string{"import", "--data-dir", s.dir, "--points", file, "--json"}, args...)...)
	}

	first := command()
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	progress := file + ".progress"
	runtest.Await(t, "the import has sent something", func() bool {
		state, ok, err := importer.LoadState(progress)
		return err == nil && ok && state.Points > 0
	})
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	s.kill()
	_ = first.Wait() // it was killed, or had ended just before
	s.start()

	sum := runImport(t, command())
	if sum.Points != points || sum.Sent >= points {
		t.Errorf("the second run ended with %+v", sum)
	}
	// The newest text of each id stands: sent once more, it is unchanged.
	newest := filepath.Join(t.TempDir(), "newest.jsonl")
	half := bytes.Join(bytes.SplitAfter(lines.Bytes(), []byte("\n"))[points/2:], nil)
	if err := os.WriteFile(newest, half, 0o600); err != nil {
		t.Fatal(err)
	}
	file = newest
	if sum := runImport(t, command()); sum.Sent != points/2 || sum.Unchanged != points/2 {
		t.Errorf("the newest texts are not what stands: %+v", sum)
	}
}

// The progress of an import is that of one project. A new store has the same address and project number, and is sent
// everything.
func TestImport_IntoANewStore(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	points, note := filepath.Join(folder, "points.jsonl"), filepath.Join(folder, "note.txt")
	runtest.Must(t, os.WriteFile(points, []byte("{\"id\":\"a\",\"content\":\"Ana likes tea.\"}\n"), 0o600))
	runtest.Must(t, os.WriteFile(note, []byte("Remember the milk on Friday.\n"), 0o600))
	first := newService(t, sharedPostgres(t))
	second := newService(t, sharedPostgres(t))
	second.addr = first.addr
	for _, s := range []*service{first, second} {
		s.start()
		for run, want := range []int{1, 0} {
			for form, args := range map[string][]string{"points": {"--points", points}, "files": {note, "--yes"}} {
				cmd := exec.Command(binary, append([]string{"import", "--data-dir", s.dir, "--json"}, args...)...)
				var stderr bytes.Buffer
				cmd.Stderr = &stderr
				out, err := cmd.Output()
				var sum imported
				if err == nil {
					err = json.Unmarshal(out, &sum)
				}
				if err != nil || sum.Sent != want || sum.Points != 1 {
					t.Errorf("%s, run %d: %+v, %v, %s", form, run, sum, err, stderr.String())
				}
				restarts := strings.Contains(stderr.String(), "the progress of an import to another project")
				if restarts != (s == second && run == 0) {
					t.Errorf("%s, run %d: said %s", form, run, stderr.String())
				}
			}
		}
		s.stop()
	}
}

func runImport(t *testing.T, cmd *exec.Cmd) imported {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	var sum imported
	if err := json.Unmarshal(stdout.Bytes(), &sum); err != nil {
		t.Fatalf("%v: %s", err, stdout.String())
	}
	return sum
}
