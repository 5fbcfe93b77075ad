package server

import (
	"net/http"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/webhook"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/secret"
)

// loggedCall is what the request log returns of a call.
type loggedCall struct {
	Endpoint, Path, Outcome, Verdict, IngestionID string
	Status                                        int
	Key                                           struct{ Name, Prefix string }
	Identity                                      *string
	Webhook                                       *struct {
		ID, Name, EventID, Verdict, DroppedBy string
		Test                                  bool
	}
	Payload *struct{ Request, Response string }
}

// loggedAs waits for the row of a call.
func (h *harness) loggedAs(key string, id uuid.UUID) (got loggedCall) {
	h.t.Helper()
	runtest.Await(h.t, "the row is written", func() bool {
		status, _ := h.call(key, http.MethodGet, api+"/requests/"+id.String(), nil)
		return status == http.StatusOK
	})
	h.must(key, http.MethodGet, api+"/requests/"+id.String(), nil, &got)
	return got
}

// A process without the role write refuses the writes of its API's address, and not those of its console.
func TestInner_EveryRouteWhateverTheRoles(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.start()
	own, _ := h.keys()
	w := h.createWebhook("", "default", webhook.Settings{ContentPath: "$"})
	h.stop()
	h.set = func(c *Config) { c.Roles = Roles{RoleRead, RoleProjector, RolePipeline, RoleConsole} }
	h.start()
	h.wants(own, http.MethodPost, api+"/ingest", point{"content": "tea"}, http.StatusServiceUnavailable, "")
	holder, _, err := h.read.access.KeyByHash(t.Context(), auth.ProjectKey, secret.Hash(own))
	runtest.Must(t, err)
	_, caller, _, err := h.read.access.WebhookOf(t.Context(), holder.Project, w.ID)
	runtest.Must(t, err)
	answer, err := h.inner.Do(t.Context(), httpx.InnerCall{
		As: caller, Method: http.MethodPost, Path: api + "/webhooks/" + w.ID + "/console", Body: []byte("The kettle is new."),
	})
	if err != nil || answer.Status != http.StatusAccepted {
		t.Errorf("an event of the console: %+v, %v", answer, err)
	}
}
