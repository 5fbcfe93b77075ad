package main

import (
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
	dir, service := startServe(t)
	postmaster, err := os.ReadFile(filepath.Join(dir, "postgres", "data", "postmaster.pid"))
	runtest.Must(t, err)
	child, _, _ := strings.Cut(string(postmaster), "\n")
	for what, pid := range map[string]string{"the service": strconv.Itoa(service.Process.Pid), "its Postgres": child} {
		text, err := os.ReadFile("/proc/" + pid + "/limits")
		runtest.Must(t, err)
		if !regexp.MustCompile(`(?m)^Max core file size +0 +0 `).Match(text) {
			t.Errorf("%s may write core files:\n%s", what, text)
		}
	}
}
