package bleve_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/recallindex/bleve"
	"github.com/annals-project/annals/projections/recallindex/indextest"
)

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
