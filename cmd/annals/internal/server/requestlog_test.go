package server

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/webhook"
	"github.com/annals-project/annals/internal/runtest"
)

// A source id is not listed from the moment that its deletion is acknowledged. This process has no pipeline, so nothing
// blanks it later.
func TestRequestLog_DeletedSourceIsNotListed(t *testing.T) {
	unraced(t)
	t.Parallel()
	h := newHarness(t)
	h.set = func(c *Config) { c.Roles = Roles{RoleWrite, RoleRead, RoleProjector} }
	h.start()
	own, _ := h.keys()
	const secret = "letter-to-ana"
	h.must(own, http.MethodPost, api+"/ingest", point{"id": secret, "content": "Ana likes tea."}, nil)
	h.wants(own, http.MethodDelete, api+"/data-points/other-"+secret, nil, http.StatusNotFound, "data-point-not-found")
	h.must(own, http.MethodDelete, api+"/data-points/"+secret, nil, nil)
	var list struct {
		Requests []struct{ Method, Path string }
	}
	runtest.Await(t, "both deletions are in the log", func() bool {
		h.must(own, http.MethodGet, api+"/requests?endpoint=DELETE+/api/v1/data-points/%7BsourceId%7D", nil, &list)
		return len(list.Requests) == 2
	})
	if got := list.Requests[0].Path; got != api+"/data-points/{sourceId}" {
		t.Errorf("the deletion is listed as %s", got)
	}
	if got := list.Requests[1].Path; got != api+"/data-points/other-"+secret {
		t.Errorf("the deletion of an unknown id is listed as %s", got)
	}
}

// The body of a refused send leaves the log with each data point that it carried, whatever was wrong with it.
func TestRequestLog_BodyOfRefusedSend(t *testing.T) {
	unraced(t)
	t.Parallel()
	h := newTenant(t)
	own, _ := h.keys()
	var refused []string
	for path, bodies := range map[string][]point{
		"/ingest": {{"id": "a", "content": "Ana likes tea.", "audiance": "board"}},
		"/ingest/batch": {
			{"idempotncyKey": "k", "items": []point{{"id": "b", "content": "x"}, {"id": "a", "content": "Ana likes tea."}}},
			{"items": []point{{"id": "b", "content": "x", "audiance": "board"}, {"id": "a", "content": "Ana likes tea."}}},
			{"items": []any{7, point{"id": "a", "content": "Ana likes tea."}}},
		},
	} {
		for _, body := range bodies {
			status, header, answer := h.callWithHeader(own, http.MethodPost, api+path, body)
			if status != http.StatusBadRequest {
				t.Errorf("%v: %d %s", body, status, answer)
			}
			refused = append(refused, header.Get("X-Request-Id"))
		}
	}
	payload := func(id string) (detail struct{ Payload *struct{ Request string } }) {
		runtest.Await(t, "the call is in the log", func() bool {
			status, answer := h.call(own, http.MethodGet, api+"/requests/"+id, nil)
			return status == http.StatusOK && json.Unmarshal(answer, &detail) == nil
		})
		return detail
	}
	for _, id := range refused {
		if got := payload(id).Payload; got == nil || !strings.Contains(got.Request, "Ana likes tea.") {
			t.Errorf("the log has %+v of a refused send", got)
		}
	}
	h.send(own, "/ingest", "completed", point{"id": "a", "content": "Ana likes tea."})
	h.must(own, http.MethodDelete, api+"/data-points/a", nil, nil)
	for _, id := range refused {
		if got := payload(id).Payload; got != nil {
			t.Errorf("after the deletion the log has %+v of a refused send", got)
		}
	}
}

// Whatever spelling of the path of a webhook comes with a key of the project, the token is in no row.
func TestRequestLog_NoTokenInAnySpelling(t *testing.T) {
	unraced(t)
	t.Parallel()
	h := newTenant(t)
	own, _ := h.keys()
	w := h.createWebhook("", "default", webhook.Settings{Name: "CI", ContentPath: "$.text"})
	base, token, _ := strings.Cut(w.URL, "/webhooks/"+w.ID+"/")
	escaped := func(format func(byte) string) (all string) {
		for _, b := range []byte(token) {
			all += format(b)
		}
		return all
	}
	upper := escaped(func(b byte) string { return "%" + string("0123456789ABCDEF"[b>>4]) + string("0123456789ABCDEF"[b&15]) })
	id := w.ID
	paths := []string{
		"/%77ebhooks/" + id + "/" + token, "/%77%65%62hooks/" + id + "/" + token, "/WEBHOOKS/" + id + "/" + token,
		"/webhooks/" + id + "%2F" + token, "/webhooks%2F" + id + "/" + token, "/webhooks%2f" + id + "%2f" + token,
		"//webhooks/" + id + "/" + token, "/webhooks//" + id + "/" + token, "/webhooks/" + id + "//" + token,
		"/webhooks/" + id + "/" + token + "/", "/webhooks/" + id + "/" + token + "/x", "/webhooks/" + id + "/" + token + "%2F",
		"/webhooks/" + id + "/" + upper, "/webhooks/" + id + "/" + strings.ToLower(upper), "/%77ebhooks/" + id + "/" + upper,
		"/./webhooks/" + id + "/" + token, "/x/../webhooks/" + id + "/" + token, "/" + token,
	}
	asked := 0
	for _, path := range paths {
		for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodPut} {
			for _, at := range slices.Compact([]string{h.urls.API + api, base}) {
				h.fetch(method, at+path, own, "")
				asked++
			}
		}
	}
	last, err := uuid.Parse(h.fetch(http.MethodGet, h.urls.API+api+"/audiences", own, "").header.Get("X-Request-Id"))
	runtest.Must(t, err)
	h.loggedAs(own, last) // and so are the calls before it
	rows, err := h.storage.db.Query(t.Context(), `select r.path, r::text || coalesce(convert_from(substr(p.response, 2), 'UTF8'), '')
		from ops.requests r left join ops.request_payloads p using (project_id, received_at, request_id)
		where project_id = $1`, h.projectID("default"))
	runtest.Must(t, err)
	defer rows.Close()
	read := 0
	for rows.Next() {
		var path, text string
		runtest.Must(t, rows.Scan(&path, &text))
		if read++; strings.Contains(text, token) || strings.Contains(strings.ToUpper(text), strings.ToUpper(upper)) {
			t.Errorf("a row holds the token, its path is %s", path)
		}
	}
	runtest.Must(t, rows.Err())
	if read < asked/4 {
		t.Errorf("only %d rows of %d calls", read, asked)
	}
}
