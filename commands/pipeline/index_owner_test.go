package pipeline

import (
	"testing"

	"github.com/annals-project/annals/commands/erasure"
)

// What is deleted is not said to be cleaned by a process that cannot reach the files of the
// index: the one that feeds it does that.
func TestCleaned_ProcessWithTheIndex(t *testing.T) {
	t.Parallel()
	w := newIdleHarness(t)
	w.ingestBatch(item("a", "one"))
	w.remove("a")
	has := false
	w.finisher.Eraser.HasIndex = func() bool { return has }
	w.passHead()
	if done, err := w.finisher.EraseNow(t.Context()); err == nil || done.Deletions != 0 || done.Left.Deletions != 1 {
		t.Errorf("erased %+v, %v", done, err)
	}
	var done erasure.Report
	if w.finisher.round(t.Context(), false, &done); done.Deletions != 0 || len(done.Trouble) > 0 {
		t.Errorf("a round of its own did %+v", done)
	}
	has = true
	if done, err := w.finisher.EraseNow(t.Context()); err != nil || done.Deletions != 1 || done.Left.Deletions != 0 {
		t.Errorf("erased %+v, %v", done, err)
	}
}
