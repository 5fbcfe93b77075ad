package server

import (
	"net/http"
	"testing"

	"github.com/annals-project/annals/internal/runtest"
)

// A read that needs the log answers 503 while the event store is away, so that a client tries again.
func TestReads_EventStoreAway(t *testing.T) {
	t.Parallel()
	h, log := newReplaceableHarness(t)
	h.start()
	key, management := h.keys()
	id := h.send(key, "/ingest", "completed", point{"id": "a", "content": "Ana likes tea.", "identity": "ana"})
	runtest.Await(t, "the directory has the author", func() bool {
		status, _ := h.call(key, http.MethodGet, api+"/identities/ana", nil)
		return status == http.StatusOK
	})
	paths := append(h.tracePaths(key),
		api+"/ingest/"+id, api+"/ingest/01a22229-6d44-79cf-b05c-c1ff71a76b40",
		api+"/identities", api+"/identities/ana", api+"/audiences", api+"/audiences/project",
	)
	log.restart(func() {
		for _, path := range paths {
			status, answer := h.call(key, http.MethodGet, path, nil)
			if status != http.StatusServiceUnavailable && status != http.StatusOK {
				t.Errorf("%s: %d %s", path, status, answer)
			}
		}
		if status, answer := h.call(management, http.MethodGet, api+"/usage", nil); status != http.StatusServiceUnavailable {
			t.Errorf("usage: %d %s", status, answer)
		}
	})
	runtest.Await(t, "reads are answered again", func() bool {
		status, _ := h.call(key, http.MethodGet, api+"/ingest/"+id, nil)
		return status == http.StatusOK
	})
}
