package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestLocomo loads real dialogues, where a folder of them is named, and asks for the evidence of their questions.
func TestLocomo(t *testing.T) {
	folder := os.Getenv("ANNALS_TEST_LOCOMO")
	if folder == "" {
		t.Skip("ANNALS_TEST_LOCOMO names no folder of dialogues")
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no dialogues in %s: %v", folder, err)
	}
	s := newService(t)
	s.start()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	args := append([]string{"bench", "recall", "locomo", "--data-dir", s.dir, "--min-r10=0.55", "--min-r100=0.75", "--max-p50=20ms"}, files...)
	out, err := exec.CommandContext(ctx, binary, args...).CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
}
