package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
