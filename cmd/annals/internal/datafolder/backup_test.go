package datafolder

import (
	"os"
	"path/filepath"
	"testing"
)

func TestBackup_ClusterIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "backup")
	if done, err := (Backup{Dir: t.TempDir()}).Make(t.Context(), dir); err == nil || done != 0 {
		t.Errorf("position %d, %v", done, err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("left in place: %v", err)
	}
}
