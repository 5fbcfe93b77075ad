package server

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/PuerkitoBio/goquery"
	"github.com/google/uuid"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/webtest"
	"github.com/annals-project/annals/projections/history"
)

// openings is what somebody of each role is answered who opens a page, by what it needs, in the order of roles. The
// page is one of the first project, if it is one of a project.
var openings = map[web.Needs][7]int{
	web.SignedIn: {303, 200, 200, 200, 200, 200, 200},
	web.Member:   {303, 200, 200, 200, 200, 200, 200},
	web.Read:     {303, 404, 404, 200, 200, 200, 200},
	web.Write:    {303, 404, 404, 403, 200, 200, 200},
	web.Manage:   {303, 404, 404, 403, 403, 200, 200},
	web.Admin:    {303, 200, 403, 403, 403, 200, 200},
	web.Owner:    {303, 200, 403, 403, 403, 403, 200},
	web.Operator: {303, 403, 403, 403, 403, 403, 200},
}

var everybody = [7]int{200, 200, 200, 200, 200, 200, 200}

// openingsOf are those of pages that answer otherwise: pages without a session, and pages that lead on to another.
var openingsOf = map[string][7]int{
	"GET /sign-in":                                {200, 303, 303, 303, 303, 303, 303},
	"GET /sign-in/second-factor":                  {200, 200, 200, 200, 200, 200, 200},
	"GET /invite/{token}":                         {404, 404, 404, 404, 404, 404, 404},
	"GET /link/{token}":                           {404, 404, 404, 404, 404, 404, 404},
	"GET /oauth2/authorize":                       {302, 302, 302, 302, 302, 302, 302},
	"GET /oauth2/consent":                         {303, 400, 400, 400, 400, 400, 400}, // asks for nothing
	"GET /p/{project}/recall/explain":             {303, 404, 404, 400, 400, 400, 400}, // asks for nothing
	"POST /offers/{offer}":                        {303, 404, 404, 404, 404, 404, 404},
	"POST /settings/offers/{offer}":               {303, 404, 403, 403, 403, 404, 404},
	"GET /p/{project}/reads/{request}":            {303, 404, 404, 403, 403, 404, 404}, // no record
	"GET /p/{project}/reads/{request}/texts":      {303, 404, 404, 403, 403, 404, 404},
	"POST /p/{project}/reads/setting":             {303, 404, 404, 403, 403, 403, 200},
	"GET /.well-known/jwks.json":                  {200, 200, 200, 200, 200, 200, 200},
	"GET /.well-known/oauth-authorization-server": {200, 200, 200, 200, 200, 200, 200},
	"GET /.well-known/{document...}":              {404, 404, 404, 404, 404, 404, 404},
	"GET /auth.md":                                everybody,
	"GET /agents/claim":                           {303, 404, 404, 404, 404, 404, 404},
	// There is no erasure: one would remove what other pages show.
	"GET /p/{project}/erasures/{erasure}": {303, 404, 404, 403, 403, 404, 404},
	// The owner of another organization does not find the member.
	"GET /settings/members/{member}":  {303, 404, 403, 403, 403, 200, 200},
	"GET /settings/history/{event}":   {303, 404, 403, 403, 403, 200, 200},
	"GET /settings/events":            {303, 303, 403, 403, 403, 303, 303}, // its former address
	"POST /settings/members/{member}": {303, 404, 403, 403, 403, 200, 200},

	"GET /docs":                 everybody,
	"GET /docs/search":          everybody,
	"GET /docs/{page...}":       everybody,
	"GET /docs/files/{file...}": everybody,
	"GET /llms.txt":             everybody,
	"GET /openapi.json":         everybody,
	"GET /mcp":                  {401, 401, 401, 401, 401, 401, 401},
	"GET /mcp/read":             {401, 401, 401, 401, 401, 401, 401},
	"GET /mcp/operator":         {401, 401, 401, 401, 401, 401, 401},
}

// parameters are what stands for the parameters of patterns: things of the first project.
func (h *consoleHarness) parameters() map[string]string {
	h.t.Helper()
	project, _ := h.keys()
	var roots client.Roots
	h.must(project, http.MethodGet, "/api/v1/trace/roots", nil, &roots)
	var key string
	runtest.Must(h.t, h.storage.db.QueryRow(h.t.Context(), `select k.id::text from access.keys k
		join access.projects p on p.id = k.project_id where p.id = $1`, h.projectID("default")).Scan(&key))
	var event string
	runtest.Must(h.t, h.head().Await(h.t.Context(), history.Name))
	runtest.Must(h.t, h.storage.db.QueryRow(h.t.Context(), `select e.id::text from history.entries e
		where e.project_id = $1 and e.type = 'audience.put.v1' limit 1`, h.projectID("default")).Scan(&event))
	send := h.send(project, "/ingest", "completed", point{"id": "a/b", "content": "A text" + markup})
	return map[string]string{
		"{$}":           "",
		"{member}":      h.ids["read"].String(),
		"{offer}":       uuid.NewString(),
		"{erasure}":     uuid.NewString(),
		"{document...}": "none",
		"{page...}":     "console",
		"{file...}":     "LICENSE",
		"{id}":          "a/b",
		"{send}":        send,
		"{file}":        "data-points.jsonl",
		"{token}":       "none",
		"{project}":     "default",
		"{webhook}":     h.hook.ID,
		"{request}":     h.hookEvent.RequestID.String(),
		"{body}":        "request",
		"{node}":        roots.Memories.Nodes[0].ID,
		"{key}":         key,
		"{identity}":    "plain",
		"{slug}":        "launch",
		"{event}":       event,
	}
}

// address is a path of a pattern, with its parameters.
func (h *consoleHarness) address(pattern string, values map[string]string) (method, path string) {
	h.t.Helper()
	method, path, _ = strings.Cut(pattern, " ")
	for name, value := range values {
		path = strings.ReplaceAll(path, name, url.PathEscape(value))
	}
	if strings.Contains(path, "{") {
		h.t.Fatalf("%s has a parameter that the test has no value for", pattern)
	}
	return method, path
}

// Every page × every role, somebody without a session, and the owner of another organization: from the table of routes.
func TestConsole_EveryPageForEveryRole(t *testing.T) {
	unraced(t)
	t.Parallel()
	h := seeConsole(t)
	values := h.parameters()
	readers := map[string]*webtest.Reader{}
	for _, role := range roles {
		readers[role] = h.as(role)
	}
	for _, route := range h.site.Routes() {
		method, path := h.address(route.Pattern, values)
		if route.Public && method != http.MethodGet {
			continue // for programs: the tests of the area
		}
		want, ok := openingsOf[route.Pattern]
		if !ok {
			if want, ok = openings[route.Needs]; !ok && method == http.MethodGet {
				t.Errorf("%s needs %s: the test does not know what it answers", route.Pattern, route.Needs)
				continue
			}
		}
		for i, role := range roles {
			r := readers[role]
			if method != http.MethodGet {
				h.changes(r, role, route, path, want[i])
				continue
			}
			got := r.Ask(http.MethodGet, path, nil)
			if got.Status != want[i] {
				t.Errorf("%s opens %s (%s): %d, want %d: %.300s", role, path, route.Needs, got.Status, want[i], got.Body)
			}
			if role == "nobody" && got.Status == http.StatusSeeOther && got.Location != "/sign-in?next="+url.QueryEscape(path) {
				t.Errorf("nobody who opens %s is sent to %s", path, got.Location)
			}
			if refused := got.Status != http.StatusOK || role == "foreign"; refused && strings.Contains(got.Body, "zebra") {
				t.Errorf("%s sees data of the project on %s", role, path)
			}
		}
	}
	h.checkAuditor(values, func(route web.Route) [7]int {
		if want, ok := openingsOf[route.Pattern]; ok {
			return want
		}
		return openings[route.Needs]
	})
}

// The owner of another organization, in the own project, does not find things of the first one by their ids: from the
// table of routes.
func TestConsole_IDsOfAnotherOrganization(t *testing.T) {
	unraced(t)
	t.Parallel()
	h := newConsole(t)
	values := h.parameters()
	values["{project}"] = "theirs"
	started := h.as("admin").Ask(http.MethodPost, "/p/default/erasures", url.Values{"identity": {"x"}, "again": {"x"}})
	if started.Status != http.StatusSeeOther {
		t.Fatalf("an erasure is answered %d %.300s", started.Status, started.Body)
	}
	values["{erasure}"] = started.Location[strings.LastIndex(started.Location, "/")+1:]
	foreign, asked := h.as("foreign"), map[string]int{}
	for _, route := range h.site.Routes() {
		for _, parameter := range []string{
			"{key}", "{webhook}", "{member}", "{request}", "{erasure}", "{node}", "{send}", "{event}",
		} {
			if !strings.Contains(route.Pattern, parameter) || route.Needs == web.Nothing {
				continue
			}
			asked[parameter]++
			method, path := h.address(route.Pattern, values)
			got := foreign.Ask(method, path, url.Values{"name": {"x"}, "sure": {"yes"}})
			if got.Status != http.StatusNotFound || strings.Contains(got.Body, "zebra") {
				t.Errorf("%s %s: %d %.300s", method, path, got.Status, got.Body)
			}
		}
	}
	if asked["{key}"] < 3 || asked["{webhook}"] < 6 || asked["{member}"] < 2 || asked["{request}"] < 4 || asked["{erasure}"] < 1 ||
		asked["{event}"] < 2 {
		t.Errorf("routes with ids: %v", asked)
	}
}

// changes checks that somebody who may not make a change is refused, and that nobody can be made to send one by another
// site. A change that is allowed is not made: the walks do that.
func (h *consoleHarness) changes(r *webtest.Reader, role string, route web.Route, path string, opening int) {
	h.t.Helper()
	if route.Public {
		return // for programs: no session opens it, and it has tests of its own
	}
	form := url.Values{"name": {"x"}}
	for _, foreign := range [][]string{
		{"Origin", "", "Sec-Fetch-Site", ""}, {"Origin", "https://evil.example"}, {"Origin", "", "Sec-Fetch-Site", "cross-site"},
	} {
		if got := r.Ask(http.MethodPost, path, form, foreign...); got.Status != http.StatusForbidden {
			h.t.Errorf("%s sends %s from another site (%q): %d", role, path, foreign, got.Status)
		}
	}
	want := opening
	switch {
	case route.Needs == web.Nothing, opening == http.StatusOK:
		return
	case role == "nobody":
		want = http.StatusUnauthorized
	}
	if got := r.Ask(http.MethodPost, path, form); got.Status != want {
		h.t.Errorf("%s sends %s (%s): %d, want %d", role, path, route.Needs, got.Status, want)
	}
}

// What customers name is text on every page that links lead to: no part of it becomes an element, an attribute or an
// address that runs.
func TestConsole_StoredMarkupIsText(t *testing.T) {
	unraced(t)
	t.Parallel()
	h := seeConsole(t)
	pages, shown := 0, 0
	h.as("owner").Crawl("/", func(page webtest.Document, from string) {
		where := page.URL.RequestURI()
		pages++
		if page.Status >= http.StatusInternalServerError {
			t.Errorf("%s, linked from %s, answered %d", where, from, page.Status)
		}
		if !strings.HasPrefix(page.Header.Get("Content-Type"), "text/html") {
			return
		}
		if strings.Contains(page.Text(), "zebra") {
			shown++
		}
		page.Find("*").Each(func(_ int, e *goquery.Selection) {
			name := goquery.NodeName(e)
			if strings.HasPrefix(name, "zebra") || name == "script" && strings.TrimSpace(e.Text()) != "" {
				t.Errorf("%s has the element %s", where, name)
			}
			for _, a := range e.Nodes[0].Attr {
				if strings.Contains(a.Key, "zebra") || strings.HasPrefix(a.Key, "on") || strings.HasPrefix(a.Val, "javascript:") {
					t.Errorf("%s has the attribute %s=%q", where, a.Key, a.Val)
				}
			}
		})
		if len(page.Secrets()) > 0 {
			t.Errorf("%s holds a key in clear", where)
		}
		checkFilters(t, page, from)
	})
	if shown == 0 {
		t.Errorf("none of %d pages shows what customers named", pages)
	}
	t.Logf("%d pages, %d of them show what customers named", pages, shown)
}

// checkFilters checks that the page shows each filter that the link to it sets, as it was meant.
func checkFilters(t *testing.T, page webtest.Document, from string) {
	t.Helper()
	for name, values := range page.URL.Query() {
		if strings.Contains(values[0], "%3C") {
			t.Errorf("%s, linked from %s, was escaped twice", page.URL.RequestURI(), from)
		}
		shown := page.Find(fmt.Sprintf("[name=%q]", name)).Length() > 0
		if !shown && !slices.Contains(unshown, name) && page.Status == http.StatusOK {
			t.Errorf("%s, linked from %s, has no field %s", page.URL.RequestURI(), from, name)
		}
	}
}

// unshown are parameters of pages that are no filters: places in a list, and what a page shows in other ways.
var unshown = []string{
	"after", "before", "events", "format", "from", "limit", "month", "reveal", "revealAll", "to",
}
