package nodetest

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/annals-project/annals/internal/runtest"
)

// Build builds the program, or returns the one that ANNALS_TEST_BINARY names.
func Build(t *testing.T) string {
	t.Helper()
	if binary := os.Getenv("ANNALS_TEST_BINARY"); binary != "" {
		return binary
	}
	binary := filepath.Join(t.TempDir(), "annals")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "github.com/annals-project/annals/cmd/annals")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return binary
}

// Serve starts "annals node" and returns the connection string that it prints. At the end of the
// test it stops the node and checks that it stops in order.
func Serve(t *testing.T, binary string, args ...string) string {
	t.Helper()
	cmd := exec.Command(binary, append([]string{"node", "--data-dir", t.TempDir(), "--addr", "127.0.0.1:0"}, args...)...)
	cmd.Stderr = t.Output()
	stdout, err := cmd.StdoutPipe()
	runtest.Must(t, err)
	runtest.Must(t, cmd.Start())
	lines := bufio.NewScanner(stdout)
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Error(err)
		}
		for lines.Scan() {
			t.Errorf("the node printed: %s", lines.Text())
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("the node ended with %v", err)
		}
	})
	if !lines.Scan() {
		t.Fatalf("the node did not start: %v", lines.Err())
	}
	address, ok := strings.CutPrefix(lines.Text(), "annals node is ready: ")
	if !ok {
		t.Fatalf("the node printed %q", lines.Text())
	}
	address, _, _ = strings.Cut(address, " ")
	return address
}
