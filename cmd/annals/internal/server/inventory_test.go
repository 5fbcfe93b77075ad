package server

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/internal/runtest"
)

func TestFolderBytes_ByPart(t *testing.T) {
	unraced(t)
	dir := t.TempDir()
	for name, size := range map[string]int{
		"log/a": 10, "log/deep/b": 5, "recall/c": 7, "postgres/data/d": 3, "log.txt": 2, "unknown/e": 4, "hash.key": 1,
	} {
		path := filepath.Join(dir, name)
		runtest.Must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		runtest.Must(t, os.WriteFile(path, make([]byte, size), 0o600))
	}
	got, err := folderBytes(t.Context(), dir)
	if err != nil || got["log"] != 15 || got["index"] != 7 || got["postgres"] != 3 || got[otherPart] != 7 {
		t.Errorf("bytes %v, %v", got, err)
	}
	if got, err = folderBytes(t.Context(), filepath.Join(dir, "missing")); err != nil || got[otherPart] != 0 {
		t.Errorf("a folder that is missing: %v, %v", got, err)
	}
}

// metersWhatIsStored checks that what is stored is in the metrics, and a backup is once it was made.
func (h *harness) metersWhatIsStored() {
	t := h.t
	t.Helper()
	h.inventory.count(t.Context())
	got := h.metrics()
	for _, want := range []string{
		"\nannals_data_points 1\n", `annals_data_bytes{part="log"} `, "\nannals_disk_free_bytes ",
		"\nannals_disk_required_bytes 1.34217728e+08\n", "\nannals_node_appends_total ",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the metrics lack %q", want)
		}
	}
	if strings.Contains(got, "annals_backup_age_seconds ") {
		t.Error("the metrics show a backup before there is one")
	}
	_, err := operatorapi.MakeBackup.Call(t.Context(), operatorapi.Dial(h.dir),
		operatorapi.BackupRequest{Dir: filepath.Join(t.TempDir(), "backup")})
	runtest.Must(t, err)
	if got = h.metrics(); !strings.Contains(got, "\nannals_backup_age_seconds ") {
		t.Error("the metrics do not show the backup")
	}
}
