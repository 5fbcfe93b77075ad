package web_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/console/signin"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/access"
)

const console = "https://console.acme.example"

var (
	acme, other     = uuid.New(), uuid.New()
	mine, hidden    = uuid.New(), uuid.New()
	ana             = uuid.New()
	noon            = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	errStorage      = errors.New("the tables are away")
	templatesOfTest = fstest.MapFS{
		"page.html": {Data: []byte(`{{define "title"}}Page{{end}}{{define "main"}}<h1>{{.Data}}</h1>{{$.Time .Now}}{{end}}`)},
	}
)

// scene is a site with one person, whose memberships a test sets.
type scene struct {
	person  access.Person
	session signin.Session
	live    bool
	// guest is somebody who is a member of nothing, and not removed.
	guest   bool
	closed  uuid.UUID
	uploads map[string]string // the files of the last upload, by name
	slow    error
	// items is how many /list has, and broken the one that cannot be read.
	items, broken int
	// most is the most that was reserved of answers when /list was read.
	most    int64
	site    *web.Site
	cookies web.Cookies
	// hold holds up the pages /slow and /long.
	hold chan struct{}
}

func (s *scene) Session(_ context.Context, token string) (signin.Session, bool, error) {
	return s.session, s.live && token == "token", nil
}

func (s *scene) KnownBrowser(_ context.Context, cookie string) (person uuid.UUID, err error) {
	if cookie == "known" {
		person = ana
	}
	return person, nil
}

func (s *scene) Opens(_ signin.Session, _ string, organization uuid.UUID) bool {
	return organization != s.closed
}

func (s *scene) Memberships(context.Context, uuid.UUID) (access.Person, bool, error) {
	p := s.person
	p.Memberships = slices.Clone(p.Memberships)
	return p, len(p.Memberships) > 0 || s.guest, s.slow
}

func (s *scene) ProjectNamed(_ context.Context, in uuid.UUID, slug string) (auth.Named, bool, error) {
	switch {
	case in == acme && slug == "mine":
		return auth.Named{Project: auth.Project{ID: mine, Slug: slug}}, true, nil
	case in == acme && slug == "hidden", in == other && slug == "theirs":
		return auth.Named{Project: auth.Project{ID: hidden, Slug: slug}}, true, nil
	default:
		return auth.Named{}, false, nil
	}
}

func newScene(t *testing.T, role organization.Role, to organization.Access) *scene {
	t.Helper()
	s := &scene{
		person: access.Person{ID: ana, Email: "ana@acme.example", Memberships: []access.Membership{{
			Organization: acme, Name: "Acme <&>", Role: role, Prepared: true, Access: map[uuid.UUID]organization.Access{mine: to},
		}}},
		session: signin.Session{Person: ana, Organization: acme}, live: true,
		cookies: web.NewCookies(console, uuid.Nil),
	}
	show := func(r *web.Request) error { return r.Render("page.html", "<b>"+r.URL.Query().Get("text")) }
	routes := []web.Route{
		{Pattern: "GET /outside", Needs: web.SignedIn, Unguarded: true, Outside: true, Serve: show},
		{Pattern: "POST /change", Needs: web.Member, Serve: func(r *web.Request) error {
			return r.Done("/member", "saved")
		}},
		{Pattern: "POST /upload", Needs: web.Member, Body: 16 << 20, Serve: func(r *web.Request) error {
			s.uploads = map[string]string{"field": r.PostFormValue("field")}
			for _, f := range r.Files("file") {
				text, err := io.ReadAll(f.Open())
				if err != nil || int64(len(text)) != f.Size {
					return errors.Join(err, fmt.Errorf("read %d bytes of %d", len(text), f.Size))
				}
				s.uploads[f.Name] = string(text)
			}
			return r.Done("/member", "saved")
		}},
		{Pattern: "GET /failing", Needs: web.Nothing, Serve: func(*web.Request) error { return errStorage }},
		{Pattern: "GET /refused", Needs: web.Nothing, Serve: func(r *web.Request) error {
			return r.Invalid(fault.New(fault.Invalid, fault.CodeInvalidRequest, "no <i>"), "page.html", "again")
		}},
		{Pattern: "GET /leaves", Needs: web.Nothing, Leaves: true, Serve: show},
		{Pattern: "GET /account", Needs: web.SignedIn, Unguarded: true, Serve: show},
		{Pattern: "GET /rows", Needs: web.Member, Serve: func(r *web.Request) error {
			return r.Rows("a list", []string{"name"}, func(yield func([]string, error) bool) {
				_ = yield([]string{"=1+1"}, nil) && yield([]string{"plain"}, nil)
			})
		}},
	}
	routes = append(routes, web.Route{Pattern: "GET /list", Needs: web.Member, Auditors: web.Audited, Serve: s.list},
		web.Route{Pattern: "GET /audited", Needs: web.Admin, Auditors: web.Audited, Serve: show},
		web.Route{Pattern: "GET /p/{project}/audited", Needs: web.Manage, Auditors: web.Audited, Serve: show},
		web.Route{Pattern: "GET /p/{project}/texts", Needs: web.Read, Auditors: web.AuditedTexts, Serve: show},
		web.Route{Pattern: "GET /operator/audited", Needs: web.Operator, Auditors: web.Audited, Serve: show})
	routes = append(routes, web.Route{Pattern: "GET /slow", Needs: web.Member, Serve: s.wait},
		web.Route{Pattern: "GET /entrance", Serve: s.wait},
		web.Route{Pattern: "GET /long", Needs: web.Member, Time: 5 * time.Minute, Serve: s.wait})
	for path, needs := range paths {
		routes = append(routes, web.Route{Pattern: "GET " + path, Needs: needs, Serve: show})
	}
	var err error
	s.site, err = web.New(web.Config{
		URL: console, Sessions: s, Access: s, Cookies: s.cookies, Admit: func() error { return nil },
		Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return noon },
	}, []web.Area{{Templates: templatesOfTest, Routes: routes}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var paths = map[string]web.Needs{
	"/nothing": web.Nothing, "/signed-in": web.SignedIn, "/member": web.Member, "/p/{project}/read": web.Read,
	"/p/{project}/write": web.Write, "/p/{project}/manage": web.Manage, "/admin": web.Admin, "/owner": web.Owner,
	"/operator": web.Operator,
}

// answer is what an answer has besides its body.
type answer struct {
	StatusCode int
	Header     http.Header
}

// do sends a request as a browser of the person would.
func (s *scene) do(t *testing.T, method, path string, change func(*http.Request)) (answer, string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, console+path, http.NoBody)
	set := httptest.NewRecorder()
	s.cookies.Set(set, web.SessionCookie, "token", time.Hour)
	r.AddCookie(set.Result().Cookies()[0])
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	if err := s.site.Serve(w, r, &httpx.PageNote{}); err != nil {
		t.Fatal(err)
	}
	return answer{w.Code, w.Header()}, w.Body.String()
}

// Every need × every role, from one table.
func TestSite_WhoMayOpenWhat(t *testing.T) {
	const ok, sign, no, missing = http.StatusOK, http.StatusSeeOther, http.StatusForbidden, http.StatusNotFound
	people := []string{"nobody", "without access", "read", "write", "admin", "owner", "operator"}
	for path, want := range map[string][7]int{
		"/nothing":        {ok, ok, ok, ok, ok, ok, ok},
		"/signed-in":      {sign, ok, ok, ok, ok, ok, ok},
		"/member":         {sign, ok, ok, ok, ok, ok, ok},
		"/p/mine/read":    {sign, missing, ok, ok, ok, ok, ok},
		"/p/mine/write":   {sign, missing, no, ok, ok, ok, ok},
		"/p/mine/manage":  {sign, missing, no, no, ok, ok, ok},
		"/p/hidden/read":  {sign, missing, missing, missing, ok, ok, ok},
		"/p/theirs/read":  {sign, missing, missing, missing, missing, missing, missing},
		"/p/unknown/read": {sign, missing, missing, missing, missing, missing, missing},
		"/admin":          {sign, no, no, no, ok, ok, ok},
		"/owner":          {sign, no, no, no, no, ok, ok},
		"/operator":       {sign, no, no, no, no, no, ok},
	} {
		for i, who := range people {
			role := organization.Member
			switch who {
			case "admin":
				role = organization.Admin
			case "owner", "operator":
				role = organization.Owner
			}
			to := map[string]organization.Access{"read": organization.ReadAccess, "write": organization.WriteAccess}[who]
			s := newScene(t, role, to)
			s.live = who != "nobody"
			s.person.Memberships[0].First = who == "operator"
			res, body := s.do(t, http.MethodGet, path, nil)
			if res.StatusCode != want[i] {
				t.Errorf("%s opens %s: %d, want %d", who, path, res.StatusCode, want[i])
			}
			if want[i] != ok && strings.Contains(body, "<h1>&lt;b&gt;") {
				t.Errorf("%s sees %s", who, path)
			}
		}
	}
}

func TestSite_SessionEndsWithTheMembership(t *testing.T) {
	s := newScene(t, organization.Owner, "")
	s.person.Memberships = nil
	if res, _ := s.do(t, http.MethodGet, "/member", nil); res.StatusCode != http.StatusSeeOther {
		t.Errorf("a removed person gets %d", res.StatusCode)
	}
	s = newScene(t, organization.Owner, "")
	s.slow = errStorage
	if res, body := s.do(t, http.MethodGet, "/member", nil); res.StatusCode != http.StatusInternalServerError ||
		strings.Contains(body, errStorage.Error()) {
		t.Errorf("without tables: %d %s", res.StatusCode, body)
	}
}

func TestSite_SessionThatDoesNotOpenAnOrganization(t *testing.T) {
	s := newScene(t, organization.Owner, "")
	second := access.Membership{Organization: other, Role: organization.Owner, Prepared: true}
	s.person.Memberships = append(s.person.Memberships, second)
	for closed, want := range map[uuid.UUID][2]int{uuid.Nil: {200, 200}, other: {200, 404}, acme: {404, 200}} {
		s.closed = closed
		for i, path := range []string{"/p/mine/read", "/p/theirs/read"} {
			if res, _ := s.do(t, http.MethodGet, path, nil); res.StatusCode != want[i] {
				t.Errorf("without %s, %s: %d, want %d", closed, path, res.StatusCode, want[i])
			}
		}
	}
}

func TestSite_SessionThatOpensNothing(t *testing.T) {
	s := newScene(t, organization.Owner, "")
	s.closed = acme
	for path, want := range map[string]int{"/member": 403, "/nothing": 200} {
		if res, _ := s.do(t, http.MethodGet, path, nil); res.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, res.StatusCode, want)
		}
	}
}

// A person of no organization opens the pages outside of all, and nothing else.
func TestSite_PersonOfNoOrganization(t *testing.T) {
	s := newScene(t, organization.Owner, "")
	s.person.Memberships, s.guest = nil, true
	if res, body := s.do(t, http.MethodGet, "/outside", nil); res.StatusCode != 200 || !strings.Contains(body, "ana@acme") {
		t.Errorf("a page outside: %d %s", res.StatusCode, body)
	}
	if res, _ := s.do(t, http.MethodGet, "/member", nil); res.StatusCode != 303 || res.Header.Get("Location") != "/offers" {
		t.Errorf("another page: %d at %s", res.StatusCode, res.Header.Get("Location"))
	}
	res, body := s.do(t, http.MethodPost, "/change", func(r *http.Request) { r.Header.Set("Origin", console) })
	if res.StatusCode != 403 || !strings.Contains(body, "accept an offer first") {
		t.Errorf("a change: %d %s", res.StatusCode, body)
	}
	s.guest = false
	if res, _ := s.do(t, http.MethodGet, "/outside", nil); !strings.HasPrefix(res.Header.Get("Location"), "/sign-in") {
		t.Errorf("a removed person: %d at %s", res.StatusCode, res.Header.Get("Location"))
	}
}

func TestSite_SecondFactorThatTheOrganizationRequires(t *testing.T) {
	s := newScene(t, organization.Owner, "")
	s.person.Memberships[0].SecondFactor = true
	for path, want := range map[string]string{"/member": "/account/second-factor", "/account": ""} {
		if res, _ := s.do(t, http.MethodGet, path, nil); res.Header.Get("Location") != want {
			t.Errorf("%s leads to %q", path, res.Header.Get("Location"))
		}
	}
	// A link to a project of another organization follows the rule of that one.
	second := access.Membership{Organization: other, Role: organization.Owner, Prepared: true, SecondFactor: true}
	s.person.Memberships[0].SecondFactor = false
	s.person.Memberships = append(s.person.Memberships, second)
	for path, want := range map[string]string{"/p/theirs/read": "/account/second-factor", "/p/mine/read": ""} {
		if res, _ := s.do(t, http.MethodGet, path, nil); res.Header.Get("Location") != want {
			t.Errorf("%s leads to %q", path, res.Header.Get("Location"))
		}
	}
	s.session.SecondFactor = true
	if res, _ := s.do(t, http.MethodGet, "/member", nil); res.StatusCode != http.StatusOK {
		t.Errorf("with a second factor: %d", res.StatusCode)
	}
}

func TestSite_ChangesComeFromItsOwnPages(t *testing.T) {
	s := newScene(t, organization.Member, "")
	for _, c := range []struct {
		name    string
		headers map[string]string
		want    int
	}{
		{"nothing", nil, http.StatusForbidden},
		{"its origin", map[string]string{"Origin": console}, http.StatusSeeOther},
		{"another origin", map[string]string{"Origin": "https://evil.example"}, http.StatusForbidden},
		{"no scheme", map[string]string{"Origin": "http://console.acme.example"}, http.StatusForbidden},
		{"an opaque origin", map[string]string{"Origin": "null", "Sec-Fetch-Site": "same-origin"}, http.StatusForbidden},
		{"its site", map[string]string{"Sec-Fetch-Site": "same-origin"}, http.StatusSeeOther},
		{"a neighbouring site", map[string]string{"Sec-Fetch-Site": "same-site"}, http.StatusForbidden},
		{"another site", map[string]string{"Sec-Fetch-Site": "cross-site"}, http.StatusForbidden},
		{"typed by hand", map[string]string{"Sec-Fetch-Site": "none"}, http.StatusForbidden},
	} {
		res, _ := s.do(t, http.MethodPost, "/change", func(r *http.Request) {
			for name, value := range c.headers {
				r.Header.Set(name, value)
			}
		})
		if res.StatusCode != c.want {
			t.Errorf("%s: %d, want %d", c.name, res.StatusCode, c.want)
		}
	}
}

func TestSite_Answers(t *testing.T) {
	s := newScene(t, organization.Member, "")
	for _, c := range []struct {
		method, path string
		status       int
		has, hasNot  string
	}{
		{http.MethodGet, "/member?text=%3Cscript%3E", 200, "&lt;b&gt;&lt;script&gt;", "<script>"},
		{http.MethodGet, "/member?done=saved", 200, "Saved.", "role=\"alert\""},
		{http.MethodGet, "/member?done=%3Cb%3E", 200, "Acme &lt;&amp;&gt;", "role=\"status\""},
		{http.MethodGet, "/member?format=json&text=x", 200, `"\u003cb\u003ex"`, "<h1>"},
		{http.MethodGet, "/rows", 200, "name\n'=1+1\nplain\n", "\n=1"},
		{http.MethodGet, "/refused", 400, "no &lt;i&gt;", "<i>"},
		{http.MethodGet, "/failing", 500, "internal", "tables"},
		{http.MethodGet, "/nowhere", 404, "no such page", "nowhere</"},
		{http.MethodDelete, "/member", 405, "no DELETE", ""},
		{http.MethodGet, "/change", 405, "no GET", ""},
	} {
		res, body := s.do(t, c.method, c.path, nil)
		if res.StatusCode != c.status || !strings.Contains(body, c.has) || c.hasNot != "" && strings.Contains(body, c.hasNot) {
			t.Errorf("%s %s: %d %s", c.method, c.path, res.StatusCode, body)
		}
		if res.Header.Get("Cache-Control") != "no-store" || !strings.Contains(res.Header.Get("Content-Security-Policy"), "default-src 'self'") {
			t.Errorf("%s %s has the headers %v", c.method, c.path, res.Header)
		}
	}
	for path, want := range map[string]bool{"/member": true, "/leaves": false} {
		res, _ := s.do(t, http.MethodGet, path, nil)
		if has := strings.Contains(res.Header.Get("Content-Security-Policy"), "form-action"); has != want {
			t.Errorf("%s has a policy of forms: %v", path, has)
		}
	}
	if _, body := s.do(t, http.MethodGet, "/member", func(r *http.Request) {
		r.AddCookie(&http.Cookie{Name: "zone", Value: "Europe/Zurich"})
	}); !strings.Contains(body, `title="2026-11-26 12:00:00 UTC">2026-11-26 13:00:00<`) {
		t.Errorf("no time of the reader: %s", body)
	}
}

func TestSite_BoundsBodies(t *testing.T) {
	s := newScene(t, organization.Member, "")
	for size, want := range map[int]int{64 << 10: http.StatusSeeOther, 64<<10 + 1: http.StatusRequestEntityTooLarge} {
		res, _ := s.do(t, http.MethodPost, "/change", func(r *http.Request) {
			r.Header.Set("Origin", console)
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.Body = io.NopCloser(strings.NewReader("a=" + strings.Repeat("x", size-2)))
		})
		if res.StatusCode != want {
			t.Errorf("%d bytes: %d, want %d", size, res.StatusCode, want)
		}
	}
}

func TestPath(t *testing.T) {
	for _, id := range []string{"a/b", "a%2Fb", "ä ?#", "a//b"} {
		u, err := url.Parse(web.Path("p", id))
		if err != nil || u.Path != "/p/"+id {
			t.Errorf("%q becomes %v, %v", id, u, err)
		}
	}
}

func TestCookies(t *testing.T) {
	for address, want := range map[string]string{
		"https://a.example": "__Host-annals-00000000-session", "http://localhost:8081": "annals-00000000-session",
	} {
		w := httptest.NewRecorder()
		web.NewCookies(address, uuid.Nil).Set(w, web.SessionCookie, "v", time.Hour)
		c := w.Result().Cookies()[0]
		if c.Name != want || !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Secure != strings.HasPrefix(address, "https") {
			t.Errorf("%s: %+v", address, c)
		}
	}
}

// A database that does not answer is named on a page, which loads itself again and offers no sign-in.
func TestSite_DatabaseAway(t *testing.T) {
	s := newScene(t, organization.Member, "")
	s.slow = context.DeadlineExceeded
	got, body := s.do(t, http.MethodGet, "/member", nil)
	if got.StatusCode != 503 || got.Header.Get("Refresh") != "5" || !strings.Contains(body, "the database does not answer") ||
		!strings.Contains(body, "Nothing was changed") || strings.Contains(body, `href="/sign-in"`) {
		t.Errorf("a page: %d, refresh %q: %s", got.StatusCode, got.Header.Get("Refresh"), body)
	}
	got, body = s.do(t, http.MethodPost, "/change", func(r *http.Request) { r.Header.Set("Origin", console) })
	if got.Header.Get("Refresh") != "" || strings.Contains(body, "Nothing was changed") {
		t.Errorf("a change: %d: %s", got.StatusCode, body)
	}
}

// Another name of this machine leads to the address of the console; other hosts are as they are.
func TestSite_OtherNameOfThisMachine(t *testing.T) {
	s := newScene(t, organization.Member, "")
	cfg := s.site.Config
	cfg.URL = "http://127.0.0.1:8081"
	site, err := web.New(cfg, []web.Area{{Templates: templatesOfTest, Routes: []web.Route{
		{Pattern: "GET /sign-in", Serve: func(r *web.Request) error { return r.Render("page.html", "here") }},
		{Pattern: "GET /public", Public: true, Serve: func(r *web.Request) error { return r.Text("text/plain", "here") }},
	}}})
	runtest.Must(t, err)
	s.site = site
	for _, c := range []struct{ host, path, to string }{
		{"localhost:8081", "/sign-in?next=/a", "http://127.0.0.1:8081/sign-in?next=/a"},
		{"[::1]:8081", "/sign-in", "http://127.0.0.1:8081/sign-in"},
		{"127.0.0.1:8081", "/sign-in", ""},
		{"localhost:9000", "/sign-in", ""},
		{"annals.example:8081", "/sign-in", ""},
		{"localhost:8081", "/public", ""},
	} {
		got, _ := s.do(t, http.MethodGet, c.path, func(r *http.Request) { r.Host = c.host })
		if to := got.Header.Get("Location"); to != c.to {
			t.Errorf("%s%s leads to %q, want %q", c.host, c.path, to, c.to)
		}
	}
	got, body := s.do(t, http.MethodGet, "/sign-in", func(r *http.Request) {
		r.Method = http.MethodPost
		r.Header.Set("Origin", "http://localhost:8081")
	})
	if got.StatusCode != http.StatusMethodNotAllowed && !strings.Contains(body, cfg.URL) {
		t.Errorf("a form from there: %d %s", got.StatusCode, body)
	}
}

// A refused form of another origin names the address of the console.
func TestSite_ForeignFormNamesTheAddress(t *testing.T) {
	s := newScene(t, organization.Member, "")
	got, body := s.do(t, http.MethodPost, "/change", func(r *http.Request) { r.Header.Set("Origin", "http://localhost:8081") })
	if got.StatusCode != 403 || !strings.Contains(body, `<a href="`+console+`">`) || strings.Contains(body, `href="/sign-in"`) {
		t.Errorf("%d %s", got.StatusCode, body)
	}
}

// What acts at once is asked first where no script did, and changes nothing before.
func TestRequest_AskFirst(t *testing.T) {
	s := newOnceScene(t)
	done := 0
	cfg := s.site.Config
	site, err := web.New(cfg, []web.Area{{Templates: templatesOfTest, Routes: []web.Route{
		{Pattern: "POST /archive", Needs: web.Member, Serve: func(r *web.Request) error {
			if err := r.AskFirst("archive"); err != nil {
				return err
			}
			done++
			return r.Done("/member", "saved")
		}},
	}}})
	runtest.Must(t, err)
	s.site = site
	status, _, body := s.send("/archive", "one", "what <i>")
	if status != 200 || done != 0 || !strings.Contains(body, "Archive this project?") ||
		!strings.Contains(body, `name="text" value="what &lt;i&gt;"`) || strings.Contains(body, `value="one"`) {
		t.Errorf("asked: %d, did %d things: %s", status, done, body)
	}
	if status, _, _ := s.sendForm("/archive", url.Values{"form": {"two"}, "sure": {"yes"}}); status != 303 || done != 1 {
		t.Errorf("sure: %d, did %d things", status, done)
	}
}

// Pages of faults have words for people, and the code for support.
func TestSite_FaultsInWords(t *testing.T) {
	s := newScene(t, organization.Member, "")
	for path, want := range map[string]string{"/none": "There is no such page", "/change": "This address takes no such request"} {
		if _, body := s.do(t, http.MethodGet, path, nil); !strings.Contains(body, "<h1>"+want+"</h1>") ||
			!strings.Contains(body, fault.CodeNotFound) && !strings.Contains(body, fault.CodeMethodNotAllowed) {
			t.Errorf("%s: %s", path, body)
		}
	}
}
