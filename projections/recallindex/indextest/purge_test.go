package indextest

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/annals-project/annals/projections/recallindex"
)

// purged: what remains is found and counted as before, whatever was deleted, and however often it
// is purged.
func purged(t *testing.T, open Open) {
	x := opened(t, open)
	project := uuid.New()
	purge := func() {
		t.Helper()
		if _, err := x.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	purge() // of an empty index
	var points []uuid.UUID
	for n := range 60 {
		points = append(points, uuid.New())
		apply(t, x, project, recallindex.Change{Upserts: []recallindex.Document{passage(points[n], 1, 0,
			fmt.Sprintf("helix number%d", n), "")}})
	}
	purge()
	hits := func(word string) int { t.Helper(); return len(search(t, x, query(project, word)).Hits) }
	for round, deleted := range [][]uuid.UUID{points[:1], points[1:40], nil, points[40:59], points[59:]} {
		var change recallindex.Change
		for _, id := range deleted {
			change.Deletes = append(change.Deletes, sources(id, 1))
		}
		apply(t, x, project, change)
		purge()
		want := 60 - slices.Index(points, lastOf(points, round)) - 1
		if n := count(t, x, project); n != want {
			t.Errorf("round %d: %d documents, want %d", round, n, want)
		}
		if found := search(t, x, query(project, "helix")); len(found.Hits) != want || found.Statistics.Docs != want ||
			want > 0 && found.Statistics.Frequencies[0].Text != want {
			t.Errorf("round %d: %d hits, statistics %+v, want %d of each", round, len(found.Hits), found.Statistics, want)
		}
	}
	if n := hits("number7"); n != 0 {
		t.Errorf("%d hits of a deleted word", n)
	}
	apply(t, x, project, recallindex.Change{Upserts: []recallindex.Document{passage(points[0], 2, 0, "helix again", "")}})
	if n := hits("again"); n != 1 {
		t.Errorf("%d hits after all was purged, want 1", n)
	}
}

// lastOf returns the last data point that is deleted after a round of purged.
func lastOf(points []uuid.UUID, round int) uuid.UUID {
	return points[[]int{0, 39, 39, 58, 59}[round]]
}

// purgedDuringCalls: searches and writes go on while files are rewritten, and nothing is lost.
func purgedDuringCalls(t *testing.T, open Open) {
	x := opened(t, open)
	project, replaced := uuid.New(), uuid.New()
	const pages = 30
	var g errgroup.Group
	var written atomic.Int64
	done := make(chan struct{})
	g.Go(func() error {
		defer close(done)
		for n := range pages {
			change := recallindex.Change{
				Project: project, Analysis: Analysis,
				Upserts: []recallindex.Document{passage(uuid.New(), 1, 0, "helix",
					""), passage(replaced, n+1, 0, "gone", "")},
			}
			if n > 0 {
				change.Deletes = []recallindex.Scope{sources(replaced, n)}
			}
			if err := x.Apply(t.Context(), []recallindex.Change{change}); err != nil {
				return err
			}
			written.Add(1)
		}
		return nil
	})
	for range 2 {
		g.Go(func() error {
			for {
				select {
				case <-done:
					return nil
				default:
				}
				before := written.Load()
				found, err := x.Search(t.Context(), query(project, "helix"))
				if err != nil {
					return err
				}
				if int64(len(found.Sources.Hits)) < before {
					return fmt.Errorf("%d hits where %d were written", len(found.Sources.Hits), before)
				}
			}
		})
	}
	g.Go(func() error {
		for {
			select {
			case <-done:
				_, err := x.Purge(t.Context())
				return err
			default:
			}
			if _, err := x.Purge(t.Context()); err != nil {
				return err
			}
		}
	})
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if n := count(t, x, project); n != pages+1 {
		t.Errorf("%d documents, want %d", n, pages+1)
	}
	if found := search(t, x, query(project, strings.Join([]string{"gone", "helix"}, " "))); len(found.Hits) != pages+1 {
		t.Errorf("%d hits, want %d", len(found.Hits), pages+1)
	}
}

func count(t testing.TB, x recallindex.Index, project uuid.UUID) int {
	t.Helper()
	n, err := x.Count(t.Context(), project)
	if err != nil {
		t.Fatalf("count: %v", err)
	}
	return n
}
