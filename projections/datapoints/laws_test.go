package datapoints_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/projectiontest"
	"github.com/annals-project/annals/projections/datapoints"
)

func rowsAfter(t *rapid.T, tt *testing.T, rows func([][]eventstore.Fact, ...string) (map[string][]string, error), pages [][]eventstore.Fact, without ...string) map[string][]string {
	tt.Helper()
	dump, err := rows(pages, without...)
	if err != nil {
		t.Fatal(err)
	}
	return dump
}

func TestPagesOfAnySizeLeaveTheSameRows(tt *testing.T) {
	db, p := pgtest.Database(tt), datapoints.New()
	projectiontest.Make(tt, db, p)
	rows := func(pages [][]eventstore.Fact, without ...string) (map[string][]string, error) {
		return projectiontest.Rows(tt.Context(), db, p, pages, without...)
	}
	rapid.Check(tt, func(t *rapid.T) {
		h := projectiontest.DrawHistory(t)
		var single, twice [][]eventstore.Fact
		for _, f := range h.Facts {
			single = append(single, []eventstore.Fact{f})
			twice = append(twice, []eventstore.Fact{f}, []eventstore.Fact{f})
		}
		want := rowsAfter(t, tt, rows, single)
		if diff := cmp.Diff(want, rowsAfter(t, tt, rows, projectiontest.Cut(t, h.Facts))); diff != "" {
			t.Fatalf("rows of pages differ from those of single events (-single +pages):\n%s", diff)
		}
		if diff := cmp.Diff(want, rowsAfter(t, tt, rows, twice)); diff != "" {
			t.Fatalf("events that come twice change rows (-once +twice):\n%s", diff)
		}
	})
}

func TestErasedStreamsLeaveTheSameRows(tt *testing.T) {
	db, p := pgtest.Database(tt), datapoints.New()
	projectiontest.Make(tt, db, p)
	rows := func(pages [][]eventstore.Fact, without ...string) (map[string][]string, error) {
		return projectiontest.Rows(tt.Context(), db, p, pages, without...)
	}
	rapid.Check(tt, func(t *rapid.T) {
		h := projectiontest.DrawHistory(t)
		left := h.WithoutErased(t)
		want := rowsAfter(t, tt, rows, projectiontest.Cut(t, h.Facts), "position")
		if diff := cmp.Diff(want, rowsAfter(t, tt, rows, projectiontest.Cut(t, left), "position")); diff != "" {
			t.Fatalf("%d of %d events left, %d data points erased: rows differ (-whole +erased):\n%s", len(left), len(h.Facts), len(h.Erased), diff)
		}
	})
}
