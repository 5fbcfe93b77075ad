package main

import (
	"errors"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/recallindex/bleve/blevetest"
)

func (s *served) recall(query string) (page *client.RecallResponse, code string) {
	s.d.t.Helper()
	page, err := s.client().Recall(s.d.t.Context(), client.RecallRequest{Query: query, Identity: "ana"})
	if refused, ok := errors.AsType[*client.APIError](err); ok {
		return &client.RecallResponse{}, refused.Code
	}
	if err != nil {
		s.d.t.Fatal(err)
	}
	return page, ""
}

// Of two processes the second serves everything but recall. It takes the index over when the first is
// killed, and keeps it when the first restarts. Both recall what was sent through either.
func TestStandby_TakesIndexOver(t *testing.T) {
	t.Parallel()
	d := newDeployment(t, time.Now(), 2)
	first, second := d.processes[0], d.processes[1]
	first.start()
	second.start()
	found := func(s *served, query string) bool {
		page, code := s.recall(query)
		if code != "" && code != fault.CodeServiceUnavailable {
			t.Fatalf("recall answers %s", code)
		}
		return len(page.Results) > 0
	}
	send := func(s *served, id, content string) {
		t.Helper()
		if _, err := s.client().Ingest(t.Context(), client.DataPoint{ID: id, Content: content}); err != nil {
			t.Fatal(err)
		}
	}
	send(second, "a", "The code word of spring is marigold.")
	runtest.Await(d.t, "the first recalls what the second took", func() bool { return found(first, "marigold") })
	if page, code := second.recall("marigold"); code != fault.CodeServiceUnavailable {
		t.Fatalf("the second answers %q, %+v", code, page)
	}
	is, err := second.client().Ready(t.Context())
	if err != nil || !is.Ready || is.RecallElsewhere == "" {
		t.Fatalf("the second is %+v, %v", is, err)
	}
	first.kill()
	send(second, "b", "The code word of autumn is chrysanthemum.")
	runtest.Await(d.t, "the second has taken over", func() bool { _, code := second.recall("x"); return code == "" })
	// The index is complete from its first answer on, with what was fed to the other before.
	if !found(second, "marigold") {
		t.Error("what the first had in its index is lost")
	}
	runtest.Await(d.t, "the second recalls what it took", func() bool { return found(second, "chrysanthemum") })
	first.start()
	if _, code := first.recall("marigold"); code != fault.CodeServiceUnavailable {
		t.Errorf("the first is back with its old index and answers %q", code)
	}
	// Deletions now purge only the index of the second, so the first must not keep anything.
	runtest.Await(d.t, "the first has emptied its index", func() bool {
		return len(blevetest.Holding(t, filepath.Join(first.dir, "recall"), "marigold")) == 0
	})
	if in := blevetest.Holding(t, filepath.Join(second.dir, "recall"), "marigold"); len(in) == 0 {
		t.Error("the second has emptied its index too")
	}
	send(first, "c", "The code word of winter is hellebore.")
	runtest.Await(d.t, "the second recalls what the first took", func() bool { return found(second, "hellebore") })
	second.stop()
	runtest.Await(d.t, "the first has taken over", func() bool { return found(first, "chrysanthemum") && found(first, "marigold") })
	res, err := http.Get("http://" + first.addr + "/readyz")
	if err != nil || res.Body.Close() != nil || res.StatusCode != http.StatusOK {
		t.Errorf("the first is not ready: %v, %v", res, err)
	}
}
