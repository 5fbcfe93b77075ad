package server

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/webhook"
	"github.com/annals-project/annals/internal/runtest"
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
	runtest.Must(h.t, err)
	return w
}

func filterOf(t testing.TB, expression string) webhook.Filter {
	t.Helper()
	f, err := webhook.ParseFilter(expression)
	runtest.Must(t, err)
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
	return h.event(url, strings.NewReader(body)).want(h.t, status, code)
}

// want checks the status, and the code of a refusal, "" for none.
func (r received) want(t testing.TB, status int, code string) received {
	t.Helper()
	if r.status != status || r.Code != code {
		t.Errorf("an event is answered %d %s, want %d %s", r.status, r.body, status, code)
	}
	return r
}

// source is a source of a result.
type source struct {
	SourceID, OccurredAt string
	Metadata             map[string]any
}

// sources returns the sources of what a query finds.
func (h *harness) sources(key, query, identity string) (list []source) {
	h.t.Helper()
	var page struct{ Results []struct{ Sources []source } }
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

func TestWebhook_Events(t *testing.T) {
	h := newTenant(t)
	own, _ := h.keys()
	h.must(own, http.MethodPut, api+"/audiences/team", point{"kind": "fixed", "identities": []string{"ana"}}, nil)
	w := h.createWebhook("", "default", webhook.Settings{
		ContentPath: "$.text", OccurredAtPath: "$.at", IDPath: "$.id", Audience: "team",
		Filters: []webhook.Filter{
			filterOf(t, "$.type is note"), filterOf(t, "$.level is-any-of 1 2"), filterOf(t, "$.tags contains x"), filterOf(t, "$.who exists"),
		},
	})
	const rest = `"type":"note","level":2,"tags":["x"],"who":{}}`
	first := h.ingested(own, w.URL, `{"id":"n-1","text":"The marigolds need water.","at":"2025-05-04T09:12:33Z",`+rest)
	if *first.DataPointID != "n-1" || first.Unchanged != nil {
		t.Errorf("answer %s", first.body)
	}
	found := h.sources(own, "marigolds", "ana")
	if len(found) == 0 || found[0].SourceID != "n-1" || found[0].Metadata["source"] != "webhook" ||
		found[0].Metadata["webhookId"] != w.ID || len(found[0].Metadata) != 2 || found[0].OccurredAt != "2025-05-04T09:12:33Z" {
		t.Errorf("recalled %+v", found)
	}
	if found := h.sources(own, "marigolds", "bo"); len(found) > 0 {
		t.Errorf("recalled by one who is not in the audience: %+v", found)
	}
	// Mapped, a repeated event is unchanged; without a time it is a new revision.
	if again := h.event(w.URL, strings.NewReader(
		`{"id":"n-1","text":"The marigolds need water.","at":1746349953,`+rest)); again.status != http.StatusAccepted ||
		again.Unchanged == nil || !*again.Unchanged || *again.DataPointID != "n-1" {
		t.Errorf("again: %d %s", again.status, again.body)
	} else if e := h.explain(own, again.IngestionID.String()); e.Phase != "nothing-changed" || e.Status != http.StatusAccepted {
		t.Errorf("again, explained: %+v, want status %d as it was answered", e, again.status)
	}
	if later := h.ingested(own, w.URL, `{"id":"n-1","text":"The marigolds need water.",`+rest); later.Unchanged != nil {
		t.Errorf("without a time: %s", later.body)
	}
	if other := h.ingested(own, w.URL, `{"text":1.50,`+rest); *other.DataPointID != other.EventID {
		t.Errorf("without an id: %s", other.body)
	}
	for body, by := range map[string]string{
		`{"text":"a",` + strings.Replace(rest, "note", "Note", 1): "$.type is note",
		`{"text":" ",` + rest: webhook.NoContent,
		`plain text`:          "$.type is note",
		``:                    "$.type is note",
	} {
		r := h.event(w.URL, strings.NewReader(body))
		if r.status != http.StatusOK || r.Verdict != "dropped" || r.DroppedBy == nil || *r.DroppedBy != by ||
			r.IngestionID != nil || r.DataPointID != nil || r.Unchanged != nil || r.EventID == "" {
			t.Errorf("event %s: %d %s, want dropped by %s", body, r.status, r.body, by)
		}
	}
	// Any media type, on both addresses, whatever the Authorization header.
	whole := h.createWebhook("", "default", webhook.Settings{ContentPath: "$"})
	for _, url := range []string{whole.URL, strings.Replace(whole.URL, h.urls.Console, h.urls.API, 1)} {
		h.event(url, strings.NewReader("payload=%7B%7D"), "Content-Type", "application/x-www-form-urlencoded",
			"Authorization", "Basic abc").want(t, http.StatusAccepted, "")
	}
	h.fetch(http.MethodGet, h.urls.Console+api+"/projects", own, "").want(t, http.StatusNotFound) // not of the console
}

func TestWebhook_Refusals(t *testing.T) {
	h := newTenant(t)
	own, _ := h.keys()
	h.must(own, http.MethodPut, api+"/audiences/team", point{"kind": "fixed", "identities": []string{"ana"}}, nil)
	w := h.createWebhook("", "default", webhook.Settings{ContentPath: "$.text", IDPath: "$.id", Audience: "team"})
	other := h.createWebhook("", "default", webhook.Settings{ContentPath: "$"})
	base, token, _ := strings.Cut(w.URL, w.ID+"/")
	_, otherToken, _ := strings.Cut(other.URL, other.ID+"/")

	var bodies []string
	for _, path := range []string{
		w.ID + "/" + otherToken, other.ID + "/" + token, "whk_unknown/" + token, w.ID + "/" + token[:31], w.ID + "/" + token + "x",
		w.ID + "/%00", "%ff/" + token, strings.ToLower(w.ID) + "/" + token, w.ID + "/" + strings.Repeat("x", 5000),
	} {
		r := h.refused(base+path, `{"text":"a"}`, http.StatusNotFound, "not-found")
		bodies = append(bodies, r.body)
	}
	if len(slices.Compact(bodies)) != 1 {
		t.Errorf("several answers to wrong ids and tokens: %q", slices.Compact(bodies))
	}
	h.fetch(http.MethodGet, w.URL, "", "").want(t, http.StatusMethodNotAllowed)
	h.event(w.URL, strings.NewReader(`{"text":"a"}`), "Origin", "https://example.com").
		want(t, http.StatusForbidden, "cors-refused")

	// The body has at most 1 MiB, announced or not.
	exact := strings.Repeat("é", limit.WebhookBody/2)
	h.event(other.URL, strings.NewReader(exact)).want(t, http.StatusAccepted, "")
	h.event(other.URL, io.MultiReader(strings.NewReader(exact))).want(t, http.StatusAccepted, "")
	for _, body := range []io.Reader{strings.NewReader(exact + "x"), io.MultiReader(strings.NewReader(exact + "x"))} {
		r := h.event(other.URL, body).want(t, http.StatusRequestEntityTooLarge, "webhook-body-too-large")
		if r.Data["limitBytes"] != float64(limit.WebhookBody) {
			t.Errorf("more than 1 MiB: %s", r.body)
		}
	}
	h.event(other.URL, strings.NewReader("x"), "Content-Encoding", "gzip").
		want(t, http.StatusUnsupportedMediaType, "unsupported-media-type")

	h.ingested(own, w.URL, `{"id":"gone","text":"A note."}`)
	h.must(own, http.MethodDelete, api+"/data-points/gone", nil, nil)
	h.refused(w.URL, `{"id":"gone","text":"A note."}`, http.StatusConflict, "data-point-deleted")

	h.onWebhook(operatorapi.PauseWebhook, operatorapi.WebhookRequest{ID: w.ID, Pause: true})
	h.refused(w.URL, `{"id":"paused","text":"A note."}`, http.StatusConflict, "webhook-paused")
	h.setArchived("", "default", true)
	h.refused(w.URL, strings.Repeat("x", limit.WebhookBody+1), http.StatusConflict, "webhook-paused")
	h.onWebhook(operatorapi.PauseWebhook, operatorapi.WebhookRequest{ID: w.ID})
	h.refused(w.URL, strings.Repeat("x", limit.WebhookBody+1), http.StatusForbidden, "project-archived")
	h.setArchived("", "default", false)
	h.ingested(own, w.URL, `{"id":"back","text":"A note."}`)

	h.must(own, http.MethodDelete, api+"/audiences/team", nil, nil)
	if r := h.refused(w.URL, `{"id":"lost","text":"A note."}`, http.StatusBadRequest, "audience-unknown"); r.Data["audience"] != "team" {
		t.Errorf("a deleted audience: %s", r.body)
	}
	h.onWebhook(operatorapi.ChangeWebhook, operatorapi.WebhookRequest{
		ID: w.ID, Settings: webhook.Settings{Name: "Notes", ContentPath: "$.text"},
	})
	if r := h.ingested(own, w.URL, `{"id":"lost","text":"A note."}`); *r.DataPointID != r.EventID {
		t.Errorf("after the change: %s", r.body)
	}
}

// At most 600 events of a webhook are taken in a minute. What is refused has no body and no row.
func TestWebhook_TooManyEvents(t *testing.T) {
	h := newTenant(t)
	own, _ := h.keys()
	w := h.createWebhook("", "default", webhook.Settings{ContentPath: "$.text", Filters: []webhook.Filter{filterOf(t, "$.a exists")}})
	other := h.createWebhook("", "default", webhook.Settings{ContentPath: "$"})
	taken, refused := 0, 0
	for refused < 50 {
		r := h.event(w.URL, strings.NewReader("{}"))
		switch r.status {
		case http.StatusOK:
			taken++
		case http.StatusTooManyRequests:
			refused++
			if r.body != "" || r.header.Get("Retry-After") == "" {
				t.Fatalf("refused with %q, Retry-After %q", r.body, r.header.Get("Retry-After"))
			}
		default:
			t.Fatalf("%d %s", r.status, r.body)
		}
	}
	if taken < limit.WebhookEvents*95/100 || taken > limit.WebhookEvents {
		t.Errorf("%d events were taken", taken)
	}
	h.event(other.URL, strings.NewReader("x")).want(t, http.StatusAccepted, "")
	runtest.Await(t, "all taken events are logged", func() bool {
		var list struct{ TotalCount int }
		h.must(own, http.MethodGet, api+"/requests?outcome=Accepted", nil, &list)
		return list.TotalCount == taken+1
	})
}

// A webhook writes into its own project only.
func TestWebhook_Neighbours(t *testing.T) {
	h := newTenant(t)
	own, _ := h.keys()
	acme := h.createAcme()
	h.setPlan("Acme", "flex")
	theirs := h.newProject(acme.ManagementKey, "Default")
	mine := h.createWebhook("Annals", "default", webhook.Settings{ContentPath: "$.text", IDPath: "$.id"})
	foreign := h.createWebhook("Acme", "default", webhook.Settings{ContentPath: "$.text", IDPath: "$.id"})
	h.ingested(own, mine.URL, `{"id":"same","text":"The orchids are mine."}`)
	h.ingested(theirs, foreign.URL, `{"id":"same","text":"The orchids are theirs."}`)
	for key, other := range map[string]string{own: foreign.ID, theirs: mine.ID} {
		found := h.sources(key, "orchids", "ana")
		if len(found) != 1 || found[0].Metadata["webhookId"] == other {
			t.Errorf("recalled %+v", found)
		}
	}
}

// chargesEvents checks the prices of events under a metered plan, and the limits that refuse them. It restarts the
// service.
func (h *harness) chargesEvents() {
	t := h.t
	t.Helper()
	acme := h.createAcme()
	key := h.newProject(acme.ManagementKey, "Default")
	mapped := webhook.Settings{
		ContentPath: "$.text", IDPath: "$.id", OccurredAtPath: "$.at", Filters: []webhook.Filter{filterOf(t, "$.text exists")},
	}
	w := h.createWebhook("Acme", "default", mapped)
	h.refused(w.URL, `{"text":"a"}`, http.StatusPaymentRequired, "webhooks-not-included")
	h.setPlan("Acme", "flex")
	credits := func(want, ingestions float64) {
		t.Helper()
		if u := h.usage(key).Project; u["credits"] != want || u["ingestions"] != ingestions {
			t.Errorf("usage %v, want %v credits for %v ingestions", u, want, ingestions)
		}
	}
	credits(0, 0)
	body := `{"id":"a","at":0,"text":"` + strings.Repeat("x", 400) + `"}`
	first := h.ingested(key, w.URL, body)
	credits(2.1, 1)
	if r := h.event(w.URL, strings.NewReader(body)); r.Unchanged == nil {
		t.Errorf("again: %s", r.body)
	}
	credits(2.2, 1)
	if r := h.event(w.URL, strings.NewReader(`{}`)); r.Verdict != "dropped" {
		t.Errorf("dropped: %s", r.body)
	}
	credits(2.3, 1)
	var call struct{ Credits float64 }
	runtest.Await(t, "the row is written", func() bool {
		status, answer := h.call(key, http.MethodGet, api+"/requests/"+first.RequestID.String(), nil)
		return status == http.StatusOK && json.Unmarshal(answer, &call) == nil
	})
	if call.Credits != 2.1 {
		t.Errorf("the row of the event shows %v credits", call.Credits)
	}

	// What is refused costs nothing, also the tenth of the event.
	h.setCaps("Acme", "default", new(int64(1)), nil)
	h.refused(w.URL, `{"id":"b","at":0,"text":"x"}`, http.StatusTooManyRequests, "project-cap-reached")
	credits(2.3, 1)

	// After a flush and a restart the figures are the same.
	runtest.Must(t, h.background.metering.Flush(t.Context()))
	credits(2.3, 1)
	h.stop()
	h.start()
	credits(2.3, 1)
}
