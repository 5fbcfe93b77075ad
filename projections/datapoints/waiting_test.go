package datapoints_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/projections/datapoints"
)

func TestWaiting(t *testing.T) {
	w := newFixture(t)
	want := func(when string, before int, want datapoints.Waiting) {
		t.Helper()
		w.apply()
		got, err := w.Queries.Waiting(t.Context(), 0, before)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	want("nothing is there", 0, datapoints.Waiting{})
	accepted := map[string]time.Time{}
	for n := range 4 {
		name := fmt.Sprint("s", n)
		accepted[name] = w.at()
		w.revised(name, name, alone)
	}
	want("all wait", 2, datapoints.Waiting{Item: accepted["s0"], Backlogged: accepted["s2"]})
	want("all wait, and no crowd", 4, datapoints.Waiting{Item: accepted["s0"]})
	w.derived("s0", "s0", 0, 1)
	want("one is captured", 2,
		datapoints.Waiting{Item: accepted["s1"], Backlogged: accepted["s3"], Captured: accepted["s0"]})
	w.missed("s1", "s1", 0, 1, 1, 0, false)
	w.missed("s2", "s2", 0, 1, 5, 0, true)
	w.stopped("s2", ingestion.Internal)
	rest := datapoints.Waiting{Item: accepted["s3"], Backlogged: accepted["s3"], Captured: accepted["s0"]}
	want("one was tried, one failed", 0, rest)
	w.retried("s2", 1)
	want("a retry is not as old as its send", 0, rest)

	counts, err := w.Queries.WaitingByProject(t.Context(), 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[uuid.UUID]int{project.ID: 2}, counts); diff != "" {
		t.Errorf("whose they are (-want +got):\n%s", diff)
	}
	if got, err := w.Queries.Waiting(t.Context(), w.last, 0); err != nil || !got.Backlogged.IsZero() || got.Item.IsZero() {
		t.Errorf("after the head %+v, %v", got, err)
	}
}
