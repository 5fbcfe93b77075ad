package server

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/PuerkitoBio/goquery"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/webtest"
)

// rowsOf are the rows of the table of the page in a region.
func rowsOf(r *webtest.Reader, region string) *goquery.Selection {
	return r.At.Find(fmt.Sprintf("main [aria-label=%q] tbody tr", region))
}

func TestConsole_RequestsAreFilteredAndShown(t *testing.T) {
	h := newStaff(t)
	key, _ := h.keys()
	long := strings.Repeat("A sentence that makes the text long. ", 3000)
	h.send(key, "/ingest", "completed", map[string]any{"id": "long", "content": long})
	h.call(key, http.MethodGet, "/api/v1/identities/nobody", nil)
	r := h.as("read")
	r.Open("/p/default/requests?search=nothing-like-it")
	r.See("No call matches")
	r.Open("/p/default/requests?from=yesterday")
	r.Answered(http.StatusBadRequest)
	r.See("want an ISO 8601 instant")

	runtest.Await(t, "the calls are logged", func() bool {
		var calls client.RequestList
		h.must(key, http.MethodGet, "/api/v1/requests?status=404", nil, &calls)
		return calls.TotalCount >= 1
	})
	r.Open("/p/default/requests")
	r.Follow("404")
	r.Submit("Filter", map[string]string{"Status": "4xx", "Code": ""})
	rowsOf(r, "Requests").Each(func(_ int, row *goquery.Selection) {
		if !strings.Contains(row.Text(), "Rejected") {
			t.Errorf("a call that was accepted: %s", webtest.Plain(row.Text()))
		}
	})

	all := rowsOf(r, "Requests").Length()
	bar, _ := r.At.Find(".chart a.bar").Last().Attr("href")
	r.Open(bar)
	if n, window := rowsOf(r, "Requests").Length(), r.At.URL.Query(); n == 0 || n > all || window.Get("from") == "" ||
		window.Get("to") == "" || window.Get("statusClass") != "4xx" {
		t.Errorf("a bar leads to %d of %d calls at %s", n, all, r.At.URL)
	}
	if cells := r.At.Find(".chart-table tbody tr").Length(); cells != r.At.Find(".chart a.bar").Length() || cells == 0 {
		t.Errorf("the table of the chart has %d rows", cells)
	}

	r.Open("/p/default/requests?endpoint=POST+/api/v1/ingest&search=long")
	r.Request(http.MethodGet, hrefOf(r, rowsOf(r, "Requests").First()), nil, "same-origin")
	r.See("Nothing: recall finds what was sent.")
	if shown := len(r.At.Find("main pre").First().Text()); shown != 64<<10 {
		t.Errorf("the page shows %d bytes of the body", shown)
	}
	whole := r.Follow("The whole as a file")
	if !strings.Contains(whole.Body, long) || whole.Header.Get("Content-Type") != "text/plain; charset=utf-8" ||
		!strings.HasPrefix(whole.Header.Get("Content-Disposition"), "attachment") {
		t.Errorf("the whole body has %d bytes as %q", len(whole.Body), whole.Header)
	}
}

// hrefOf is where the first link of a part of the page leads.
func hrefOf(r *webtest.Reader, part *goquery.Selection) *url.URL {
	target, err := r.At.URL.Parse(part.Find("a").First().AttrOr("href", ""))
	if err != nil {
		return r.At.URL
	}
	return target
}

func TestConsole_TraceBeginsAtMemoriesAndSources(t *testing.T) {
	h := newStaff(t)
	key, _ := h.keys()
	h.send(key, "/ingest/batch", "completed", point{"items": []point{
		{"id": "move", "content": "Ana moved to Rome."}, {"id": "walnut-07", "content": "The walnut order was sent."},
	}})
	r := h.as("read")
	r.Open("/p/default")
	r.Follow("Trace")
	if kind := webtest.Plain(rowsOf(r, "Nodes").First().Find("td").Eq(1).Text()); kind == "source" || kind == "" {
		t.Errorf("the page begins with a %s", kind)
	}
	r.Submit("Search", map[string]string{"Begin at": "sources", "Words or an id": "walnut-07"})
	if n := rowsOf(r, "Nodes").Length(); n != 1 {
		t.Errorf("an id finds %d sources", n)
	}
	r.Follow("The walnut order was sent.")
	r.See("walnut-07, revision 1")
	r.Open("/p/default/trace?search=nothing-like-it")
	r.See("Nothing matches.")
	for _, bad := range []string{"ingestionId=x", "after=x"} {
		h.get("read", "/p/default/trace?"+bad).want(t, http.StatusBadRequest)
	}
}

func TestConsole_TraceFollowsAMemoryToItsSource(t *testing.T) {
	unraced(t)
	t.Parallel()
	h := seeConsole(t)
	r := h.as("read")
	r.Open("/p/default/trace/" + h.parameters()["{node}"])
	r.See("memory")
	r.Follow("Lineage")
	boxes, listed := r.At.Find("svg.lineage .node").Length(), rowsOf(r, "Nodes").Length()
	if boxes < 2 || listed != boxes || r.At.Find("svg.lineage .edge").Length() == 0 {
		t.Fatalf("the lineage has %d boxes and lists %d", boxes, listed)
	}
	more, _ := r.At.Find("svg.lineage a.more").First().Attr("href")
	for range 3 {
		if more == "" {
			break
		}
		target, err := r.At.URL.Parse(more)
		runtest.Must(t, err)
		r.Request(http.MethodGet, target, nil, "same-origin")
		if n := r.At.Find("svg.lineage .node").Length(); n <= boxes {
			t.Errorf("%s shows no more", more)
		}
		boxes = r.At.Find("svg.lineage .node").Length()
		more, _ = r.At.Find("svg.lineage a.more").First().Attr("href")
	}
	source, _ := r.At.Find("svg.lineage .node.source a").First().Attr("href")
	r.Open(source)
	r.See("source")
	if r.At.Find("main pre").Length() != 1 {
		t.Error("the node of a source shows no text")
	}
	r.Follow("Timeline")
	if marks := r.At.Find("svg.timeline a.mark").Length(); marks < 3 {
		t.Errorf("the timeline has %d marks", marks)
	}
	h.get("read", "/p/default/trace/no-id").want(t, http.StatusNotFound)
	h.get("read", "/p/default/trace/01890000-0000-7000-8000-00000000000a/lineage").want(t, http.StatusNotFound)
	h.get("read", source+"/lineage?reveal=x").want(t, http.StatusBadRequest)
}

// What last week cost, and which key caused it, at the console alone.
func TestConsole_UsageNamesTheKeyThatCost(t *testing.T) {
	h := newStaff(t)
	h.setPlan("Annals", string(metering.Flex))
	_, management := h.keys()
	h.must(management, http.MethodPost, "/api/v1/projects", map[string]any{"name": "Old pilot"}, nil)
	var made client.ProjectKey
	h.must(management, http.MethodPost, "/api/v1/projects/default/keys", map[string]any{"name": "nightly import"}, &made)
	h.must(made.Key, http.MethodPost, "/api/v1/ingest",
		map[string]any{"id": "large", "content": strings.Repeat("It costs much. ", 4000)}, nil)

	r := h.as("owner")
	r.Open("/usage")
	r.SeeLater("nightly import")
	if top := webtest.Plain(rowsOf(r, "Keys").First().Text()); !strings.HasPrefix(top, "nightly import") {
		t.Errorf("the key that cost most is %q", top)
	}
	r.See("credits left")
	for _, label := range []string{"Credits by project", "Credits by day and key"} {
		if r.At.Find(fmt.Sprintf("svg[aria-label=%q] a.bar", label)).Length() == 0 {
			t.Errorf("the chart %q has no bars", label)
		}
	}
	r.Follow("nightly import")
	r.See("POST /api/v1/ingest")
	if n := rowsOf(r, "Requests").Length(); n != 1 {
		t.Errorf("the key leads to %d calls", n)
	}
	r.Open("/usage")
	r.Follow("Last week")
	r.See("No call was made in these days.")
	today := time.Now().UTC().Format(time.DateOnly)
	h.get("owner", "/usage?format=csv").want(t, http.StatusOK, today+",default,nightly import,")
	for _, bad := range []string{"month=may", "from=1.2.2026", "from=2020-01-01"} {
		h.get("owner", "/usage?"+bad).want(t, http.StatusBadRequest)
	}

	// Who may read one project sees nothing of another one, nor the spend cap.
	most := int64(5_000_000)
	h.setSpendCap("Annals", &most)
	r.Open("/usage")
	r.See("spend cap")
	h.get("read", "/usage").want(t, http.StatusOK, "nightly import").lacks(t, "spend cap", fmt.Sprint(most), "pilot")
	h.get("read", "/usage?format=json").want(t, http.StatusOK).lacks(t, "spend cap", fmt.Sprint(most), "pilot")
	h.get("member", "/usage").want(t, http.StatusOK)
}

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
	h.get("read", call).want(t, http.StatusOK, "is not stored, or no longer", "ask again with the form above").
		lacks(t, "<article")
	for _, call := range []string{"none", h.hook.ID} {
		h.get("read", "/p/default/recall?call="+call).want(t, http.StatusNotFound)
	}
	r.Open("/p/default/requests")
	r.See("console " + h.mail("read"))

	r.Open("/p/default/recall")
	r.Submit("Explain", map[string]string{
		"Question": "What may the launch cost?", "As identity": "ben" + markup, "Source ids": "budget" + markup + "\nnote-01" + markup + "\nnowhere",
	})
	r.Answered(http.StatusOK)
	r.See("not readable, audience not reached", "nowhere: not stored", "Readable by")
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
	h := seeConsole(t)
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
