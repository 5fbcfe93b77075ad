package indextest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/projections/recallindex"
)

func longChange(t *testing.T, open Open) {
	x, project, a, kept := opened(t, open), uuid.New(), uuid.New(), uuid.New()
	change := recallindex.Change{Upserts: []recallindex.Document{passage(kept, 1, 0, "common n0", "")}}
	for n := range 2500 {
		if n > 0 {
			change.Upserts = append(change.Upserts, passage(a, 1, n, fmt.Sprintf("common n%d", n), ""))
		}
	}
	apply(t, x, project, change)
	q := query(project, "common n2499 n0")
	q.Sources = 5000
	found := search(t, x, q)
	equal(t, "statistics", found.Statistics, recall.Statistics{Docs: 2500, Frequencies: []recall.Count{
		{Text: 2500},
		{Text: 1},
		{Text: 1},
	}})
	equal(t, "hits", len(found.Hits), 2500)
	apply(t, x, project, recallindex.Change{Deletes: []recallindex.Scope{sources(a, 1)}})
	equal(t, "statistics", search(t, x, q).Statistics, recall.Statistics{Docs: 1, Frequencies: []recall.Count{
		{Text: 1},
		{},
		{Text: 1},
	}})
}

func readersDuringWrites(t *testing.T, open Open) {
	x, project := opened(t, open), uuid.New()
	ctx, cancel := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	failed := make(chan error, 3)
	for range 3 {
		readers.Go(func() {
			for ctx.Err() == nil {
				if _, err := x.Search(ctx, query(project, "helix round")); err != nil && ctx.Err() == nil {
					failed <- err
					return
				}
			}
		})
	}
	a := uuid.New()
	for round := range 30 {
		apply(t, x, project, recallindex.Change{
			Upserts: []recallindex.Document{passage(a, round+1, 0, "helix", "")},
			Deletes: []recallindex.Scope{sources(a, round)},
		})
		equal(t, "own write", keys(search(t, x, query(project, "helix"))),
			[]recallindex.Key{{DataPoint: a, Revision: round + 1}})
	}
	cancel()
	readers.Wait()
	close(failed)
	for err := range failed {
		t.Fatal(err)
	}
}

func openedAgain(t *testing.T, open Open) {
	x, project, a := open(t), uuid.New(), uuid.New()
	generation := x.Generation()
	apply(t, x, project, recallindex.Change{Upserts: []recallindex.Document{passage(a, 1, 0, "helix vim", "editor")}})
	before := search(t, x, query(project, "helix editor"))
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	x = opened(t, open)
	equal(t, "generation", x.Generation(), generation)
	equal(t, "found", search(t, x, query(project, "helix editor")), before)
}

func reset(t *testing.T, open Open) {
	x, project := opened(t, open), uuid.New()
	change := recallindex.Change{
		Analysis: Analysis, Upserts: []recallindex.Document{passage(uuid.New(), 1, 0, "helix", "")},
	}
	apply(t, x, project, change)
	before := x.Generation()
	if err := x.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	if x.Generation() == before {
		t.Error("the generation is the same")
	}
	equal(t, "emptied", len(search(t, x, query(project, "helix")).Hits), 0)
	apply(t, x, project, change)
	equal(t, "filled again", len(search(t, x, query(project, "helix")).Hits), 1)
}

func closed(t *testing.T, open Open) {
	x, project := open(t), uuid.New()
	for range 2 {
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
	}
	change := recallindex.Change{
		Analysis: Analysis, Upserts: []recallindex.Document{passage(uuid.New(), 1, 0, "helix", "")},
	}
	change.Project = project
	if err := x.Apply(t.Context(), []recallindex.Change{change}); !errors.Is(err, recallindex.ErrClosed) {
		t.Errorf("apply: %v", err)
	}
	if _, err := x.Search(t.Context(), query(project, "helix")); !errors.Is(err, recallindex.ErrClosed) {
		t.Errorf("search: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := x.Count(ctx, project); !errors.Is(err, context.Canceled) {
		t.Errorf("count: %v", err)
	}
}
