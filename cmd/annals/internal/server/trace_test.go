package server

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/annals-project/annals/internal/runtest"
)

// tracePaths returns the reads of every node that was ever listed for a key, also of deleted ones. The
// windows of their timelines do not depend on the clock.
func (h *harness) tracePaths(key string) []string {
	h.t.Helper()
	type group struct {
		Nodes []struct {
			ID string `json:"id"`
		} `json:"nodes"`
		HasMore   bool    `json:"hasMore"`
		EndCursor *string `json:"endCursor"`
	}
	if h.traced == nil {
		h.traced = map[string][]string{}
	}
	paths, query := []string{}, url.Values{"first": {"20"}}
	for more := true; more; {
		path := api + "/trace/roots?" + query.Encode()
		var roots struct {
			Memories group `json:"memories"`
			Sources  group `json:"sources"`
		}
		h.must(key, http.MethodGet, path, nil, &roots)
		paths, more = append(paths, path), false
		for name, g := range map[string]group{"afterMemories": roots.Memories, "afterSources": roots.Sources} {
			for _, n := range g.Nodes {
				if !slices.Contains(h.traced[key], n.ID) {
					h.traced[key] = append(h.traced[key], n.ID)
				}
			}
			if more = more || g.HasMore; g.EndCursor != nil {
				query.Set(name, *g.EndCursor)
			}
		}
	}
	to := time.Now().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)
	window := "?from=" + to.AddDate(0, 0, -31).Format(time.DateOnly) + "&to=" + to.Format(time.DateOnly)
	for _, id := range h.traced[key] {
		paths = append(paths, api+"/trace/nodes/"+id, api+"/trace/lineage/"+id+"?revealAll=true",
			api+"/trace/timeline/"+id+window)
	}
	return paths
}

// A node of a deleted data point reports the request of its deletion, and no text, until and after the
// erasure.
func TestServer_TraceOfDeleted(t *testing.T) {
	unraced(t)
	t.Parallel()
	h := newHarness(t)
	h.start()
	own, _ := h.keys()
	h.send(own, "/ingest", "completed", point{"id": "vault", "content": "The code of the vault is saffron. Bo lives in Lisbon."})
	h.send(own, "/ingest", "completed", point{"id": "vault", "content": "The code of the vault is indigo. Bo lives in Porto."})
	h.tracePaths(own)
	ids := h.traced[own]
	if len(ids) < 3 {
		t.Fatalf("%d nodes", len(ids))
	}
	status, answer := h.call(own, http.MethodDelete, api+"/data-points/vault", nil)
	if status != http.StatusAccepted {
		t.Fatalf("deletion: %d %s", status, answer)
	}
	request := ""
	check := func(when string) {
		t.Helper()
		for _, path := range h.tracePaths(own) {
			status, body := h.call(own, http.MethodGet, path, nil)
			if text := string(body); status != http.StatusOK || strings.Contains(text, "vault") ||
				strings.Contains(text, "saffron") || strings.Contains(text, "indigo") || strings.Contains(text, "Bo") {
				t.Errorf("%s: %s: %d %s", when, path, status, body)
			}
		}
		for _, id := range ids {
			var n struct {
				Phase     string    `json:"phase"`
				DeletedAt time.Time `json:"deletedAt"`
				Request   string    `json:"deletedByRequestId"`
			}
			_, body := h.call(own, http.MethodGet, api+"/trace/nodes/"+id, nil)
			if err := json.Unmarshal(body, &n); err != nil || n.Phase != "deleted" || n.DeletedAt.IsZero() || n.Request == "" ||
				request != "" && n.Request != request {
				t.Errorf("%s: %s, %v; want request %s", when, body, err, request)
			}
			request = n.Request
		}
	}
	check("deleted")
	runtest.Await(h.t, "the deletion is cleaned", func() bool { return h.count("deletion.cleaned.v1") == 1 })
	check("cleaned")
	if _, err := h.storage.db.Exec(t.Context(), `alter schema trace rename to gone_trace`); err != nil {
		t.Fatal(err)
	}
	h.stop()
	h.start()
	check("rebuilt from a log without the text")
}
