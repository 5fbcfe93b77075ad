package browser

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/PuerkitoBio/goquery"

	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/webtest"
)

// shapes are what replaces in a path what differs from one thing to another of its kind.
var shapes = []struct {
	part *regexp.Regexp
	as   string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`), "ID"},
	{regexp.MustCompile(`^/p/[^/?]+`), "/p/PROJECT"},
	{regexp.MustCompile(`/(data|identities|audiences|webhooks|operations|members|rebuilds|docs/reference|docs)/([^/?]+)`), "/$1/ONE"},
}

// shapeOf is the same for pages that differ in what they show alone. Words of the console itself stay.
func shapeOf(page *url.URL) string {
	path := page.EscapedPath()
	for _, s := range shapes {
		if !strings.HasSuffix(path, "/new") {
			path = s.part.ReplaceAllString(path, s.as)
		}
	}
	return path
}

// found is one page of a shape.
type found struct{ shape, path string }

// crawl opens every page that somebody can reach by links, checks what is true of all, and returns one page of each
// shape, by its shape.
func crawl(t testing.TB, r *webtest.Reader) (pages []found) {
	t.Helper()
	known := map[string]bool{}
	r.Crawl("/", func(page webtest.Document, from string) {
		where := page.URL.RequestURI()
		if page.Status != http.StatusOK {
			t.Errorf("%s, linked from %s, answered %d: %.300s", where, from, page.Status, page.Text())
			return
		}
		if secrets := page.Secrets(); len(secrets) > 0 && where != "/openapi.json" { // whose examples are of no service
			t.Errorf("%s holds a key in clear", where)
		}
		if !strings.HasPrefix(page.Header.Get("Content-Type"), "text/html") {
			return
		}
		if n := page.Find("h1").Length(); n != 1 {
			t.Errorf("%s has %d headings of the first level", where, n)
		}
		if shape := shapeOf(page.URL); !known[shape] {
			known[shape] = true
			pages = append(pages, found{shape, where})
		}
	})
	slices.SortFunc(pages, func(a, b found) int { return strings.Compare(a.shape, b.shape) })
	return pages
}

// mostBytes is what a page transfers at most, compressed, with the files that it loads.
const mostBytes = 100_000

// transfer opens a page with compression and returns the bytes that were sent.
func transfer(t testing.TB, r *webtest.Reader, page string) (size int) {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.Base+page, http.NoBody)
	if err != nil {
		t.Error(err)
		return 0
	}
	req.Header.Set("Accept-Encoding", "gzip")
	res, err := r.HTTP.Do(req)
	if err != nil {
		t.Error(err)
		return 0
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Errorf("%s: %d, %v", page, res.StatusCode, err)
	}
	if len(body) > 1024 && res.Header.Get("Content-Encoding") != "gzip" {
		t.Errorf("%s is not compressed", page)
	}
	return len(body)
}

// filesOfPages is the bytes of the files that each page loads, in a browser that has none of them.
func filesOfPages(t testing.TB, r *webtest.Reader) (size int) {
	t.Helper()
	page := r.Open("/")
	files := page.Find("link[href], script[src]")
	files.Each(func(_ int, file *goquery.Selection) {
		size += transfer(t, r, file.AttrOr("href", file.AttrOr("src", "")))
	})
	if files.Length() < 4 {
		t.Errorf("a page loads %d files, want styles, scripts and an icon", files.Length())
	}
	return size
}

// rolesVariable is "all" where the pages of every role are walked. Otherwise those of the Owner are, who sees the most.
const rolesVariable = "ANNALS_TEST_ROLES"

// roles are what people are invited as, with their access to the first project.
var roles = []struct{ role, access string }{
	{"owner", ""}, {"admin", ""}, {"member", "write"}, {"member", "read"}, {"member", ""},
}

// TestWalk_EveryPage opens each page that somebody of a role reaches in a furnished organization: in a browser, with
// axe in both themes, and at the width of a phone. With a folder for screenshots it makes them.
func TestWalk_EveryPage(t *testing.T) {
	t.Parallel()
	needBrowser(t)
	s := start(t)
	s.furnish()
	owner := webtest.NewReader(t, s.Console)
	s.signIn(owner)
	files := filesOfPages(t, owner)
	invitation, faulty := s.offers(owner), s.faulty()
	for i, who := range roles {
		if i > 0 && os.Getenv(rolesVariable) != "all" {
			break
		}
		t.Run(strings.Trim(who.role+"-"+who.access, "-"), func(t *testing.T) {
			email, password := s.Credentials[ownerEmail], s.Credentials[ownerPassword]
			if i > 0 {
				email, password = fmt.Sprintf("walker-%d@acme.example", i), "correct horse battery"
				s.invite(owner, email, password, who.role, who.access)
			}
			r := webtest.NewReader(t, s.Console)
			r.Open("/")
			r.Submit("Sign in", map[string]string{"E-mail": email, "Password": password})
			pages := crawl(t, r)
			pages = append(pages, found{"/docs/limits", "/docs/limits"}, found{"/docs/search", "/docs/search?q=audience"},
				found{"/account/confirm", "/account/confirm?next=/account"}) // which a fresh session is not led to
			t.Logf("%d pages", len(pages))
			p := newPerson(t, s.Console)
			for _, path := range []string{"/docs", "/docs/start", invitation} { // for who is not signed in
				p.open(path)
				p.answered(http.StatusOK)
				p.accessible()
				p.fits()
			}
			s.signInAs(p, email, password)
			p.open(faulty)
			p.answered(http.StatusBadRequest)
			p.accessible()
			p.fits()
			for _, page := range pages {
				if size := transfer(t, r, page.path) + files; size > mostBytes {
					t.Errorf("%s transfers %d bytes with its files, want at most %d", page.path, size, mostBytes)
				}
				p.open(page.path)
				p.answered(http.StatusOK)
				p.accessible()
				p.fits()
				if os.Getenv(folderVariable) != "" && i == 0 {
					p.shoot(page.shape)
				}
			}
		})
	}
}

// offers makes an offer of another organization to the Owner, and one to somebody new, whose link it returns.
func (s *service) offers(owner *webtest.Reader) (link string) {
	s.t.Helper()
	second := s.secondOwner()
	second.Open("/settings/members")
	second.Submit("Invite", map[string]string{"E-mail address": s.Credentials[ownerEmail], "Role": "admin"})
	second.See("The membership is offered")
	owner.Open("/settings/members")
	owner.Submit("Invite", map[string]string{"E-mail address": "new@acme.example", "Role": "member"})
	return strings.TrimPrefix(strings.TrimSpace(owner.At.Find(".notice code").First().Text()), s.Console)
}

// faulty is the page of a faulty request of a client.
func (s *service) faulty() string {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.Console+"/oauth2/register",
		strings.NewReader(`{"client_name":"Desk","redirect_uris":["https://desk.example/back"]}`))
	runtest.Must(s.t, err)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	runtest.Must(s.t, err)
	defer func() { _ = res.Body.Close() }()
	var client struct {
		ID string `json:"client_id"`
	}
	runtest.Must(s.t, json.NewDecoder(res.Body).Decode(&client))
	return "/oauth2/consent?" + url.Values{
		"client_id": {client.ID}, "redirect_uri": {"https://desk.example/back"}, "response_type": {"token"},
	}.Encode()
}

// invite invites somebody, who sets a password.
func (s *service) invite(owner *webtest.Reader, email, password, role, access string) {
	s.t.Helper()
	owner.Open("/settings/members")
	owner.Submit("Invite", map[string]string{"E-mail address": email, "Role": role, "default": access})
	guest := newPlainReader(s)
	guest.open(strings.TrimSpace(owner.At.Find(".notice code").First().Text()))
	guest.Submit("Set the password and accept", map[string]string{"New password": password})
	guest.Answered(http.StatusOK)
}
