package bleve_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/recallindex/bleve"
	"github.com/annals-project/annals/projections/recallindex/indextest"
)

func TestMain(m *testing.M) {
	// Bleve analyses with workers that live as long as the process.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/blevesearch/bleve_index_api.AnalysisWorker"))
}

func TestConformance(t *testing.T) {
	indextest.Run(t, func(t *testing.T) indextest.Open {
		folder := filepath.Join(t.TempDir(), "bleve")
		return func(t *testing.T) recallindex.Index { return open(t, folder, bleve.Options{}) }
	})
}

// TestConformanceOfFewHandles runs the suite with one open project at a time, so that projects close and open all the time.
func TestConformanceOfFewHandles(t *testing.T) {
	indextest.Run(t, func(t *testing.T) indextest.Open {
		folder := filepath.Join(t.TempDir(), "bleve")
		return func(t *testing.T) recallindex.Index {
			return open(t, folder, bleve.Options{OpenProjects: 1, Batch: 3})
		}
	})
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
	err := x.Apply(t.Context(), project, recallindex.Change{Upserts: []recallindex.Document{{
		Key: recallindex.Key{DataPoint: uuid.New(), Revision: 1}, Terms: recall.Terms{Text: []string{"helix"}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
}

func TestLossBeginsANewGeneration(t *testing.T) {
	cases := []struct {
		name   string
		damage func(t *testing.T, folder, generation string, project uuid.UUID)
	}{
		{"folder gone", func(t *testing.T, folder, _ string, _ uuid.UUID) { must(t, os.RemoveAll(folder)) }},
		{"generation gone", func(t *testing.T, folder, generation string, _ uuid.UUID) {
			must(t, os.RemoveAll(filepath.Join(folder, generation)))
		}},
		{"project gone", func(t *testing.T, folder, generation string, project uuid.UUID) {
			must(t, os.RemoveAll(filepath.Join(folder, generation, project.String())))
		}},
		{"name unreadable", func(t *testing.T, folder, _ string, _ uuid.UUID) {
			must(t, os.WriteFile(filepath.Join(folder, "CURRENT"), []byte("1-nonsense"), 0o600))
		}},
		{"another format", func(t *testing.T, folder, _ string, _ uuid.UUID) {
			must(t, os.WriteFile(filepath.Join(folder, "CURRENT"), []byte("0-"+uuid.NewString()), 0o600))
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			folder, project := filepath.Join(t.TempDir(), "bleve"), uuid.New()
			x := open(t, folder, bleve.Options{})
			write(t, x, project)
			before := x.Generation()
			must(t, x.Close())
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
			must(t, x.Close())
			x = open(t, folder, bleve.Options{})
			if x.Generation() != after {
				t.Error("the new generation did not stay")
			}
			must(t, x.Close())
			entries, err := os.ReadDir(folder)
			must(t, err)
			if len(entries) != 2 {
				t.Errorf("%d entries are left in the folder", len(entries))
			}
		})
	}
}

// TestDamageWhileOpen: an index whose files cannot be read stops what writes to it, and begins anew at the next start.
func TestDamageWhileOpen(t *testing.T) {
	folder, project := filepath.Join(t.TempDir(), "bleve"), uuid.New()
	x := open(t, folder, bleve.Options{})
	write(t, x, project)
	before := x.Generation()
	must(t, x.Close())
	must(t, os.WriteFile(filepath.Join(folder, before[len("bleve:"):], project.String(), "index_meta.json"), []byte("{"), 0o600))
	x = open(t, folder, bleve.Options{})
	if _, err := x.Count(t.Context(), project); !errors.Is(err, recallindex.ErrDamaged) {
		t.Errorf("count: %v", err)
	}
	err := x.Apply(t.Context(), uuid.New(), recallindex.Change{Upserts: []recallindex.Document{{Key: recallindex.Key{DataPoint: uuid.New()}}}})
	if !errors.Is(err, recallindex.ErrDamaged) {
		t.Errorf("apply to another project: %v", err)
	}
	must(t, x.Close())
	x = open(t, folder, bleve.Options{})
	if x.Generation() == before {
		t.Error("the generation is the same")
	}
	must(t, x.Close())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
