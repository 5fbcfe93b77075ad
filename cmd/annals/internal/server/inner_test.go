package server

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/domain/fault"
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

// A person at the console recalls as the API does: the same answer, with a row whose key is the console.
func TestInner_Recall(t *testing.T) {
	h := newTenant(t)
	own, _ := h.keys()
	h.send(own, "/ingest", "completed", point{"id": "tea", "content": "The tea is in the blue tin.", "identity": "ana"})
	holder, ok, err := h.read.access.KeyByHash(t.Context(), auth.ProjectKey, secret.Hash(own))
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	p := holder.Principal
	p.Kind, p.KeyID, p.KeyName, p.KeyPrefix = auth.Person, uuid.New(), auth.ConsoleName, ""
	recall := func(body string) (httpx.InnerAnswer, error) {
		return h.inner.Do(t.Context(), httpx.InnerCall{
			As: p, Method: http.MethodPost, Path: api + "/recall", ContentType: "application/json", Body: []byte(body),
		})
	}
	const body = `{"query":"where is the tea?","identity":"ana"}`
	answer, err := recall(body)
	if err != nil || !strings.Contains(string(answer.Body), "blue tin") {
		t.Fatalf("%s, %v", answer.Body, err)
	}
	row := h.loggedAs(own, answer.RequestID)
	if row.Key.Name != "console" || row.Key.Prefix != "" || row.Identity == nil || *row.Identity != "ana" ||
		row.Payload == nil || row.Payload.Request != body || row.Payload.Response != string(answer.Body) {
		t.Errorf("row %+v", row)
	}
	_, err = recall(`{"query":" ","identity":"ana"}`)
	if f, is := errors.AsType[*fault.Error](err); !is || f.Code != fault.CodeRecallQueryRequired {
		t.Errorf("a blank query: %v", err)
	}
}

// An event that a person sends takes the way of every event: it is ingested, and its row has the mark of a test.
func TestInner_Event(t *testing.T) {
	h := newTenant(t)
	own, _ := h.keys()
	w := h.createWebhook("", "default", webhook.Settings{ContentPath: "$.text", IDPath: "$.id"})
	send := func(body string, test bool) (received, httpx.InnerAnswer, error) {
		holder, _, err := h.read.access.KeyByHash(t.Context(), auth.ProjectKey, secret.Hash(own))
		runtest.Must(t, err)
		_, caller, ok, err := h.read.access.WebhookOf(t.Context(), holder.Project, w.ID)
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		answer, err := h.inner.Do(context.WithoutCancel(t.Context()), httpx.InnerCall{
			As: caller, Method: http.MethodPost, Path: api + "/webhooks/" + w.ID + "/console", Body: []byte(body), Test: test,
		})
		var r received
		if err == nil {
			runtest.Must(t, json.Unmarshal(answer.Body, &r))
		}
		return r, answer, err
	}
	for body, verdict := range map[string]string{
		`{"id":"t-1","text":"The test of the marigolds."}`: "ingested", `{"id":"t-2"}`: "dropped",
	} {
		r, answer, err := send(body, true)
		if err != nil || r.Verdict != verdict || r.RequestID != answer.RequestID {
			t.Fatalf("%s: %+v, %v", body, r, err)
		}
		if verdict == "ingested" {
			h.await(own, r.IngestionID.String(), "completed")
		}
		row := h.loggedAs(own, answer.RequestID)
		if row.Key.Prefix != w.ID || row.Path != api+"/webhooks/"+w.ID || row.Webhook == nil || !row.Webhook.Test ||
			row.Webhook.Verdict != verdict || row.Payload == nil || row.Payload.Request != body {
			t.Errorf("row %+v", row)
		}
	}
	if found := h.sources(own, "marigolds", "ana"); len(found) == 0 || found[0].SourceID != "t-1" {
		t.Errorf("recalled %+v", found)
	}
	if _, answer, err := send(`{"text":"again"}`, false); err != nil {
		t.Error(err)
	} else if row := h.loggedAs(own, answer.RequestID); row.Webhook.Test {
		t.Errorf("row %+v", row.Webhook)
	}
	h.onWebhook(operatorapi.PauseWebhook, operatorapi.WebhookRequest{ID: w.ID, Pause: true})
	_, _, err := send(`{"text":"late"}`, true)
	if f, is := errors.AsType[*fault.Error](err); !is || f.Code != fault.CodeWebhookPaused {
		t.Errorf("while paused: %v", err)
	}
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
	if status, _ := h.call(own, http.MethodPost, api+"/ingest", point{"content": "tea"}); status != http.StatusServiceUnavailable {
		t.Errorf("the API's address answers a write with %d", status)
	}
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
