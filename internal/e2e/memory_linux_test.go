package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/annals-project/annals/internal/runtest"
)

// smallMemory is the least memory, of the service and its Postgres together, that docs/start.md names.
const smallMemory = 512 << 20

// An import in little memory ends, and nothing is killed for memory. ANNALS_SMALL_MEMORY is the number of texts.
func TestImport_SmallMemory(t *testing.T) {
	t.Parallel()
	group := newMemoryGroup(t, smallMemory)
	texts := setting(t, "ANNALS_SMALL_MEMORY", 1000)
	s := newService(t, "ANNALS_EMBEDDINGS=none")
	s.through = []string{"sh", "-c", `echo $$ >"$0" && exec "$@"`, filepath.Join(group, "cgroup.procs")}
	s.start()

	var lines bytes.Buffer
	for n := range texts {
		fmt.Fprintf(&lines, `{"id":"t-%[1]d","content":"Ana's favourite song is number %[1]d. We met on day %[2]d to speak about plan %[1]d."}`+"\n",
			n, n%300)
	}
	points := filepath.Join(t.TempDir(), "points.jsonl")
	runtest.Must(t, os.WriteFile(points, lines.Bytes(), 0o600))
	var sum struct{ Sent int }
	if s.decoded(&sum, "import", "--points", points, "--wait"); sum.Sent != texts {
		t.Errorf("sent %d of %d", sum.Sent, texts)
	}
	if n := killedForMemory(t, group); n != 0 {
		t.Errorf("the system killed %d processes for memory", n)
	}
	if said := s.readiness(); said != "" {
		t.Errorf("not ready after the import: %s", said)
	}
}

// newMemoryGroup makes a control group with a limit of memory. The test is left out where it may not make one.
func newMemoryGroup(t *testing.T, limit int) string {
	t.Helper()
	root, file := "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
	if _, err := os.Stat(filepath.Join(root, file)); err != nil {
		root, file = "/sys/fs/cgroup", "memory.max"
	}
	dir, err := os.MkdirTemp(root, "annals-test-") //nolint:usetesting // control groups are folders there
	if err != nil {
		t.Skipf("no control group can be made here: %v", err)
	}
	t.Cleanup(func() { runtest.Must(t, os.Remove(dir)) })
	control, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		t.Skipf("a control group has no limit of memory here: %v", err)
	}
	_, err = control.WriteString(strconv.Itoa(limit))
	runtest.Must(t, err)
	runtest.Must(t, control.Close())
	return dir
}

// killedForMemory returns how many processes of a control group the system killed for memory.
func killedForMemory(t *testing.T, group string) int {
	t.Helper()
	for _, file := range []string{"memory.oom_control", "memory.events"} {
		text, err := os.ReadFile(filepath.Join(group, file))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			if count, is := strings.CutPrefix(line, "oom_kill "); is {
				n, err := strconv.Atoi(strings.TrimSpace(count))
				runtest.Must(t, err)
				return n
			}
		}
	}
	t.Fatal("the control group does not count what is killed")
	return 0
}
