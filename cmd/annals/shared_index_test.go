package main

import (
	"testing"
	"time"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/recallindex/elastic/elastictest"
)

// Of two processes with one Elasticsearch both answer recall, whichever feeds the index, and the one
// that is left goes on at once when the other is killed.
func TestStandby_SharedIndex(t *testing.T) {
	t.Parallel()
	options := elastictest.Options(t)
	d := newDeployment(t, time.Now(), 2)
	d.env = []string{"ANNALS_INDEX=" + options.URL, "ANNALS_INDEX_CA=" + options.CA, "ANNALS_INDEX_NAME=" + options.Name}
	first, second := d.processes[0], d.processes[1]
	first.start()
	second.start()
	send := func(s *served, id, content string) {
		t.Helper()
		if _, err := s.client().Ingest(t.Context(), client.DataPoint{ID: id, Content: content}); err != nil {
			t.Fatal(err)
		}
	}
	found := func(s *served, query string) bool {
		page, code := s.recall(query)
		return code == "" && len(page.Results) > 0
	}
	send(second, "a", "The code word of spring is marigold.")
	runtest.Await(d.t, "both recall it", func() bool { return found(first, "marigold") && found(second, "marigold") })
	for _, s := range d.processes {
		is, err := s.client().Ready(t.Context())
		if err != nil || !is.Ready || is.RecallElsewhere != "" {
			t.Errorf("%s is %+v, %v", s.dir, is, err)
		}
	}
	generation := elastictest.Indexes(t, options)
	first.kill()
	if !found(second, "marigold") {
		t.Error("recall of the second needs the first")
	}
	send(second, "b", "The code word of autumn is chrysanthemum.")
	runtest.Await(d.t, "the second feeds the index", func() bool { return found(second, "chrysanthemum") })
	first.start()
	runtest.Await(d.t, "the first recalls what it missed", func() bool { return found(first, "chrysanthemum") })
	if _, err := first.client().DeleteDataPoints(t.Context(), []string{"a"}); err != nil {
		t.Fatal(err)
	}
	for _, s := range d.processes {
		page, code := s.recall("spring marigold")
		if code != "" {
			t.Errorf("recall answers %s", code)
		}
		for _, r := range page.Results {
			if r.Sources[0].SourceID == "a" {
				t.Errorf("what was deleted is recalled: %+v", r)
			}
		}
	}
	if now := elastictest.Indexes(t, options); len(now) != 1 || now[0] != generation[0] {
		t.Errorf("index %v was replaced by %v", generation, now)
	}
}
