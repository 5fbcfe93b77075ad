package storage

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"github.com/annals-project/annals/internal/runtest"
)

// holdsFolder names the folder that a copy of this test program is to keep open.
const holdsFolder = "NODE_TEST_HOLDS_FOLDER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(holdsFolder); dir != "" {
		holdFolder(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

// holdFolder keeps a node open until its standard input ends.
func holdFolder(dir string) {
	n, err := Open(Config{Dir: dir})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("open")
	buf := make([]byte, 1)
	for {
		if _, err := os.Stdin.Read(buf); err != nil {
			break
		}
	}
	if err := n.Close(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// A folder that is in use, by this process or another, is refused in one clear line. It can be
// opened once it is free.
func TestFolder_InUse(t *testing.T) {
	dir := t.TempDir()
	n := open(t, Config{Dir: dir, FS: vfs.Default})
	c := clientOf(t, n)
	c.append("s", none, newEvents(1)...)
	want := "data folder " + dir + " is in use by another process"
	if second, err := Open(Config{Dir: dir}); err == nil || err.Error() != want {
		t.Fatalf("second start: %v, %v", second, err)
	}
	refused := exec.CommandContext(t.Context(), os.Args[0])
	refused.Env = append(os.Environ(), holdsFolder+"="+dir)
	out, err := refused.Output()
	if err == nil || strings.TrimSpace(string(out)) != heldBy(want, os.Getpid()) {
		t.Errorf("another process: %q, %v", out, err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}

	other, in, lines := holding(t, dir)
	if second, err := Open(Config{Dir: dir}); err == nil || err.Error() != heldBy(want, other.Process.Pid) {
		t.Errorf("while another process has it: %v, %v", second, err)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
		t.Errorf("another process: %s", lines.Text())
	}
	if err := other.Wait(); err != nil {
		t.Fatal(err)
	}
	again := clientOf(t, open(t, Config{Dir: dir, FS: vfs.Default}))
	if got := again.read(ofAll()); len(got) != 1 {
		t.Errorf("after reopening: %d events", len(got))
	}
}

// heldBy adds the process that has the folder open to the refusal.
func heldBy(refusal string, pid int) string {
	return fmt.Sprintf("%s (%s, pid %d)", refusal, filepath.Base(os.Args[0]), pid)
}

// holding starts a process that keeps a folder open until its standard input is closed.
func holding(t *testing.T, dir string) (other *exec.Cmd, in io.Closer, lines *bufio.Scanner) {
	t.Helper()
	other = exec.CommandContext(runtest.Context(t), os.Args[0])
	other.Env = append(os.Environ(), holdsFolder+"="+dir)
	in, err := other.StdinPipe()
	runtest.Must(t, err)
	stdout, err := other.StdoutPipe()
	runtest.Must(t, err)
	runtest.Must(t, other.Start())
	lines = bufio.NewScanner(stdout)
	if !lines.Scan() || lines.Text() != "open" {
		t.Fatalf("another process: %q, %v", lines.Text(), lines.Err())
	}
	return other, in, lines
}

// A process whose folder was removed while it ran cannot write its memory to it any more. It ends nevertheless.
func TestClose_FolderRemoved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	other, in, _ := holding(t, dir)
	runtest.Must(t, os.RemoveAll(dir))
	runtest.Must(t, in.Close())
	var exit *exec.ExitError
	if err := other.Wait(); err != nil && (!errors.As(err, &exit) || exit.ExitCode() < 0) {
		t.Errorf("the process did not end by itself: %v", err)
	}
}

// A folder that cannot be created is not reported as in use.
func TestOpen_FolderIsFile(t *testing.T) {
	file := t.TempDir() + "/file"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{Dir: file}); err == nil || strings.Contains(err.Error(), "in use") {
		t.Errorf("got %v", err)
	}
}

// Positions continue after a restart, even if the newest events belonged to a deleted stream.
func TestPositions_AfterRestart(t *testing.T) {
	cfg := memoryConfig()
	head := uint64(0)
	for i := range 4 {
		n := open(t, cfg)
		c := clientOf(t, n)
		name := fmt.Sprintf("s%d", i)
		_, position := c.append(name, none, newEvents(3)...)
		if position <= head {
			t.Fatalf("position %d after %d", position, head)
		}
		if i%2 == 1 {
			position = c.tombstone(name, anyRevision)
			scavenge(t, n)
		}
		head = position
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
