package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// runbookStep is a block of commands of the runbook.
type runbookStep struct {
	block string
	// before is what the reader does first by other means than the block; nil for nothing.
	before func()
	// looks is set if the block changes nothing. A reader who is faster than the service looks again.
	looks bool
	want  []string
}

// TestRunbook types the commands of the first two days of the runbook, in their order, with one service.
func TestRunbook(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../deploy/RUNBOOK.md")
	if err != nil {
		t.Fatal(err)
	}
	s := newService(t)
	r := runbook{s, t.TempDir(), map[string]string{}}
	if err := os.Symlink(binary, filepath.Join(r.root, "annals")); err != nil {
		t.Fatal(err)
	}
	for _, b := range tested.FindAllSubmatch(page, -1) {
		r.blocks[strings.TrimPrefix(string(b[1]), "tested: ")] = string(b[2])
	}
	const tea = "Ana drinks green tea."
	steps := []runbookStep{
		{"install", nil, false, []string{"ok      ports: ", "ok      folder: ", "a start makes it"}},
		{"started", s.start, true, []string{"answers 200", "is ready", "backup   none is recorded", "failed   no send"}},
		{"key", nil, false, []string{"project support", "svc_sk_", "owner@annals.local"}},
		{"recall", nil, false, []string{tea}},
		{"backup", nil, false, []string{"backed up to ", "/try"}},
		{"metrics", nil, true, []string{"annals_backup_age_seconds ", "annals_disk_free_bytes ", "annals_projection_lag{"}},
		{"before the upgrade", nil, false, []string{"backed up to "}},
		{"after the upgrade", func() { s.stop(); s.start() }, true, []string{"answers 200", "is ready", "lag      "}},
		{"restore", s.stop, false, []string{"ok      keys: ", "ok      folder: "}},
		{"restored", func() { s.dir += "-restored"; s.start() }, true, []string{"answers 200", tea}},
		{"disk", nil, true, []string{"free; writes are refused below", "Use%"}},
		{"slow", nil, true, []string{"ok      service: ", "annals_writes_waiting ", "1 passed"}},
		{"erase", nil, false, []string{"ana"}},
	}
	if len(r.blocks) != len(steps) {
		t.Errorf("the runbook has %d blocks that are tested, the test %d", len(r.blocks), len(steps))
	}
	for _, step := range steps {
		r.take(step)
	}
}

// runbook is an operator who follows the runbook.
type runbook struct {
	s      *service
	root   string
	blocks map[string]string
}

// take takes a step, and fails the test unless its commands succeed and answer what is wanted.
func (r runbook) take(step runbookStep) {
	t := r.s.t
	t.Helper()
	if r.blocks[step.block] == "" {
		t.Fatalf("the runbook lacks the block %q", step.block)
	}
	if step.before != nil {
		step.before()
	}
	end := time.Now().Add(readyLimit)
	for {
		out, err := r.shell(r.blocks[step.block])
		lacks := ""
		for _, want := range step.want {
			if !strings.Contains(out, want) {
				lacks = want
			}
		}
		if err == nil && lacks == "" {
			return
		}
		if !step.looks || time.Now().After(end) {
			t.Fatalf("%s: %v, the answers lack %q:\n%s", step.block, err, lacks, out)
		}
	}
}

// shell runs lines in the shell of an operator.
func (r runbook) shell(lines string) (string, error) {
	ctx, cancel := context.WithTimeout(r.s.t.Context(), readyLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", lines)
	cmd.Env = append(os.Environ(),
		"PATH="+r.root+":"+os.Getenv("PATH"), "ANNALS_DATA_DIR="+r.s.dir, "ANNALS_API_ADDR="+r.s.addr,
		"ANNALS_CONSOLE_ADDR=127.0.0.1:0", "HTTPS_PROXY=", "HTTP_PROXY=",
		"BACKUPS="+filepath.Join(r.root, "backups"), "METRICS=http://"+r.s.addr+"/metrics")
	out, err := cmd.CombinedOutput()
	return string(out), err
}
