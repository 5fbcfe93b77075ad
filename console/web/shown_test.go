package web_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/internal/runtest"
)

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
