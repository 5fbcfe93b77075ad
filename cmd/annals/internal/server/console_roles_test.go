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

// checkAuditor opens every page as an auditor: what shows no text, and what shows texts only if the organization allows
// it. want is what the others are answered, by the pattern of the route. An auditor changes nothing.
func (h *consoleHarness) checkAuditor(values map[string]string, want func(web.Route) [7]int) {
	h.t.Helper()
	const member, admin = 2, 5 // of roles
	service, call := h.people()
	r := h.as("auditor")
	for _, texts := range []bool{false, true} {
		runtest.Must(h.t, service.SetAuditorTexts(h.t.Context(), call, h.home(), texts))
		audited, read := 0, 0
		for _, route := range h.site.Routes() {
			method, path := h.address(route.Pattern, values)
			opens := route.Auditors == web.Audited || route.Auditors == web.AuditedTexts && texts
			of := want(route)
			status := http.StatusForbidden
			switch {
			case route.Needs <= web.SignedIn:
				status = of[member]
			case opens:
				status = of[admin]
				audited++
			}
			if method != http.MethodGet {
				if route.Needs > web.SignedIn && !opens {
					if got := r.Ask(method, path, url.Values{"name": {"x"}}); got.Status != status {
						h.t.Errorf("an auditor sends %s: %d, want %d", path, got.Status, status)
					}
				}
				continue
			}
			got := r.Ask(method, path, nil)
			if got.Status != status {
				h.t.Errorf("an auditor opens %s, with texts %t: %d, want %d: %.300s", path, texts, got.Status, status, got.Body)
			}
			if strings.Contains(got.Body, "asked for an offer") {
				read++
			}
			if opens && strings.HasPrefix(path, "/p/") && !texts {
				json, csv := r.Ask(method, path+"?format=json", nil), r.Ask(method, path+"?format=csv", nil)
				h.checkNoText(path, got.Body, json.Body, csv.Body)
			}
		}
		if audited < 15 || texts != (read > 0) {
			h.t.Errorf("with texts %t an auditor opens %d pages, %d of them with texts", texts, audited, read)
		}
	}
	for _, path := range []string{"/p/default/data?label=x", "/p/default/identities?trait=note&value=x"} {
		runtest.Must(h.t, service.SetAuditorTexts(h.t.Context(), call, h.home(), false))
		if got := r.Ask(http.MethodGet, path, nil); got.Status != http.StatusForbidden {
			h.t.Errorf("an auditor without texts filters by %s: %d", path, got.Status)
		}
	}
}

// customerTexts are parts of what customers wrote in the first project: contents, labels, metadata, values of traits,
// questions.
var customerTexts = []string{
	"asked for an offer", "Planning call", "Ticket 8820", "phone", "Lyon", "sales", "When is the launch",
	"The lift is broken",
}

// checkNoText checks that the answers of a page have no text.
func (h *consoleHarness) checkNoText(path string, answers ...string) {
	h.t.Helper()
	for _, answer := range answers {
		for _, text := range customerTexts {
			if strings.Contains(answer, text) {
				h.t.Errorf("an auditor reads %q on %s", text, path)
			}
		}
	}
}

// What a form is answered: leads is a redirect, again the form with what it would do, and refused a fault.
const (
	leads   = http.StatusSeeOther
	again   = http.StatusOK
	refused = 0
)

// sentForms are forms of all routes of the console, in an order in which they can be sent.
var sentForms = []struct {
	pattern, fields string
	answer          int
}{
	{"POST /{$}", "name=Another", leads},
	{"POST /account/zone", "zone=Europe/Vienna", leads},
	{"POST /account/password", "password=correct+horse+battery", leads},
	{"POST /account/address", "email=ana@acme.example", refused},
	{"POST /account/sessions", "session=6a1b8b26-7a8e-4b8e-9f60-5b1f7a3f1c11", leads},
	{"POST /account/confirm", "password=wrong", refused},
	{"POST /account/leave", "organization=none", refused},
	{"POST /account/second-factor", "sealed=none&code=123456", refused},
	{"POST /account/second-factor/remove", "code=123456", refused},
	{"POST /account/recovery-codes", "code=123456", refused},
	{"POST /organization", "organization=none", refused},
	{"POST /offers/{offer}", "do=accept", refused},
	{"POST /link/{token}", "password=correct+horse+battery", refused},
	{"POST /agents/claim", "token=none&decision=approve", refused},
	{"POST /settings/agents/revoke", "agent=none", refused},
	{"POST /settings/agents/stop", "agent=none", refused},
	{"POST /settings/connections/revoke", "connection=none", refused},
	{"POST /oauth2/consent", "decision=approve", refused},
	{"POST /settings/organization/spend-cap", "spendCap=100000", leads},
	{"POST /settings/organization/second-factor", "", leads},
	{"POST /settings/organization/visits", "days=90", leads},
	{"POST /settings/organization/visits", "days=29", refused},
	{"POST /settings/organization/auditor-texts", "allowed=yes", leads},
	{"POST /settings/audit/verify", "", leads},
	{"POST /settings/organization/management-key", "sure=yes", leads},
	{"POST /settings/members", "email=new@acme.example&role=member", leads},
	{"POST /settings/offers/{offer}", "", refused},
	{"POST /settings/members/{member}", "do=password&sure=yes", leads},
	{"POST /p/{project}", "name=Default", leads},
	{"POST /p/{project}/reads/setting", "mode=kept&days=90", leads},
	{"POST /p/{project}/reads/setting", "mode=kept&days=none", refused},
	{"POST /p/{project}/caps", "ingestionCap=100000", leads},
	{"POST /p/{project}/keys", "name=made+once", leads},
	{"POST /p/{project}/keys/{key}/reveal", "", leads},
	{"POST /p/{project}/identity", "new=1&identity=fresh&key=team&value=x", leads},
	{"POST /p/{project}/import-identities", "text=identity,team%0Ax1,y&do=preview", again},
	{"POST /p/{project}/import-identities", "text=identity,team%0Ax1,y&do=import", leads},
	{"POST /p/{project}/new-audience", "kind=rule&new=1&slug=fresh&trait=team&operator=is&values=x&do=preview", again},
	{"POST /p/{project}/new-audience", "kind=rule&new=1&slug=fresh&match=all&trait=team&operator=is&values=x&do=save", leads},
	{"POST /p/{project}/audiences/{slug}/recompute", "", leads},
	{"POST /p/{project}/webhooks/{webhook}", "do=try&contentPath=$", again},
	{"POST /p/{project}/webhooks/{webhook}", "do=rotate", leads},
	{"POST /p/{project}/replay-dropped", "identity=nobody", leads},
	{"POST /p/{project}/webhooks/{webhook}/events/{request}/replay", "", leads},
	{"POST /p/{project}/ingest", "content=A+text", again},
	{"POST /p/{project}/recall", "query=Who+likes+tea%3F&identity=gil", leads},
	{"POST /p/{project}/data/{id}/correct", "revision=1&content=", refused},
	{"POST /p/{project}/failed/{send}", "", refused},
	{"POST /p/{project}/import", "", refused},
	{"POST /p/{project}/keys/{key}/revoke", "sure=yes", leads},
	{"POST /p/{project}/erasures", "identity=nobody&again=nobody", leads},
	{"POST /p/{project}/data/{id}/delete", "", leads},
	{"POST /p/{project}/audiences/{slug}/delete", "sure=yes", leads},
	{"POST /p/{project}/identity/delete", "identity=fresh&sure=yes", leads},
	{"POST /p/{project}/archived", "archived=true&sure=yes", leads},
	{"POST /sign-in", "email=none@acme.example&password=wrong", refused},
	{"POST /sign-in/second-factor", "code=123456", refused},
	{"POST /sign-out", "", leads},
}

// No form is answered with anything but a redirect, a fault, or the form again. What it makes is shown once, by the
// page after it. Sent again it does nothing. From the table of routes.
func TestConsole_FormsLeadToAPage(t *testing.T) {
	h := newConsole(t)
	values, owner := h.parameters(), h.as("owner")
	known := map[string]bool{}
	for _, f := range sentForms {
		known[f.pattern] = true
		_, path := h.address(f.pattern, values)
		form, err := url.ParseQuery(f.fields)
		runtest.Must(t, err)
		form.Set("form", uuid.NewString())
		first := owner.Ask(http.MethodPost, path, form)
		if f.answer == refused && first.Status < 400 || f.answer != refused && first.Status != f.answer {
			t.Errorf("%s with %s: %d, want %d: %.900s", f.pattern, f.fields, first.Status, f.answer, problemOf(first.Body))
			continue
		}
		if secrets := (webtest.Document{Body: first.Body}).Secrets(); len(secrets) > 0 || strings.Contains(first.Location, "svc_") {
			t.Errorf("%s answers with a secret", f.pattern)
		}
		if f.answer == again && !strings.Contains(first.Body, `method="post"`) {
			t.Errorf("%s with %s is answered with a page without its form", f.pattern, f.fields)
		}
		if f.answer != leads || f.pattern == "POST /sign-out" {
			continue
		}
		if second := owner.Ask(http.MethodPost, path, form); second.Status != leads || second.Location != first.Location {
			t.Errorf("%s sent again: %d to %q, want %q", f.pattern, second.Status, second.Location, first.Location)
		}
		page := owner.Ask(http.MethodGet, first.Location, nil)
		if page.Status != http.StatusOK {
			t.Errorf("%s leads to %s: %d", f.pattern, first.Location, page.Status)
		}
		if !strings.Contains(first.Location, "?shown=") {
			continue
		}
		if later := owner.Ask(http.MethodGet, first.Location, nil); !strings.Contains(later.Body, "was shown once") ||
			strings.Contains(page.Body, "was shown once") {
			t.Errorf("%s is shown twice, or never", first.Location)
		}
	}
	for _, route := range h.site.Routes() {
		if method, _, _ := strings.Cut(route.Pattern, " "); method == http.MethodPost && !route.Public && !known[route.Pattern] {
			t.Errorf("the test sends no form of %s", route.Pattern)
		}
	}
	var n int
	runtest.Must(t, h.storage.db.QueryRow(t.Context(), `select count(*) from access.keys where name = 'made once' and project_id = $1`,
		h.projectID("default")).Scan(&n))
	if n != 1 {
		t.Errorf("one form made %d keys", n)
	}
}
