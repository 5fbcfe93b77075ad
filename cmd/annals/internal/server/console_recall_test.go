package server

import (
	"net/http"
	"strings"
	"testing"

	"github.com/PuerkitoBio/goquery"

	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/webtest"
)

// rowsOfConsole counts the calls of the console in the request log.
func (h *consoleHarness) rowsOfConsole() int {
	h.t.Helper()
	key, _ := h.keys()
	var list struct{ TotalCount int }
	h.must(key, http.MethodGet, api+"/requests?keyName=console", nil, &list)
	return list.TotalCount
}

// Somebody with the access Read asks as an identity, shares the question, and learns why a source is there or not. A
// link asks nothing, and each question has its row in the request log.
func TestConsole_Recall(t *testing.T) {
	unraced(t)
	t.Parallel()
	h := newConsole(t)
	key, _ := h.keys()
	for id, text := range map[string]string{"move-1": "My favourite city is Lyon.", "move-2": "My favourite city is Porto."} {
		h.send(key, "/ingest", "completed", point{
			"id": id, "content": text, "identity": "gil", "timestamp": "2026-0" + id[5:] + "-01T00:00:00Z",
		})
	}
	r := h.as("read")
	page := r.Open("/p/default/recall?query=Is+it+gil%27s+favourite+city+Lyon%3F&identity=gil&limit=5&level=medium")
	if page.Find("article").Length() != 0 || page.Find("#query").AttrOr("value", "") != "Is it gil's favourite city Lyon?" {
		t.Errorf("a shared question: %s", page.Text())
	}
	page = r.Submit("Recall", nil)
	text := page.Text()
	if page.Status != http.StatusOK || page.Find("article").Length() < 3 || page.Find("mark").Length() == 0 ||
		!containsAll(text, []string{"superseded", "of 16,000 tokens", "Lyon", "Porto", "Open in trace"}) {
		t.Fatalf("answered: %d %s", page.Status, text)
	}
	curl := webtest.Plain(page.Find("pre.copy").Text())
	if !containsAll(curl, []string{`Bearer $ANNALS_PROJECT_KEY`, `gil'\''s`, `"limit":5`}) || strings.Contains(page.Body, "svc_") {
		t.Errorf("as a command: %s", curl)
	}
	if link := page.Find("a").FilterFunction(func(_ int, a *goquery.Selection) bool { return a.Text() == "Link to this question" }).
		AttrOr("href", ""); !strings.Contains(link, "level=medium") || r.Open(link).Find("article").Length() != 0 {
		t.Errorf("the link is %s", link)
	}
	runtest.Await(t, "the question is logged", func() bool { return h.rowsOfConsole() == 1 })
	call := page.URL.RequestURI()
	if !strings.HasPrefix(call, "/p/default/recall?call=") || len(call) != len("/p/default/recall?call=")+36 {
		t.Errorf("the address of the answer is %s", call)
	}
	for range 2 {
		later := r.Open(call)
		if later.Find("article").Length() != page.Find("article").Length() ||
			later.Find("#query").AttrOr("value", "") != "Is it gil's favourite city Lyon?" {
			t.Errorf("the answer later: %d %s", later.Status, later.Text())
		}
	}
	if n := h.rowsOfConsole(); n != 1 {
		t.Errorf("to look at an answer asks again: %d questions", n)
	}
	h.exec(`delete from ops.request_payloads where project_id = $1`, h.projectID("default"))
	if gone := r.Open(call); gone.Status != http.StatusOK || gone.Find("article").Length() != 0 ||
		!containsAll(gone.Text(), []string{"is not stored, or no longer", "ask again with the form above"}) {
		t.Errorf("without the stored answer: %d %s", gone.Status, gone.Text())
	}
	for _, path := range []string{"/p/default/recall?call=none", "/p/default/recall?call=" + h.hook.ID} {
		if got := r.Open(path); got.Status != http.StatusNotFound {
			t.Errorf("%s is answered %d", path, got.Status)
		}
	}
	if calls := r.Open("/p/default/requests").Text(); !strings.Contains(calls, "console "+h.mail("read")) {
		t.Errorf("the request log does not name who asked: %s", calls)
	}

	r.Open("/p/default/recall")
	page = r.Submit("Explain", map[string]string{
		"Question": "What may the launch cost?", "As identity": "ben" + markup, "Source ids": "budget" + markup + "\nnote-01" + markup + "\nnowhere",
	})
	if text := page.Text(); page.Status != http.StatusOK || !containsAll(text, []string{"not readable, audience not reached", "nowhere: not stored", "Readable by"}) {
		t.Errorf("explained: %d %s", page.Status, text)
	}
	for _, c := range []struct{ field, value, message string }{
		{"query", " ", "query is required"},
		{"identity", "", "identity is required"},
		{"limit", "many", "limit"},
		{"limit", "201", "limit"},
		{"maxTokens", "5", "level or maxTokens"},
		{"occurredTo", "2020-01-01", "occurredFrom is after"},
		{"sort", "random", "sort"},
	} {
		for _, button := range []string{"Recall", "Explain"} {
			r.Open("/p/default/recall?query=tea&identity=ana&level=high&occurredFrom=2025-01-01")
			page := r.Submit(button, map[string]string{c.field: c.value})
			if page.Status != http.StatusBadRequest || !strings.Contains(page.Find("[role=alert]").Text(), c.message) {
				t.Errorf("%s with %s=%q: %d %s", button, c.field, c.value, page.Status, page.Find("[role=alert]").Text())
			}
		}
	}
	runtest.Await(t, "the refused questions are logged too", func() bool { return h.rowsOfConsole() == 8 })
}

// Texts, ids and labels that hold markup are text in an answer and in an explanation.
func TestConsole_RecalledMarkupIsText(t *testing.T) {
	unraced(t)
	t.Parallel()
	h := newConsole(t)
	r := h.as("read")
	for _, button := range []string{"Recall", "Explain"} {
		r.Open("/p/default/recall")
		page := r.Submit(button, map[string]string{
			"Question": "Which editor? " + markup, "As identity": "ben" + markup, "Source ids": "editor" + markup,
		})
		if page.Status != http.StatusOK || page.Find("zebra-x").Length() > 0 || page.Find("main script").Length() > 0 ||
			!strings.Contains(page.Text(), "Helix") || !strings.Contains(page.Text(), "<zebra-x") {
			t.Errorf("%s: %d %s", button, page.Status, page.Text())
		}
	}
}
