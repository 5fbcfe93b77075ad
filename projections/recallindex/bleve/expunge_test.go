package bleve_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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

// A slot that nothing writes has few segments, with the same documents. One that is written again is merged again.
func TestCompact(t *testing.T) {
	folder, project := filepath.Join(t.TempDir(), "bleve"), uuid.New()
	x := open(t, folder, bleve.Options{})
	deleted := make([]recallindex.Scope, 0, 20)
	const pageOf = 100 // more than the floor of the usual merges
	page := func(n int) {
		t.Helper()
		for i := range n {
			documents := make([]recallindex.Document, pageOf)
			for d := range documents {
				documents[d] = recallindex.Document{
					Key:   recallindex.Key{DataPoint: uuid.New(), Revision: 1},
					Terms: recall.Terms{Text: []string{"helix", fmt.Sprint("word", i*d)}},
				}
			}
			runtest.Must(t, x.Apply(t.Context(), []recallindex.Change{
				{Analysis: indextest.Analysis, Project: project, Upserts: documents},
			}))
			first := recallindex.Scope{DataPoint: documents[0].DataPoint, Part: recallindex.Sources, Revision: 1}
			deleted = append(deleted, first)
		}
	}
	remove := func() {
		t.Helper()
		runtest.Must(t, x.Apply(t.Context(), []recallindex.Change{{
			Analysis: indextest.Analysis, Project: project, Deletes: deleted[len(deleted)-5:],
		}}))
	}
	found := func() recallindex.Result {
		t.Helper()
		found, err := x.Search(t.Context(), recallindex.Query{
			Project: project, Sources: 5000, Terms: recall.Wholes("helix", "word3"), Analysis: indextest.Analysis,
			Audiences: []uuid.UUID{{}},
		})
		runtest.Must(t, err)
		return found.Sources
	}
	segments := func() int {
		t.Helper()
		n, err := bleve.SegmentsOf(x, project)
		runtest.Must(t, err)
		return n
	}
	page(20)
	remove()
	before := found()
	if n := segments(); n <= bleve.QuietSegments {
		t.Fatalf("%d segments before: nothing is to be merged", n)
	}
	runtest.Must(t, x.Close())

	x = open(t, folder, bleve.Options{QuietFor: time.Millisecond})
	defer func() { runtest.Must(t, x.Close()) }()
	for range 2 {
		page(8)
		remove()
		runtest.Await(t, "few segments", func() bool { return segments() <= bleve.QuietSegments })
	}
	after := found()
	if want := len(before.Hits) + 2*(8*pageOf-5); len(after.Hits) != want || after.Statistics.Docs != want {
		t.Errorf("%d documents and %d hits, want %d", after.Statistics.Docs, len(after.Hits), want)
	}
	kept := map[recallindex.Key]recallindex.Hit{}
	for _, h := range after.Hits {
		kept[h.Key] = h
	}
	for _, h := range before.Hits {
		if diff := cmp.Diff(h, kept[h.Key]); diff != "" {
			t.Errorf("a hit changed: %s", diff)
		}
	}
}

// Whatever closes or replaces the slots does not wait for their quiet, and ends a merge that runs.
func TestCompact_EndsWithTheIndex(t *testing.T) {
	for _, end := range []func(t *testing.T, x *bleve.Index) error{
		func(_ *testing.T, x *bleve.Index) error { return x.Close() },
		func(t *testing.T, x *bleve.Index) error {
			if err := x.Reset(t.Context()); err != nil {
				return err
			}
			return x.Close()
		},
	} {
		folder, project := filepath.Join(t.TempDir(), "bleve"), uuid.New()
		x := open(t, folder, bleve.Options{QuietFor: time.Microsecond})
		for range 30 {
			write(t, x, project)
		}
		runtest.Must(t, end(t, x))
	}
}
