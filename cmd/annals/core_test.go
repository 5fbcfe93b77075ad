package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/annals-project/annals/internal/runtest"
)

func TestNoCoreDumps_HereAndInChildren(t *testing.T) {
	runtest.Must(t, noCoreDumps())
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_CORE, &limit); err != nil || limit != (syscall.Rlimit{}) {
		t.Errorf("limit %+v, %v", limit, err)
	}
	out, err := exec.CommandContext(t.Context(), "/bin/sh", "-c", "ulimit -c; ulimit -H -c").Output()
	if err != nil || strings.Join(strings.Fields(string(out)), " ") != "0 0" {
		t.Errorf("limit of a child %q, %v", out, err)
	}
}

// A running service and its private Postgres write no core files.
func TestServe_NoCoreDumps(t *testing.T) {
	if _, err := os.Stat("/proc/self/limits"); err != nil {
		t.Skip("no /proc")
	}
	dir := filepath.Join(t.TempDir(), "data")
	program := exec.CommandContext(t.Context(), os.Args[0], "serve", "--data-dir", dir, "--api-addr", "127.0.0.1:0",
		"--console-addr", "127.0.0.1:0")
	clock := filepath.Join(t.TempDir(), "clock")
	runtest.Must(t, os.WriteFile(clock, []byte("0"), 0o600))
	program.Env = append(os.Environ(), clockFile+"="+clock)
	out, err := program.StdoutPipe()
	runtest.Must(t, err)
	runtest.Must(t, program.Start())
	t.Cleanup(func() {
		_ = program.Process.Signal(os.Interrupt)
		_ = program.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || !strings.Contains(line, "annals is ready") {
		t.Fatalf("it prints %q, %v", line, err)
	}
	postmaster, err := os.ReadFile(filepath.Join(dir, "postgres", "data", "postmaster.pid"))
	runtest.Must(t, err)
	child, _, _ := strings.Cut(string(postmaster), "\n")
	for what, pid := range map[string]string{"the service": strconv.Itoa(program.Process.Pid), "its Postgres": child} {
		text, err := os.ReadFile("/proc/" + pid + "/limits")
		runtest.Must(t, err)
		if !regexp.MustCompile(`(?m)^Max core file size +0 +0 `).Match(text) {
			t.Errorf("%s may write core files:\n%s", what, text)
		}
	}
}
