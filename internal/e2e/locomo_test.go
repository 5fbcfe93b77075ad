package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestLocomo loads real dialogues, where a folder of them is named, and asks for the evidence of
// their questions.
func TestLocomo(t *testing.T) {
	scoreRecall(t, newService(t), "locomo", "ANNALS_TEST_LOCOMO", "*.json", "--min-r10=0.78", "--min-r20=0.83", "--min-r100=0.92",
		"--min-within-1000=0.78", "--min-within-8000=0.90", "--max-sources=1.5")
}

// TestBeam loads real chats with an assistant, where a folder of them is named, and asks for the
// evidence of their questions.
func TestBeam(t *testing.T) {
	scoreRecall(t, newService(t), "beam", "ANNALS_TEST_BEAM", "*", "--min-gain=0.08")
}

// TestLocomo_Builtin is TestLocomo with the built-in embedding model.
func TestLocomo_Builtin(t *testing.T) {
	scoreRecall(t, newModelService(t), "locomo", "ANNALS_TEST_LOCOMO", "*.json", "--min-r10=0.82", "--min-r20=0.87",
		"--min-r100=0.94")
}

func scoreRecall(t *testing.T, s *service, kind, variable, pattern string, bounds ...string) {
	folder := os.Getenv(variable)
	if folder == "" {
		t.Skipf("%s names no folder", variable)
	}
	dialogues, err := filepath.Glob(filepath.Join(folder, pattern))
	if err != nil || len(dialogues) == 0 {
		t.Fatalf("no dialogues in %s: %v", folder, err)
	}
	s.start()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	benchmarks := filepath.Join(t.TempDir(), "annals-bench")
	build := exec.CommandContext(ctx, "go", "build", "-o", benchmarks, "./cmd/annals-bench")
	build.Dir = filepath.Join("..", "..", "bench") // a module of its own
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	args := append([]string{"recall", kind, "--service", binary, "--data-dir", s.dir}, append(bounds, dialogues...)...)
	out, err := exec.CommandContext(ctx, benchmarks, args...).CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
}
