package bleve_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/recallindex/bleve"
	"github.com/annals-project/annals/projections/recallindex/indextest"
)

func TestMain(m *testing.M) {
	bleve.NeverQuiet()
	// Bleve analyses with workers that live as long as the process.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/blevesearch/bleve_index_api.AnalysisWorker"))
}

// slotFolder returns the folder of the files of a slot.
func slotFolder(t *testing.T, folder, slot string) string {
	t.Helper()
	generation, err := os.ReadFile(filepath.Join(folder, "CURRENT"))
	runtest.Must(t, err)
	return filepath.Join(folder, strings.TrimSpace(string(generation)), slot)
}

func open(t *testing.T, folder string, options bleve.Options) *bleve.Index {
	t.Helper()
	x, err := bleve.Open(folder, options)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func write(t *testing.T, x recallindex.Index, project uuid.UUID) {
	t.Helper()
	err := x.Apply(t.Context(), []recallindex.Change{{
		Analysis: indextest.Analysis, Project: project, Upserts: []recallindex.Document{{
			Key: recallindex.Key{DataPoint: uuid.New(), Revision: 1}, Terms: recall.Terms{Text: []string{"helix"}},
		}},
	}})
	if err != nil {
		t.Fatal(err)
	}
}

func TestOpen_LossBeginsANewGeneration(t *testing.T) {
	cases := []struct {
		name   string
		damage func(t *testing.T, folder, generation string, project uuid.UUID)
	}{
		{"folder gone", func(t *testing.T, folder, _ string, _ uuid.UUID) { runtest.Must(t, os.RemoveAll(folder)) }},
		{"generation gone", func(t *testing.T, folder, generation string, _ uuid.UUID) {
			runtest.Must(t, os.RemoveAll(filepath.Join(folder, generation)))
		}},
		{"name unreadable", func(t *testing.T, folder, _ string, _ uuid.UUID) {
			runtest.Must(t, os.WriteFile(filepath.Join(folder, "CURRENT"), []byte("1-nonsense"), 0o600))
		}},
		{"another format", func(t *testing.T, folder, _ string, _ uuid.UUID) {
			runtest.Must(t, os.WriteFile(filepath.Join(folder, "CURRENT"), []byte("0-"+uuid.NewString()), 0o600))
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			folder, project := filepath.Join(t.TempDir(), "bleve"), uuid.New()
			x := open(t, folder, bleve.Options{})
			write(t, x, project)
			before := x.Generation()
			runtest.Must(t, x.Close())
			c.damage(t, folder, before[len("bleve:"):], project)
			x = open(t, folder, bleve.Options{})
			if x.Generation() == before {
				t.Error("the generation is the same")
			}
			if n, err := x.Count(t.Context(), project); n != 0 || err != nil {
				t.Errorf("%d documents, %v", n, err)
			}
			write(t, x, project)
			after := x.Generation()
			runtest.Must(t, x.Close())
			x = open(t, folder, bleve.Options{})
			if x.Generation() != after {
				t.Error("the new generation did not stay")
			}
			runtest.Must(t, x.Close())
			entries, err := os.ReadDir(folder)
			runtest.Must(t, err)
			if len(entries) != 2 {
				t.Errorf("%d entries are left in the folder", len(entries))
			}
		})
	}
}

// TestApply_ManyTerms: a change that is written in several batches, because its documents are long,
// is complete.
func TestApply_ManyTerms(t *testing.T) {
	x := open(t, filepath.Join(t.TempDir(), "bleve"), bleve.Options{})
	defer func() { runtest.Must(t, x.Close()) }()
	project := uuid.New()
	change := recallindex.Change{Analysis: indextest.Analysis, Project: project}
	for n := range 5 {
		d := recallindex.Document{
			Key: recallindex.Key{DataPoint: uuid.New(), Revision: 1}, OccurredAt: time.Unix(0, 0),
			Terms: recall.Terms{Text: []string{"helix"}},
		}
		for i := range 90_000 {
			d.Terms.Text = append(d.Terms.Text, fmt.Sprint("w", i%100, "of", n))
		}
		change.Upserts = append(change.Upserts, d)
	}
	runtest.Must(t, x.Apply(t.Context(), []recallindex.Change{change}))
	both, err := x.Search(t.Context(), recallindex.Query{
		Analysis: indextest.Analysis,
		Project:  project, Sources: 10, Terms: recall.Wholes("helix", "w7of4"), Audiences: []uuid.UUID{uuid.Nil},
	})
	runtest.Must(t, err)
	found := both.Sources
	if len(found.Hits) != 5 || found.Statistics.Docs != 5 || found.Statistics.Frequencies[1].Text != 1 {
		t.Fatalf("found %d of %+v", len(found.Hits), found.Statistics)
	}
	for _, h := range found.Hits {
		if h.DataPoint == change.Upserts[4].DataPoint && h.Counts[1].Text != 900 {
			t.Errorf("w7of4 occurs %d times in the last document", h.Counts[1].Text)
		}
	}
}
