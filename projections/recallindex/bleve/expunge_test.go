package bleve_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/recallindex/bleve"
	"github.com/annals-project/annals/projections/recallindex/bleve/blevetest"
	"github.com/annals-project/annals/projections/recallindex/indextest"
)

// A deleted word is in no file after a purge: of one segment and of many, of a whole project, and
// after a restart.
func TestPurge_WordsAreInNoFile(t *testing.T) {
	for _, c := range []struct {
		name           string
		before, after  int // pages of other documents
		reopen, reader bool
	}{
		{name: "the only segment", before: 0, after: 0},
		{name: "one page", before: 1},
		{name: "many pages", before: 40, after: 40},
		{name: "opened again", before: 3, after: 3, reopen: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			folder, project := filepath.Join(t.TempDir(), "bleve"), uuid.New()
			x := open(t, folder, bleve.Options{})
			defer func() { runtest.Must(t, x.Close()) }()
			page := func(n int) {
				for i := range n {
					runtest.Must(t, x.Apply(t.Context(), []recallindex.Change{{
						Analysis: indextest.Analysis, Project: project, Upserts: []recallindex.Document{{
							Key:   recallindex.Key{DataPoint: uuid.New(), Revision: 1},
							Terms: recall.Terms{Text: []string{"helix", fmt.Sprint("kept", i)}},
						}},
					}}))
				}
			}
			obsolete := recallindex.Key{DataPoint: uuid.New(), Revision: 1}
			page(c.before)
			runtest.Must(t, x.Apply(t.Context(), []recallindex.Change{{
				Analysis: indextest.Analysis, Project: project, Upserts: []recallindex.Document{
					{Key: obsolete, Terms: recall.Terms{Text: []string{"quokkazebra"}, Label: []string{"quokkalabel"}}},
					{Key: recallindex.Key{DataPoint: uuid.New(), Revision: 1}, Terms: recall.Terms{Text: []string{"helix"}}},
				},
			}}))
			page(c.after)
			if len(blevetest.Holding(t, folder, "quokkazebra")) == 0 {
				t.Fatal("the word is in no file before it is deleted")
			}
			runtest.Must(t, x.Apply(t.Context(), []recallindex.Change{{
				Analysis: indextest.Analysis, Project: project, Deletes: []recallindex.Scope{
					{DataPoint: obsolete.DataPoint, Part: recallindex.Sources, Revision: obsolete.Revision},
				},
			}}))
			if c.reopen {
				runtest.Must(t, x.Close())
				x = open(t, folder, bleve.Options{})
			}
			_, err := x.Purge(t.Context())
			runtest.Must(t, err)
			for _, word := range []string{"quokkazebra", "quokkalabel"} {
				if files := blevetest.Holding(t, folder, word); len(files) > 0 {
					t.Errorf("%s is in %v", word, files)
				}
			}
			if n, err := x.Count(t.Context(), project); err != nil || n != c.before+c.after+1 {
				t.Errorf("%d documents are left, %v", n, err)
			}
		})
	}
}
