package server

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/domain/webhook"
	"github.com/annals-project/annals/internal/tenants"
)

// createWebhook creates a webhook as an operator. "" is the only organization.
func (h *harness) createWebhook(organization, project string, s webhook.Settings) tenants.Webhook {
	h.t.Helper()
	if s.Name == "" {
		s.Name = "Tickets"
	}
	return h.onWebhook(operatorapi.CreateWebhook, operatorapi.WebhookRequest{
		Target: h.target(organization), Project: project, Settings: s,
	})
}

func (h *harness) onWebhook(
	do operatorapi.Operation[operatorapi.WebhookRequest, tenants.Webhook], in operatorapi.WebhookRequest,
) tenants.Webhook {
	h.t.Helper()
	in.By = "operator test"
	w, err := do.Call(h.t.Context(), operatorapi.Dial(h.dir), in)
	if err != nil {
		h.t.Fatal(err)
	}
	return w
}

func filterOf(t testing.TB, expression string) webhook.Filter {
	t.Helper()
	f, err := webhook.ParseFilter(expression)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// received is the answer to an event.
type received struct {
	status      int
	header      http.Header
	body        string
	EventID     string
	RequestID   uuid.UUID
	Verdict     string
	DroppedBy   *string
	IngestionID *uuid.UUID
	DataPointID *string
	Unchanged   *bool
	Code        string
	Data        map[string]any
}

// event sends an event. It does not end the test, so that any goroutine may call it.
func (h *harness) event(url string, body io.Reader, headers ...string) (r received) {
	h.t.Helper()
	req, err := http.NewRequestWithContext(context.WithoutCancel(h.t.Context()), http.MethodPost, url, body)
	if err != nil {
		h.t.Error(err)
		return r
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		h.t.Errorf("event: %v", err)
		return r
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err == nil && len(text) > 0 {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		h.t.Errorf("answer to an event: %v", err)
	}
	if id := res.Header.Get("X-Annals-Project"); id != "" {
		h.t.Errorf("the sender of an event learns the id of the project: %s", id)
	}
	r.status, r.header, r.body = res.StatusCode, res.Header, string(text)
	return r
}

// ingested sends an event that must be ingested, and waits until it is recalled.
func (h *harness) ingested(key, url, body string) received {
	h.t.Helper()
	r := h.event(url, strings.NewReader(body))
	if r.status != http.StatusAccepted || r.Verdict != "ingested" || r.DroppedBy != nil || r.IngestionID == nil ||
		r.DataPointID == nil || r.RequestID.String() != r.header.Get("X-Request-Id") || len(r.EventID) != len("evt_")+26 {
		h.t.Fatalf("event %.80s: %d %s", body, r.status, r.body)
	}
	h.sends[key] = append(h.sends[key], r.IngestionID.String())
	h.await(key, r.IngestionID.String(), "completed")
	return r
}

func (h *harness) refused(url, body string, status int, code string) received {
	h.t.Helper()
	r := h.event(url, strings.NewReader(body))
	if r.status != status || r.Code != code {
		h.t.Errorf("event %.80s: %d %s, want %d %s", body, r.status, r.body, status, code)
	}
	return r
}

// sources returns the sources of what a query finds.
func (h *harness) sources(key, query, identity string) (list []struct {
	SourceID   string
	OccurredAt string
	Metadata   map[string]any
},
) {
	h.t.Helper()
	var page struct {
		Results []struct {
			Sources []struct {
				SourceID   string
				OccurredAt string
				Metadata   map[string]any
			}
		}
	}
	h.must(key, http.MethodPost, api+"/recall", point{"query": query, "identity": identity}, &page)
	for _, r := range page.Results {
		list = append(list, r.Sources...)
	}
	return list
}

// manageWebhooks writes every event about webhooks, and lets some receive events.
func (h *harness) manageWebhooks(own string) {
	h.t.Helper()
	w := h.createWebhook("Annals", "default", webhook.Settings{ContentPath: "$.text", IDPath: "$.id", Audience: "team"})
	h.ingested(own, w.URL, `{"id":"hook","text":"The parcel from Braga is lost."}`)
	h.onWebhook(operatorapi.PauseWebhook, operatorapi.WebhookRequest{ID: w.ID, Pause: true})
	h.onWebhook(operatorapi.PauseWebhook, operatorapi.WebhookRequest{ID: w.ID})
	h.onWebhook(operatorapi.ChangeWebhook, operatorapi.WebhookRequest{
		ID: w.ID, Settings: webhook.Settings{Name: "Parcels", ContentPath: "$.text"},
	})
	w = h.onWebhook(operatorapi.RotateWebhook, operatorapi.WebhookRequest{ID: w.ID})
	h.ingested(own, w.URL, `{"text":"The parcel from Faro arrived."}`)
	gone := h.createWebhook("Annals", "default", webhook.Settings{ContentPath: "$"})
	h.onWebhook(operatorapi.DeleteWebhook, operatorapi.WebhookRequest{ID: gone.ID})
}
