package server

import (
	"encoding/json"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/webtest"
)

// page is an answer of the console.
type page struct{ webtest.Answer }

func (h *consoleHarness) get(role, path string) page {
	h.t.Helper()
	return page{h.as(role).Ask(http.MethodGet, path, nil)}
}

func (h *consoleHarness) post(role, path string, fields ...string) page {
	h.t.Helper()
	form := url.Values{}
	for i := 0; i < len(fields); i += 2 {
		form.Set(fields[i], fields[i+1])
	}
	return page{h.as(role).Ask(http.MethodPost, path, form)}
}

// want checks an answer.
func (p page) want(t *testing.T, status int, has ...string) page {
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
	h = newConsole(t)
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
		if err := b.read.dataPoints.CatchUp(t.Context()); err != nil {
			t.Fatal(err)
		}
		found := b.get("read", "/p/default/search?q="+url.QueryEscape(id)).want(t, http.StatusSeeOther)
		u, err := url.Parse(found.Location)
		if err != nil {
			t.Fatal(err)
		}
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
		changed := b.post("write", found.Location+"/correct", "revision", "1", "content", "better", "label", script,
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
	b.post("write", path+"/correct", with()...).want(t, http.StatusBadRequest, "nothing was changed")
	b.post("write", path+"/correct", with("content", " ")...).want(t, http.StatusBadRequest, "content")
	b.post("write", path+"/correct", with("timestamp", "soon")...).want(t, http.StatusBadRequest, "timestamp")
	b.post("write", path+"/correct", with("metadata", "{")...).want(t, http.StatusBadRequest, "metadata")
	b.post("write", path+"/correct", with("audience", "")...).want(t, http.StatusBadRequest, "audience")
	b.post("write", path+"/correct", with("audience", "none")...).want(t, http.StatusBadRequest, "none")
	b.post("write", path+"/correct", with("revision", "x")...).want(t, http.StatusBadRequest, "revision")
	b.post("write", path+"/correct", with("content", "three")...).want(t, http.StatusSeeOther)
	one := b.get("read", path).want(t, http.StatusOK, "<pre>three</pre>", ">team</a>", "2020-01-02 03:04:05", ">ana</a>")
	if strings.Contains(one.Body, "/correct") {
		t.Error("a reader sees how to correct")
	}
	// What the person did is an event with the person, on the page of the thing.
	if !strings.Contains(one.Body, auth.Principal{Kind: auth.Person, KeyID: b.ids["write"]}.Name()) {
		t.Errorf("the events do not name the person: %s", one.Body)
	}
	b.post("write", path+"/correct", with("content", "lost")...).
		want(t, http.StatusConflict, "The newest revision is 2", "<pre>three</pre>", "\nlost</textarea>", `name="revision" value="2"`)
	b.get("write", path+"/delete").want(t, http.StatusOK, "three")
	b.post("write", path+"/delete").want(t, http.StatusSeeOther)
	b.get("read", path).want(t, http.StatusOK, "was deleted")
	b.get("write", path+"/correct").want(t, http.StatusConflict, "deleted")
	b.post("write", path+"/correct", with("content", "again")...).want(t, http.StatusConflict, "deleted")
	b.post("write", path+"/delete").want(t, http.StatusNotFound)
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
	second := b.get("read", strings.ReplaceAll(next[1], "&amp;", "&")).want(t, http.StatusOK, "120 in all", "author=ana", `rel="prev"`)
	if n := strings.Count(second.Body, "<tr>"); n != 21 {
		t.Errorf("%d rows on the second page", n)
	}
	csv := b.get("read", "/p/default/data?author=ana&format=csv").want(t, http.StatusOK, "\nmail/", ",'=text,")
	if n := strings.Count(csv.Body, "\n"); n != 121 {
		t.Errorf("%d lines of CSV", n)
	}
	var list struct {
		Points []struct{ ID string }
		More   bool
	}
	for query, want := range map[string]int{"?id=mail/&format=json": 120, "?id=none&format=json": 0} {
		if err := json.Unmarshal([]byte(b.get("read", "/p/default/data"+query).want(t, http.StatusOK).Body), &list); err != nil ||
			len(list.Points) != want || list.More {
			t.Errorf("%s: %d points, %v", query, len(list.Points), err)
		}
	}
	b.get("read", "/p/default/data?id=mail/&from=2026-01-02").want(t, http.StatusOK, "No data point matches.")
	b.get("read", "/p/default/data?id=mail/&to=2026-01-01").want(t, http.StatusOK, "120 in all")
	for _, wrong := range []string{"from=soon", "after=x", "before=AAAA", "author=%00", "label=%FF"} {
		b.get("read", "/p/default/data?"+wrong).want(t, http.StatusBadRequest)
	}
}

func TestPointPages_SearchFindsEveryKind(t *testing.T) {
	b, key := pagesOfTest(t)
	send := b.send(key, "/ingest", "completed", point{"id": "s", "content": "Ana moved to Rome.", "identity": "ana"})
	found := func(q string) string { return b.get("read", "/p/default/search?q="+url.QueryEscape(q)).Location }
	one := b.get("read", "/p/default/data/s").want(t, http.StatusOK)
	request := regexp.MustCompile(`/requests/([0-9a-f-]{36})`).FindStringSubmatch(one.Body)[1]
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
	b.get("read", "/p/default/search").want(t, http.StatusOK)
	b.get("read", "/p/default/search?q=%FF").want(t, http.StatusBadRequest)
	b.get("read", "/p/default/sends/x").want(t, http.StatusNotFound)
	b.get("read", "/p/default/sends/"+uuid.NewString()).want(t, http.StatusNotFound)
}
