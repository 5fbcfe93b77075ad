package datapoints_test

import (
	"testing"
	"time"

	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/projections/datapoints"
)

// The sends that failed after a time are counted over all projects, without those whose failure counts no more.
func TestRecentFailures(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	fail := func(name, code string) {
		w.revised("send of "+name, name, alone)
		w.missed("send of "+name, name, 0, w.states[name].Revision, 1, 0, true)
		w.stopped("send of "+name, code)
	}
	count := func(after time.Time) datapoints.RecentFailures {
		t.Helper()
		got, err := w.Queries.RecentFailures(t.Context(), after)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := count(noon); got != (datapoints.RecentFailures{}) {
		t.Errorf("of nothing: %+v", got)
	}
	fail("a", ingestion.ModelUnavailable)
	w.project = neighbour.ID
	fail("b", ingestion.Internal)
	w.apply()
	newest := datapoints.Failure{Code: ingestion.Internal, Message: "send of b stopped"}
	if got := count(noon); got != (datapoints.RecentFailures{Sends: 2, Newest: newest}) {
		t.Errorf("of two: %+v", got)
	}
	if got := count(at(2)); got != (datapoints.RecentFailures{Sends: 1, Newest: newest}) { // a failed at that time
		t.Errorf("after the first: %+v", got)
	}
	if got := count(at(100)); got != (datapoints.RecentFailures{}) {
		t.Errorf("after both: %+v", got)
	}
	w.deleted("d", "b", true)
	w.apply()
	if got := count(noon); got.Sends != 1 || got.Newest.Code != ingestion.ModelUnavailable {
		t.Errorf("after a deletion: %+v", got)
	}
}

func TestCountAll_OldestErasure(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	check := func(when string, points int64, oldest time.Time) {
		t.Helper()
		w.apply()
		n, err := w.Queries.CountAll(t.Context())
		if err != nil || n != points {
			t.Errorf("%s: %d data points, %v", when, n, err)
		}
		if got, err := w.Queries.OldestErasure(t.Context()); err != nil || !got.Equal(oldest) {
			t.Errorf("%s: oldest deletion %s, %v", when, got, err)
		}
	}
	w.revised("send of a", "a", alone)
	check("one", 1, time.Time{})
	w.revised("send of b", "b", alone)
	accepted := w.at()
	w.wiped("first", "", "a")
	w.deleted("first", "a", false)
	w.wipeFannedOut("first")
	check("a deletion", 1, accepted)
	w.kept("first", "a")
	w.cleaned("first")
	check("after its erasure", 1, time.Time{})
}
