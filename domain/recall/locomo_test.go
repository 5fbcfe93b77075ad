package recall_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/annals-project/annals/internal/bench/locomo"
	"github.com/annals-project/annals/internal/bench/score"
)

// TestDialogues ranks every turn for every question without an index or a budget: it measures
// analysis and ranking alone. It reads the folder that ANNALS_TEST_LOCOMO names.
func TestDialogues(t *testing.T) {
	folder := os.Getenv("ANNALS_TEST_LOCOMO")
	if folder == "" {
		t.Skip("ANNALS_TEST_LOCOMO names no folder of dialogues")
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no dialogue in %s: %v", folder, err)
	}
	var dialogues []score.Dialogue
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		c, err := locomo.Read(f)
		if err != nil {
			t.Fatal(err)
		}
		dialogues = append(dialogues, c.Dialogue())
	}
	ranked, err := score.Ablate(dialogues)
	if err != nil {
		t.Fatal(err)
	}
	score := ranked[0].Score
	t.Logf("%d questions: R@10 %.3f, R@100 %.3f", score.Questions, score.At[10], score.At[100])
	if score.At[10] < 0.82 || score.At[100] < 0.95 {
		t.Error("recall is below the threshold")
	}
}
