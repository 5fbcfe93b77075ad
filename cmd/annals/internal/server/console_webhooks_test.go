package server

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/annals-project/annals/domain/webhook"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/webtest"
)

// furnishWebhook makes a webhook whose settings and events hold markup: one event is ingested and one dropped.
func (h *consoleHarness) furnishWebhook(key string) {
	h.t.Helper()
	name := "Tickets" + markup[:40]
	h.hook = h.createWebhook("", "default", webhook.Settings{
		Name: name, ContentPath: "$.text", IDPath: "$.id", Filters: []webhook.Filter{
			{Path: "$.kind", Operator: webhook.Contains, Values: []string{"note" + markup}}, filterOf(h.t, "$.text exists"),
		},
	})
	quoted := func(text string) string {
		encoded, err := json.Marshal(text)
		runtest.Must(h.t, err)
		return string(encoded)
	}
	body := func(rest string) string { return `{"kind":` + quoted("note"+markup) + rest + `}` }
	h.hookEvent = h.ingested(key, h.hook.URL, body(`,"id":`+quoted("t-1"+markup)+`,"text":`+quoted("The lift is broken."+markup)))
	dropped := h.event(h.hook.URL, strings.NewReader(body(``)))
	for _, r := range []received{h.hookEvent, dropped} {
		h.loggedAs(key, r.RequestID)
	}
}

// hooks is the path of the webhooks of the first project.
const hooks = "/p/default/webhooks"

// A member with the access Write makes a webhook, tries it on a sample, sends a test event, replays it, and ends it.
func TestConsole_WebhookFromCreationToDeletion(t *testing.T) {
	h := newStaff(t)
	r := h.as("write")
	r.Open(hooks)
	r.Follow("New webhook")
	page := r.Submit("Create", map[string]string{"Name": "Alarms", "Content path": "$.a..b"})
	if page.Status != http.StatusBadRequest || !strings.Contains(page.Find("[role=alert]").Text(), "content path: ") ||
		!strings.Contains(page.Find("[role=alert]").Text(), "character 4") {
		t.Fatalf("a wrong path: %d %s", page.Status, page.Text())
	}
	page = r.Submit("Create", map[string]string{
		"Content path": "$.text", "Occurred-at path": "$.at", "Id path": "$.id", "Filters": "$.level is high\n\n$.text exists\n",
	})
	if page.Status != http.StatusOK || !strings.Contains(page.Text(), "Created.") || page.Find("h1").Text() != "Alarms" {
		t.Fatalf("created: %d %s", page.Status, page.Text())
	}
	show := page.URL.Path
	url := webtest.Plain(page.Find(".copy code").First().Text())
	if !strings.Contains(page.Text(), "curl -sS '"+url+"'") || !strings.HasPrefix(url, h.urls.Console+"/api/v1/webhooks/whk_") {
		t.Errorf("no URL: %q", url)
	}

	dry := func(fields map[string]string) string {
		t.Helper()
		page := r.Submit("Try", fields)
		r.Answered(http.StatusOK)
		return webtest.Plain(page.Find("#dry").Text())
	}
	const sample = `{"id":"a-1","text":"The pump is hot.","at":1746349953,"level":"high"}`
	for body, want := range map[string][]string{
		sample: {
			"ingested", "matches $.level is high", "ContentThe pump is hot.", "Occurred at2025-05-04 09:12:33 UTC", "Ida-1",
			"Audiencethe whole project",
		},
		`{"level":"low"}`:               {"dropped by $.level is high", "does not match $.text exists"},
		`{"level":"high","text":"<i>"}`: {"Content<i>", "the time of receipt", "Idthat of the event"},
	} {
		if got := dry(map[string]string{"sample": body}); !containsAll(got, want) {
			t.Errorf("%s becomes %s, want %q", body, got, want)
		}
	}
	if got := dry(map[string]string{"Filters": "$.level above 3", "sample": sample}); !strings.Contains(got, "line 1 of the filters") {
		t.Errorf("a wrong filter: %s", got)
	}

	r.Open(show)
	event := h.settledEvent(r, r.Submit("Send test event", map[string]string{"sample": sample}))
	r.See("ingested", "test", "a-1", "annals-console", "The pump is hot.")
	first, by := event.URL.Path, "person:"+h.ids["write"].String()
	if _, meta := h.lastEvent("datapoint.revision-accepted.v1"); !strings.Contains(meta, by) {
		t.Errorf("who sent the test event is not recorded: %s", meta)
	}
	replayed := h.settledEvent(r, r.Submit("Replay", nil))
	if replayed.URL.Path == first || !strings.Contains(replayed.Text(), "The pump is hot.") ||
		replayed.Find("dd .tag").Text() != "ingestedreplay" {
		t.Errorf("the replay %s: %s", replayed.URL.Path, replayed.Text())
	}
	if _, meta := h.lastEvent("datapoint.resent.v1"); !strings.Contains(meta, by) {
		t.Errorf("who replayed the event is not recorded: %s", meta)
	}
	r.Open(show)
	if got := webtest.Plain(r.At.Find("#dry").Text()); !strings.Contains(got, "Body of the event"+sample) {
		t.Errorf("the last event is not the sample: %s", got)
	}
	if got := dry(map[string]string{"sample": `{"level":"low"}`}); !strings.Contains(got, "dropped by $.level is high") {
		t.Errorf("a pasted body is not the sample: %s", got)
	}
	for verdict, want := range map[string]int{"ingested": 2, "dropped": 0, "refused": 0, "": 2} {
		r.Open(show + "/events")
		if rows := r.Submit("Show", map[string]string{"Verdict": verdict}).Find("tbody tr").Length(); rows != want {
			t.Errorf("%d events are %s, want %d", rows, verdict, want)
		}
	}

	r.Open(show)
	r.Submit("Pause", nil)
	page = r.Submit("Send test event", map[string]string{"sample": sample})
	if page.Status != http.StatusConflict || !strings.Contains(page.Find("[role=alert]").Text(), "paused") {
		t.Errorf("a test while paused: %d %s", page.Status, page.Text())
	}
	r.Open(show)
	r.Submit("Resume", nil)
	page = r.Submit("Rotate the token", nil)
	r.See("replaced the address of the webhook", "created the webhook", h.mail("write"))
	rotated := webtest.Plain(page.Find(".copy code").First().Text())
	if rotated == url || h.event(rotated, strings.NewReader(sample)).status != http.StatusAccepted ||
		h.event(url, strings.NewReader(sample)).status != http.StatusNotFound {
		t.Errorf("rotated to %s", rotated)
	}
	if page = r.Submit("Delete the webhook", nil); !strings.Contains(page.Text(), "Deleted.") || strings.Contains(page.Text(), "Alarms") {
		t.Errorf("deleted: %s", page.Text())
	}
	h.get("write", show).want(t, http.StatusNotFound)
}

func containsAll(text string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}

// settledEvent opens the page of an event that was just sent until the log has it.
func (h *consoleHarness) settledEvent(r *webtest.Reader, sent webtest.Document) webtest.Document {
	h.t.Helper()
	if sent.Status != http.StatusOK || !strings.Contains(sent.URL.Path, "/events/") {
		h.t.Fatalf("sent: %d %s", sent.Status, sent.Text())
	}
	runtest.Await(h.t, "the event is in the log", func() bool {
		return !strings.Contains(r.Open(sent.URL.Path).Text(), "is being written")
	})
	return r.At
}

// hookPages are the pages of the webhook, below those of all.
func (h *consoleHarness) hookPages() []string {
	hook := "/" + h.hook.ID
	return []string{hook, hook + "/events", hook + "/events/" + h.hookEvent.RequestID.String()}
}

// Somebody with the access Read sees settings and events, but no URL and nothing that changes.
func TestConsole_WebhookForReaders(t *testing.T) {
	unraced(t)
	t.Parallel()
	h := seeConsole(t)
	_, token, _ := strings.Cut(h.hook.URL, h.hook.ID+"/")
	for _, role := range []string{"read", "write"} {
		r, seen := h.as(role), false
		for _, path := range append(h.hookPages(), "") {
			for _, format := range []string{"", "?format=json"} {
				page := r.Open(hooks + path + format)
				if page.Status != http.StatusOK {
					t.Errorf("%s opens %s: %d", role, path, page.Status)
				}
				seen = seen || strings.Contains(page.Body, token)
				if forms := page.Find("main form[method=post]").Length(); role == "read" && forms > 0 {
					t.Errorf("%s has %d forms on %s", role, forms, path)
				}
			}
		}
		if seen != (role == "write") {
			t.Errorf("%s sees the token: %v", role, seen)
		}
	}
	for _, path := range []string{
		"/whk_unknown", "/" + h.hook.ID + "/events/x", "/" + h.hook.ID + "/events/01a216df-1290-7354-8715-6837833f366a",
		"/whk_unknown/events/" + h.hookEvent.RequestID.String(),
	} {
		h.get("write", hooks+path).want(t, http.StatusNotFound)
	}
	for _, query := range []string{"?from=x", "?from=2026-01-01&to=2026-03-01", "?from=2026-01-02&to=2026-01-01", "?after=x"} {
		h.get("write", hooks+"/"+h.hook.ID+"/events"+query).want(t, http.StatusBadRequest)
	}
}

// A webhook belongs to its project: another project of the organization neither shows nor changes it.
func TestConsole_WebhookOfAnotherProject(t *testing.T) {
	h := newStaff(t)
	key, management := h.keys()
	h.furnishWebhook(key)
	h.must(management, http.MethodPost, api+"/projects", point{"name": "Other"}, nil)
	const other = "/p/other/webhooks"
	h.get("owner", other).want(t, http.StatusOK)
	for _, path := range h.hookPages() {
		h.get("owner", other+path).want(t, http.StatusNotFound)
	}
	r := h.as("owner")
	rows := r.Open("/p/default/webhooks").Find("tbody tr")
	if rows.Length() != 1 || !containsAll(webtest.Plain(rows.Text()), []string{"active", "the whole project", "1", "1", "0"}) {
		t.Errorf("the list has %s", webtest.Plain(rows.Text()))
	}
	h.removeAudienceOfHook(r)
}

// removeAudienceOfHook checks that a page shows why a webhook without its audience refuses everything.
func (h *consoleHarness) removeAudienceOfHook(r *webtest.Reader) {
	h.t.Helper()
	key, _ := h.keys()
	h.must(key, http.MethodPut, api+"/audiences/crew", point{"kind": "fixed", "identities": []string{"ana"}}, nil)
	r.Open(hooks + "/" + h.hook.ID)
	page := r.Submit("Save", map[string]string{"Audience": "crew"})
	if page.Status != http.StatusOK || strings.Contains(page.Text(), "was deleted") {
		h.t.Errorf("saved: %d %s", page.Status, page.Text())
	}
	h.must(key, http.MethodDelete, api+"/audiences/crew", nil, nil)
	r.Open(hooks + "/" + h.hook.ID)
	r.See("The audience crew was deleted")
	r.Submit("Save", nil)
	r.Answered(http.StatusBadRequest)
}

// An event whose body is not in the log as it came is neither a sample nor replayed, and its page has the reason.
func TestConsole_WebhookBodiesThatAreLost(t *testing.T) {
	h := newStaff(t)
	key, _ := h.keys()
	h.furnishWebhook(key)
	r := h.as("write")
	cut := h.event(h.hook.URL, strings.NewReader(`{"x":"`+strings.Repeat("x", 300<<10)+`"}`))
	h.loggedAs(key, cut.RequestID)
	h.must(key, http.MethodPost, api+"/data-points/delete", point{"ids": []string{"t-1" + markup}}, nil)
	for _, c := range []struct {
		event received
		why   string
	}{{cut, "the body was cut"}, {h.hookEvent, "no longer"}} {
		path := hooks + "/" + h.hook.ID + "/events/" + c.event.RequestID.String()
		h.get("write", path).want(t, http.StatusOK, "cannot be sent again", c.why).lacks(t, "The lift is broken")
		h.submit("write", path+"/replay").want(t, http.StatusConflict, c.why)
		h.get("write", path+"/body").want(t, http.StatusConflict, c.why)
		option := r.Open(hooks + "/" + h.hook.ID).Find("option[value='" + c.event.RequestID.String() + "']")
		if _, disabled := option.Attr("disabled"); !disabled || !strings.Contains(option.Text(), c.why) {
			t.Errorf("the sample is offered as %s", option.Text())
		}
		if page := r.Submit("Try", map[string]string{"event": c.event.RequestID.String()}); !strings.Contains(page.Find("#dry").Text(), c.why) {
			t.Errorf("tried: %s", page.Find("#dry").Text())
		}
	}
}
