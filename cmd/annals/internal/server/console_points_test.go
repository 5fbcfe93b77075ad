package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/fields"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/importer"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/webtest"
	"github.com/annals-project/annals/projections/export"
)

// page is an answer of the console.
type page struct{ webtest.Answer }

func (h *consoleHarness) get(role, path string) page {
	h.t.Helper()
	return page{h.as(role).Ask(http.MethodGet, path, nil)}
}

func (h *consoleHarness) submit(role, path string, fields ...string) page {
	h.t.Helper()
	form := url.Values{}
	for i := 0; i < len(fields); i += 2 {
		form.Set(fields[i], fields[i+1])
	}
	return page{h.as(role).Ask(http.MethodPost, path, form)}
}

// want checks an answer.
func (p page) want(t testing.TB, status int, has ...string) page {
	t.Helper()
	if p.Status != status {
		t.Fatalf("status %d, want %d: %s", p.Status, status, problemOf(p.Body))
	}
	for _, text := range has {
		if !strings.Contains(p.Body, text) {
			t.Errorf("no %q in %s", text, p.Body)
		}
	}
	return p
}

// lacks checks that an answer has none of some texts.
func (p page) lacks(t testing.TB, texts ...string) page {
	t.Helper()
	for _, text := range texts {
		if strings.Contains(p.Body, text) {
			t.Errorf("%q is in %s", text, p.Body)
		}
	}
	return p
}

var problems = regexp.MustCompile(`(?s)<p class="problem".*?</p>`)

func problemOf(body string) string {
	if found := problems.FindString(body); found != "" {
		return found
	}
	return body
}

// pagesOfTest is a console, a key of its first project, and an audience of ana there.
func pagesOfTest(t *testing.T) (h *consoleHarness, key string) {
	t.Helper()
	h = newStaff(t)
	key, _ = h.keys()
	h.must(key, http.MethodPut, api+"/identities/ana", map[string]any{}, nil)
	h.must(key, http.MethodPut, api+"/audiences/team", map[string]any{"kind": "fixed", "identities": []string{"ana"}}, nil)
	return h, key
}

const script = `<script>alert("x")</script>`

// Ids are customer text: any of them has a page, and markup in any field is shown as text.
func TestPointPages_AnyIdAndMarkup(t *testing.T) {
	b, key := pagesOfTest(t)
	for _, id := range []string{"a/b", "a//b", "..", ".", "~..", "%2F", "ä ?#&+", script, "../../x", `"><img src=x>`} {
		b.must(key, http.MethodPost, api+"/ingest", point{
			"id": id, "content": script + id, "label": script, "identity": script + "i", "metadata": map[string]any{"m": script},
		}, nil)
		runtest.Must(t, b.read.dataPoints.CatchUp(t.Context()))
		found := b.get("read", "/p/default/search?q="+url.QueryEscape(id)).want(t, http.StatusSeeOther)
		u, err := url.Parse(found.Location)
		runtest.Must(t, err)
		if clean := u.ResolveReference(u).EscapedPath(); clean != u.EscapedPath() {
			t.Errorf("a browser takes %s for %s", u.EscapedPath(), clean)
		}
		one := b.get("write", found.Location).want(t, http.StatusOK)
		form := b.get("write", found.Location+"/correct").want(t, http.StatusOK)
		list := b.get("write", "/p/default/data?id="+url.QueryEscape(id)).want(t, http.StatusOK)
		for name, body := range map[string]string{"one": one.Body, "form": form.Body, "list": list.Body} {
			if strings.Contains(body, "<script>alert") || strings.Contains(body, "<img src=x") {
				t.Errorf("%s of %q has markup of a customer: %s", name, id, body)
			}
			if !strings.Contains(body, "&lt;script&gt;") {
				t.Errorf("%s of %q does not show the text", name, id)
			}
		}
		if !strings.Contains(html.UnescapeString(list.Body), found.Location+`"`) {
			t.Errorf("the list has no link to %s", found.Location)
		}
		changed := b.submit("write", found.Location+"/correct", "revision", "1", "content", "better", "label", script,
			"timestamp", timeOf(form.Body), "metadata", `{"m":"x"}`, "identity", script+"i", "audience", "project", "was", "project")
		changed.want(t, http.StatusSeeOther)
		b.get("read", changed.Location).want(t, http.StatusOK, "<pre>better</pre>")
	}
}

var timestamps = regexp.MustCompile(`name="timestamp" value="([^"]*)"`)

func timeOf(body string) string {
	if found := timestamps.FindStringSubmatch(body); found != nil {
		return strings.NewReplacer("&#43;", "+").Replace(found[1])
	}
	return ""
}

func TestPointPages_CorrectAndDelete(t *testing.T) {
	b, key := pagesOfTest(t)
	b.send(key, "/ingest", "completed", point{
		"id": "s", "content": "one\r\ntwo", "audience": "team", "identity": "ana", "label": "l", "timestamp": "2020-01-02T03:04:05Z",
	})
	path := "/p/default/data/s"
	form := b.get("write", path+"/correct").want(t, http.StatusOK, `value="team"`, "one\r\ntwo</textarea>")
	unchanged := []string{
		"content", "one\ntwo", "label", "l", "timestamp", timeOf(form.Body), "identity", "ana", "audience", "team", "was", "team",
	}
	with := func(changes ...string) []string {
		return append(append([]string{"revision", "1"}, unchanged...), changes...)
	}
	b.submit("write", path+"/correct", with()...).want(t, http.StatusBadRequest, "nothing was changed")
	b.submit("write", path+"/correct", with("content", " ")...).want(t, http.StatusBadRequest, "content")
	b.submit("write", path+"/correct", with("timestamp", "soon")...).want(t, http.StatusBadRequest, "timestamp")
	b.submit("write", path+"/correct", with("metadata", "{")...).want(t, http.StatusBadRequest, "metadata")
	b.submit("write", path+"/correct", with("audience", "")...).want(t, http.StatusBadRequest, "audience")
	b.submit("write", path+"/correct", with("audience", "none")...).want(t, http.StatusBadRequest, "none")
	b.submit("write", path+"/correct", with("revision", "x")...).want(t, http.StatusBadRequest, "revision")
	b.submit("write", path+"/correct", with("content", "three")...).want(t, http.StatusSeeOther)
	// What the person did is an event with the person, on the page of the thing. A reader does not see how to correct.
	b.get("read", path).want(t, http.StatusOK, "<pre>three</pre>", ">team</a>", "2020-01-02 03:04:05", ">ana</a>",
		"<td>"+b.mail("write")+"</td>").lacks(t, "/correct", "person:")
	b.submit("write", path+"/correct", with("content", "lost")...).
		want(t, http.StatusConflict, "The newest revision is 2", "<pre>three</pre>", "\nlost</textarea>", `name="revision" value="2"`)
	b.get("write", path+"/delete").want(t, http.StatusOK, "three")
	b.submit("write", path+"/delete").want(t, http.StatusSeeOther)
	b.get("read", path).want(t, http.StatusOK, "was deleted", "by "+b.mail("write"), "deleted a text").
		lacks(t, "/requests/") // that request is not logged
	const deletions = "/p/default/history?kind=datapoint.deleted&by="
	b.get("read", deletions+b.mail("write")).want(t, http.StatusOK, "deleted a text")
	b.get("read", deletions+b.mail("owner")).lacks(t, "a text")
	b.get("write", path+"/correct").want(t, http.StatusConflict, "deleted")
	b.submit("write", path+"/correct", with("content", "again")...).want(t, http.StatusConflict, "deleted")
	b.submit("write", path+"/delete").want(t, http.StatusNotFound)
	b.get("read", path+"/text").want(t, http.StatusConflict)
	b.get("read", "/p/default/data/none").want(t, http.StatusNotFound)
	b.get("read", "/p/default/data/%FF").want(t, http.StatusNotFound)
	b.get("read", "/p/default/data/a%00b").want(t, http.StatusNotFound)
}

func TestPointPages_List(t *testing.T) {
	b, key := pagesOfTest(t)
	var items []point
	for n := range 120 {
		items = append(items, point{
			"id": "mail/" + string(rune('a'+n%26)) + time.Duration(n).String(), "content": "=text", "identity": "ana",
			"timestamp": time.Date(2026, 1, 1, 0, n, 0, 0, time.UTC).Format(time.RFC3339),
		})
	}
	b.send(key, "/ingest/batch", "completed", map[string]any{"items": items})
	first := b.get("read", "/p/default/data?author=ana").want(t, http.StatusOK, "120 in all")
	next := regexp.MustCompile(`rel="next" href="([^"]*)"`).FindStringSubmatch(first.Body)
	if next == nil || !strings.Contains(next[1], "author=ana") {
		t.Fatalf("next page: %v", next)
	}
	second := b.get("read", html.UnescapeString(next[1]))
	second.want(t, http.StatusOK, "120 in all", "author=ana", `rel="prev"`)
	if n := strings.Count(second.Body, "<tr>"); n != 51 {
		t.Errorf("%d rows on the second page", n)
	}
	for role, lines := range map[string]int{"read": 51, "admin": 121} { // a file of more than a page is an export
		csv := b.get(role, "/p/default/data?author=ana&format=csv").want(t, http.StatusOK, "\nmail/", ",'=text,")
		if n := strings.Count(csv.Body, "\n"); n != lines {
			t.Errorf("%s has %d lines of CSV, want %d", role, n, lines)
		}
	}
	var list struct {
		Items []struct{ ID string }
		More  bool
	}
	for query, want := range map[string]int{"?id=mail/&format=json": 120, "?id=none&format=json": 0} {
		answer := b.get("admin", "/p/default/data"+query).want(t, http.StatusOK)
		if err := json.Unmarshal([]byte(answer.Body), &list); err != nil || len(list.Items) != want || list.More {
			t.Errorf("%s: %d points, %v", query, len(list.Items), err)
		}
	}
	b.get("read", "/p/default/data?id=mail/&from=2026-01-02").want(t, http.StatusOK, "No data point matches.")
	b.get("read", "/p/default/data?id=mail/&to=2026-01-01").want(t, http.StatusOK, "120 in all")
	for _, wrong := range []string{"from=soon", "after=x", "before=AAAA", "author=%00", "label=%FF"} {
		b.get("read", "/p/default/data?"+wrong).want(t, http.StatusBadRequest)
	}
}

func TestPointPages_FailedSendsBothWays(t *testing.T) {
	b, key := pagesOfTest(t)
	send := b.send(key, "/ingest", "completed", point{"id": "s", "content": "Ana moved to Rome."})
	_, err := b.storage.db.Exec(t.Context(), `insert into datapoints.sends
		select (jsonb_populate_record(s, jsonb_build_object('id', gen_random_uuid(), 'phase', 'failed', 'failure_open', true,
			'failure_code', 'code ' || n, 'failure_message', 'no', 'accepted_at', s.accepted_at + n * interval '1 s'))).*
		from datapoints.sends s, generate_series(1, 120) n where s.id = $1`, send)
	runtest.Must(t, err)
	follow := func(p page, rel string) page {
		t.Helper()
		link := regexp.MustCompile(`rel="` + rel + `" href="([^"]*)"`).FindStringSubmatch(p.Body)
		if link == nil {
			t.Fatalf("no link to the %s page: %s", rel, p.Body)
		}
		return b.get("read", html.UnescapeString(link[1]))
	}
	first := b.get("read", "/p/default/failed").want(t, http.StatusOK, "code 1:", "code 50:")
	third := follow(follow(first, "next"), "next").want(t, http.StatusOK, "code 101:", "code 120:")
	second := follow(third, "prev").want(t, http.StatusOK, "code 51:", "code 100:")
	follow(second, "prev").want(t, http.StatusOK, "code 1:", "code 50:")
	csv := b.get("admin", "/p/default/failed?format=csv").want(t, http.StatusOK, "code 120,no")
	if n := strings.Count(csv.Body, "\n"); n != 121 {
		t.Errorf("%d lines of CSV", n)
	}
	b.get("read", "/p/default/failed?after=x").want(t, http.StatusBadRequest)
}

func TestPointPages_SearchFindsEveryKind(t *testing.T) {
	b, key := pagesOfTest(t)
	send := b.send(key, "/ingest", "completed", point{"id": "s", "content": "Ana moved to Rome.", "identity": "ana"})
	found := func(q string) string { return b.get("read", "/p/default/search?q="+url.QueryEscape(q)).Location }
	one := b.get("read", "/p/default/data/s").want(t, http.StatusOK)
	requests := regexp.MustCompile(`/requests/([0-9a-f-]{36})`)
	runtest.Await(t, "the call is logged", func() bool {
		one = b.get("read", "/p/default/data/s")
		return requests.MatchString(one.Body)
	})
	request := requests.FindStringSubmatch(one.Body)[1]
	nodes := regexp.MustCompile(`/trace/([0-9a-f-]{36})`).FindAllStringSubmatch(one.Body, -1)
	for q, want := range map[string]string{
		"s": "/p/default/data/s", send: "/p/default/sends/" + send, "team": "/p/default/audiences/team",
		"ana": "/p/default/identities/ana", nodes[0][1]: "/p/default/trace/" + nodes[0][1],
		nodes[len(nodes)-1][1]: "/p/default/trace/" + nodes[len(nodes)-1][1],
	} {
		if got := found(q); got != want {
			t.Errorf("%s leads to %q, want %q", q, got, want)
		}
	}
	// The request made the send: both are named.
	runtest.Await(t, "the request is logged", func() bool {
		body := b.get("read", "/p/default/search?q="+request).Body
		return strings.Contains(body, "/requests/"+request) && strings.Contains(body, "/sends/"+send)
	})
	b.get("read", "/p/default/search?q="+httpx.EventID(uuid.MustParse(request))).want(t, http.StatusOK, "/requests/"+request)
	b.get("read", "/p/default/search?q=none").want(t, http.StatusOK, "Nothing of this project")
	b.get("read", "/p/default/search?q=a+b%2B").want(t, http.StatusOK, "data?id=a%20b%2b", "data?label=a%20b%2b")
	b.get("read", "/p/default/search").want(t, http.StatusOK)
	b.get("read", "/p/default/search?q=%FF").want(t, http.StatusBadRequest)
	b.get("read", "/p/default/sends/x").want(t, http.StatusNotFound)
	b.get("read", "/p/default/sends/"+uuid.NewString()).want(t, http.StatusNotFound)
}

func TestPointPages_IngestIsEstimatedFirst(t *testing.T) {
	h, _ := pagesOfTest(t)
	const path = "/p/default/ingest"
	fields := []string{"content", "Ana moved to Rome.", "id", "x/y", "label", "", "timestamp", "", "identity", "ana", "audience", "team"}
	seen := h.submit("write", path, fields...).want(t, http.StatusOK, "1 data point, 18 B", "Nothing was sent yet")
	h.get("read", "/p/default/data/x%2Fy").want(t, http.StatusNotFound)
	confirmed := append(fields, "confirm", hiddenOf(seen.Body, "confirm"), "key", hiddenOf(seen.Body, "key"))
	// Another text than the one that was estimated is estimated again.
	h.submit("write", path, append(confirmed, "content", "Another.")...).want(t, http.StatusOK, "Nothing was sent yet")
	sent := h.submit("write", path, confirmed...).want(t, http.StatusSeeOther)
	again := h.submit("write", path, confirmed...).want(t, http.StatusSeeOther)
	if sent.Location != again.Location {
		t.Errorf("a form that is sent twice leads to %s and %s", sent.Location, again.Location)
	}
	runtest.Await(t, "the send is searchable", func() bool {
		return strings.Contains(h.get("read", sent.Location).Body, ">indexed</span>")
	})
	h.get("read", "/p/default/data/x%2Fy").want(t, http.StatusOK, ">team</a>", "<td>created ").
		lacks(t, "<td>unchanged") // as if the form was sent twice
	for name, value := range map[string]string{
		"content": " ", "timestamp": "soon", "metadata": "{", "id": strings.Repeat("x", 1001), "label": "\x00",
	} {
		h.submit("write", path, append(fields, name, value)...).want(t, http.StatusBadRequest, name)
	}
	h.submit("write", path, append(fields, "content", strings.Repeat("x", 1<<20))...).want(t, http.StatusRequestEntityTooLarge)
}

// upload sends the form of an import.
func (h *consoleHarness) upload(role string, fields map[string]string, files map[string]string) page {
	h.t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	for name, value := range fields {
		runtest.Must(h.t, form.WriteField(name, value))
	}
	for name, content := range files {
		part, err := form.CreateFormFile("files", name)
		runtest.Must(h.t, err)
		_, err = part.Write([]byte(content))
		runtest.Must(h.t, err)
	}
	runtest.Must(h.t, form.Close())
	r := h.as(role)
	req, err := http.NewRequestWithContext(h.t.Context(), http.MethodPost, h.urls.Console+"/p/default/import", &body)
	runtest.Must(h.t, err)
	req.Header.Set("Content-Type", form.FormDataContentType())
	req.Header.Set("Origin", h.urls.Console)
	res, err := r.HTTP.Do(req)
	runtest.Must(h.t, err)
	text, err := io.ReadAll(res.Body)
	runtest.Must(h.t, errors.Join(err, res.Body.Close()))
	return page{webtest.Answer{Status: res.StatusCode, Body: string(text)}}
}

func hiddenOf(body, name string) string {
	found := regexp.MustCompile(`name="` + name + `" value="([^"]*)"`).FindStringSubmatch(body)
	if found == nil {
		return ""
	}
	return html.UnescapeString(found[1])
}

func TestPointPages_ImportGoesOn(t *testing.T) {
	h, key := pagesOfTest(t)
	var file strings.Builder
	for n := range 1200 {
		fmt.Fprintf(&file, `{"id":"import/%d","content":"Line %d.","audience":"team"}`+"\n", n, n)
	}
	points := map[string]string{"points.jsonl": file.String()}
	seen := h.upload("write", map[string]string{"as": "points"}, points).want(t, http.StatusOK, "1,200 data points", "Nothing was sent")
	confirmed := map[string]string{"as": "points", "confirm": hiddenOf(seen.Body, "confirm")}
	sent := h.upload("write", confirmed, points).want(t, http.StatusOK, "1,200 data points in 3 batches", "That is all of it.")
	batches := h.count("ingestion.accepted.v1")
	// An upload whose answer was lost is sent again: nothing of it is sent twice.
	h.upload("write", confirmed, points).want(t, http.StatusOK, "That is all of it.")
	if n := h.count("ingestion.accepted.v1"); n != batches {
		t.Errorf("%d batches were sent twice", n-batches)
	}
	send := regexp.MustCompile(`/p/default/sends/[0-9a-f-]{36}`).FindString(sent.Body)
	h.get("read", send).want(t, http.StatusOK)
	// A line that is refused is named, and what came before it stays.
	h.must(key, http.MethodDelete, api+"/data-points/import%2F7", nil, nil)
	wrong := map[string]string{"points.jsonl": `{"id":"ok","content":"x"}` + "\n" + `{"content":3}`}
	h.upload("write", map[string]string{"as": "points"}, wrong).want(t, http.StatusBadRequest, "line 2")
	// One that was deleted before is left out, and ends nothing.
	gone := map[string]string{"points.jsonl": `{"id":"import/7","content":"x"}`}
	seen = h.upload("write", map[string]string{"as": "points"}, gone).want(t, http.StatusOK)
	h.upload("write", map[string]string{"as": "points", "confirm": hiddenOf(seen.Body, "confirm")}, gone).
		want(t, http.StatusOK, "0 data points in 1 batch", "1 was deleted before and stays out")
	h.upload("write", nil, nil).want(t, http.StatusBadRequest, "choose 1 to")
	h.upload("read", confirmed, points).want(t, http.StatusForbidden)
}

// An import that stopped goes on after what was sent.
func TestPointPages_ImportFromAState(t *testing.T) {
	h, _ := pagesOfTest(t)
	var file strings.Builder
	for n := range 700 {
		fmt.Fprintf(&file, `{"id":"state/%d","content":"Line %d."}`+"\n", n, n)
	}
	points := map[string]string{"points.jsonl": file.String()}
	seen := h.upload("write", map[string]string{"as": "points"}, points).want(t, http.StatusOK, "700 data points")
	state := importer.NewState(importer.Target{})
	state.ImportID = hiddenOf(seen.Body, "confirm")
	sent := 0
	state, err := importer.Import{
		In: strings.NewReader(file.String()), State: state, Parallel: 1,
		To: importer.Local(func(_ context.Context, items []fields.DataPoint, _ string) (importer.LocalReceipt, error) {
			if sent++; sent > 1 {
				return importer.LocalReceipt{}, context.DeadlineExceeded
			}
			return importer.LocalReceipt{Unchanged: make([]bool, len(items))}, nil
		}),
	}.Run(t.Context())
	if !errors.Is(err, context.DeadlineExceeded) || state.Points != 500 {
		t.Fatalf("%+v, %v", state, err)
	}
	text, err := json.Marshal(state)
	runtest.Must(t, err)
	form := map[string]string{"as": "points", "confirm": state.ImportID, "state": string(text)}
	h.upload("write", form, points).want(t, http.StatusOK, "700 data points in 2 batches", "That is all of it.")
	runtest.Must(t, h.read.dataPoints.CatchUp(t.Context()))
	h.get("read", "/p/default/data?id=state/").want(t, http.StatusOK, "200 in all")
	form["state"] = "{"
	h.upload("write", form, points).want(t, http.StatusOK, "700 data points in 2 batches")
}

func TestPointPages_ImportOfFiles(t *testing.T) {
	h, _ := pagesOfTest(t)
	files := map[string]string{"notes.md": "# Trip\n\nAna flies to Rome.\n", "empty.txt": ""}
	seen := h.upload("write", map[string]string{"as": "files", "audience": "team"}, files).
		want(t, http.StatusOK, "1 data point,", "notes.md", "empty.txt")
	confirmed := map[string]string{"as": "files", "audience": "team", "confirm": hiddenOf(seen.Body, "confirm")}
	h.upload("write", confirmed, files).want(t, http.StatusOK, "That is all of it.")
	runtest.Must(t, h.read.dataPoints.CatchUp(t.Context()))
	list := h.get("read", "/p/default/data?audience=team&format=json").want(t, http.StatusOK, "Rome")
	if strings.Count(list.Body, `"id":`) != 1 {
		t.Errorf("list: %s", list.Body)
	}
}

func TestPointPages_Export(t *testing.T) {
	h, key := pagesOfTest(t)
	h.send(key, "/ingest", "completed", point{"id": "=1+1", "content": "Ana likes tea."})
	var lines bytes.Buffer
	body := h.get("admin", "/p/default/export/data-points.jsonl").want(t, http.StatusOK).Body
	runtest.Must(t, h.Server.export().Write(t.Context(), export.Request{Project: "default"},
		export.Began{ProjectID: h.projectID("default"), AsOf: time.Now()}, &lines, func(export.Mark) error { return nil }))
	if body != lines.String() || !strings.Contains(body, `"id":"=1+1"`) {
		t.Errorf("the page writes %s, the command %s", body, lines.String())
	}
	h.get("admin", "/p/default/export/with-memories.jsonl").want(t, http.StatusOK, `"type":"memory"`)
	h.get("admin", "/p/default/export/other").want(t, http.StatusNotFound)
	h.get("write", "/p/default/export/data-points.jsonl").want(t, http.StatusForbidden)
	h.get("admin", "/p/default/export?identity=ana").want(t, http.StatusOK, `value="ana"`, "The copy of a person", "derived values")
	h.get("admin", "/p/default/export/person.jsonl").want(t, http.StatusBadRequest, "identity")
	h.get("admin", "/p/default/export/person.jsonl?identity=nobody").want(t, http.StatusOK, `"hasRecord":false,"texts":0`)
	h.get("write", "/p/default/export/person.jsonl?identity=ana").want(t, http.StatusForbidden)
}
