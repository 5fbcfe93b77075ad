package web_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/runtest"
)

// serve answers a request with routes of a site.
func serve(t *testing.T, method, path string, routes ...web.Route) (status int, location, body string) {
	t.Helper()
	s := newScene(t, organization.Member, "")
	site, err := web.New(s.site.Config, []web.Area{{Templates: templatesOfTest, Routes: routes}})
	runtest.Must(t, err)
	r := httptest.NewRequestWithContext(t.Context(), method, console+path, http.NoBody)
	r.Header.Set("Origin", console)
	w := httptest.NewRecorder()
	runtest.Must(t, site.Serve(w, r, &httpx.PageNote{}))
	return w.Code, w.Header().Get("Location"), w.Body.String()
}

func TestPage_AfterAForm(t *testing.T) {
	var failure, unread error
	loaded := 0
	page := web.NewPage("page.html", func(*web.Request) (string, error) { loaded++; return "the data", unread })
	routes := []web.Route{
		{Pattern: "GET /page", Serve: page.Show},
		{Pattern: "POST /page", Serve: page.After("saved", func(*web.Request) (string, error) { return "/there?a=b", failure })},
	}
	if status, _, body := serve(t, http.MethodGet, "/page", routes...); status != 200 || !strings.Contains(body, "the data") {
		t.Errorf("the page: %d %s", status, body)
	}
	if status, to, _ := serve(t, http.MethodPost, "/page", routes...); status != 303 || to != "/there?a=b&done=saved" {
		t.Errorf("after a change: %d %s", status, to)
	}
	failure = fault.New(fault.Conflict, fault.CodeConflict, "somebody was first")
	status, _, body := serve(t, http.MethodPost, "/page", routes...)
	if status != 409 || !strings.Contains(body, "somebody was first") || !strings.Contains(body, "the data") {
		t.Errorf("after a refused change: %d %s", status, body)
	}
	loaded, failure = 0, errors.New("the disk is gone")
	if status, _, body := serve(t, http.MethodPost, "/page", routes...); status != 500 || loaded > 0 || strings.Contains(body, "disk") {
		t.Errorf("after a failure: %d, loaded %d times: %s", status, loaded, body)
	}
	failure, unread = nil, errors.New("the tables are gone")
	if status, _, _ := serve(t, http.MethodGet, "/page", routes...); status != 500 {
		t.Errorf("without its data: %d", status)
	}
}

func TestCSV(t *testing.T) {
	type key struct {
		Name string `json:"name"`
	}
	type row struct {
		key
		At     *time.Time `json:"at,omitempty"`
		Count  *int64     `json:"count"`
		Is     bool       `json:"is"`
		Lists  []string   `json:"lists"`
		Hidden string     `json:"-"`
	}
	csv := func(next func() ([]row, bool, error)) (int, string) {
		status, _, body := serve(t, http.MethodGet, "/csv", web.Route{Pattern: "GET /csv", Serve: func(r *web.Request) error {
			return web.CSV(r, "rows", next)
		}})
		return status, body
	}
	for _, c := range []struct {
		rows []row
		want string
	}{
		{nil, ""},
		{
			[]row{{key: key{"=1+1"}, At: &noon, Count: new(int64(7)), Is: true, Lists: []string{"a"}, Hidden: "x"}, {}},
			"'=1+1,2026-11-26T12:00:00Z,7,true,\"[\"\"a\"\"]\"\n,,,false,\n",
		},
	} {
		if _, got := csv(web.Whole(c.rows)); got != "name,at,count,is,lists\n"+c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
	pages := 0
	_, got := csv(func() ([]row, bool, error) { pages++; return make([]row, 4_000), true, nil })
	if lines := strings.Count(got, "\n"); lines != 1+web.MaxTotal || pages != 3 {
		t.Errorf("an endless list has %d lines of %d pages", lines, pages)
	}
}

func TestForwards(t *testing.T) {
	var pager web.Pager
	var cursor string
	open := func(query string, next string) {
		serve(t, http.MethodGet, "/list?"+query, web.Route{Pattern: "GET /list", Serve: func(r *web.Request) error {
			cursor, pager = r.Cursor(), r.Forwards(next)
			return nil
		}})
	}
	steps := []struct{ query, next, cursor, wantNext, wantPrevious string }{
		{"", "a", "", "~a", ""},
		{"after=~a", "b", "a", "~a~b", "~"},
		{"after=~a~b", "", "b", "", "~a"},
		{"before=~a", "b", "a", "~a~b", "~"},
		{"before=~", "a", "", "~a", ""},
		{"after=x", "", "x", "", ""},
	}
	for _, s := range steps {
		if open(s.query, s.next); cursor != s.cursor || pager.Next != s.wantNext || pager.Previous != s.wantPrevious {
			t.Errorf("%q: at %q, %+v, want %+v", s.query, cursor, pager, s)
		}
	}
	trail := ""
	for n := range 60 {
		next := fmt.Sprintf("%0100d", n)
		open("after="+url.QueryEscape(trail), next)
		if trail = pager.Next; !strings.HasSuffix(trail, "~"+next) || len(trail) > 4_200 {
			t.Fatalf("page %d is at %.20s…, %d characters", n, trail, len(trail))
		}
	}
}
