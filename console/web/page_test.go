package web_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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

func TestSliceOf(t *testing.T) {
	items := []int{1, 2, 3, 4, 5}
	for _, c := range []struct {
		after, before string
		want          web.Part[int]
	}{
		{"", "", web.Part[int]{Items: []int{1, 2}, Pager: web.Pager{Next: "2", Total: "5"}}},
		{"2", "", web.Part[int]{Items: []int{3, 4}, Pager: web.Pager{Previous: "3", Next: "4", Total: "5"}}},
		{"4", "", web.Part[int]{Items: []int{5}, Pager: web.Pager{Previous: "5", Total: "5"}}},
		{"", "5", web.Part[int]{Items: []int{3, 4}, Pager: web.Pager{Previous: "3", Next: "4", Total: "5"}}},
		{"", "2", web.Part[int]{Items: []int{1, 2}, Pager: web.Pager{Next: "2", Total: "5"}}},
		{"99", "", web.Part[int]{Items: []int{}, Pager: web.Pager{Previous: "6", Total: "5"}}},
		{"-7", "", web.Part[int]{Items: []int{1, 2}, Pager: web.Pager{Next: "2", Total: "5"}}},
		{"x", "x", web.Part[int]{Items: []int{1, 2}, Pager: web.Pager{Next: "2", Total: "5"}}},
	} {
		if diff := cmp.Diff(c.want, web.SliceOf(items, c.after, c.before, 2)); diff != "" {
			t.Errorf("after %q, before %q (-want +got):\n%s", c.after, c.before, diff)
		}
	}
}

func TestForwards(t *testing.T) {
	var at string
	read := func(after, before, next string) web.Pager {
		part, err := web.Forwards(after, before, func(cursor string) ([]int, string, error) {
			at = cursor
			return []int{7}, next, nil
		})
		runtest.Must(t, err)
		return part.Pager
	}
	for _, c := range []struct {
		after, before, next, at string
		want                    web.Pager
	}{
		{"", "", "a", "", web.Pager{Next: "~a"}},
		{"~a", "", "b", "a", web.Pager{Next: "~a~b", Previous: "~"}},
		{"~a~b", "", "", "b", web.Pager{Previous: "~a"}},
		{"", "~a", "b", "a", web.Pager{Next: "~a~b", Previous: "~"}},
		{"", "~", "a", "", web.Pager{Next: "~a"}},
		{"x", "", "", "x", web.Pager{}},
	} {
		if got := read(c.after, c.before, c.next); got != c.want || at != c.at {
			t.Errorf("%+v: at %q, %+v", c, at, got)
		}
	}
	trail := ""
	for n := range 60 {
		next := fmt.Sprintf("%0100d", n)
		if trail = read(trail, "", next).Next; !strings.HasSuffix(trail, "~"+next) || len(trail) > 4_200 {
			t.Fatalf("page %d is at %.20s…, %d characters", n, trail, len(trail))
		}
	}
}
