package indextest

import (
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/recallindex/bleve"
	"github.com/annals-project/annals/projections/recallindex/elastic"
	"github.com/annals-project/annals/projections/recallindex/elastic/elastictest"
)

func TestMain(m *testing.M) {
	// Bleve analyses with workers that live as long as the process.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/blevesearch/bleve_index_api.AnalysisWorker"))
}

func TestMemory(t *testing.T) {
	conformance(t, func(*testing.T) Storage {
		index := NewMemory()
		return Storage{
			Open:   func(*testing.T) recallindex.Index { return index.Reopen() },
			Damage: func(_ *testing.T, project uuid.UUID) { index.Damage(project) },
		}
	})
}

func TestBleve(t *testing.T) { inFolder(t, bleve.Options{}) }

// TestBleve_BigProjects runs the suite with projects that get their own slot after two documents.
func TestBleve_BigProjects(t *testing.T) {
	if testing.Short() {
		t.Skip("TestBleve_FewHandles has projects with slots of their own too")
	}
	inFolder(t, bleve.Options{OwnFrom: 2})
}

// TestBleve_FewHandles runs the suite with one open slot at a time, so that slots close and open all the time.
func TestBleve_FewHandles(t *testing.T) {
	inFolder(t, bleve.Options{OpenSlots: 1, Batch: 20, OwnFrom: 10})
}

func inFolder(t *testing.T, options bleve.Options) {
	conformance(t, func(t *testing.T) Storage {
		folder := filepath.Join(t.TempDir(), "bleve")
		open := func(t *testing.T, analysis int) recallindex.Index {
			options := options
			options.Log, options.Analysis = slog.New(slog.NewTextHandler(t.Output(), nil)), analysis
			x, err := bleve.Open(folder, options)
			runtest.Must(t, err)
			return x
		}
		return Storage{
			Open: func(t *testing.T) recallindex.Index { return open(t, 0) }, OpenNew: open,
			Damage: func(t *testing.T, project uuid.UUID) {
				runtest.Must(t, os.WriteFile(filepath.Join(sharedSlot(t, folder, project), "index_meta.json"), []byte("{"), 0o600))
			},
		}
	})
}

// sharedSlot returns the folder of the slot that a small project shares with others: the last of the 64 digits of the
// hash of its id names it.
func sharedSlot(t *testing.T, folder string, project uuid.UUID) string {
	t.Helper()
	generation, err := os.ReadFile(filepath.Join(folder, "CURRENT"))
	runtest.Must(t, err)
	sum := sha256.Sum256(project[:])
	digits := hex.EncodeToString(sum[:])
	slot := filepath.Join(folder, strings.TrimSpace(string(generation)), "shared-"+digits[len(digits)-1:])
	if _, err := os.Stat(slot); err != nil {
		t.Fatalf("the shared slot of the project: %v", err)
	}
	return slot
}

func TestElasticsearch(t *testing.T) {
	conformance(t, func(t *testing.T) Storage {
		t.Parallel() // a purge waits up to half a minute
		options := elastictest.Options(t)
		options.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
		open := func(t *testing.T, analysis int) recallindex.Index {
			options := options
			options.Analysis = analysis
			x, err := elastic.Open(t.Context(), options)
			runtest.Must(t, err)
			return x
		}
		return Storage{Open: func(t *testing.T) recallindex.Index { return open(t, 0) }, OpenNew: open}
	})
}
