package web_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/runtest"
)

// list serves the numbers from 1 to items.
func (s *scene) list(r *web.Request) error {
	var page web.Part[int]
	return web.List[int]{
		Name: "numbers", Columns: []string{"number", "formula"},
		Cells: func(n int) []any { return []any{n, "=" + strconv.Itoa(n)} },
		Read: func(after, before string, most int) (web.Part[int], error) {
			from, err := strconv.Atoi("0" + after)
			if err != nil {
				return page, fault.New(fault.Invalid, fault.CodeInvalidRequest, "no number")
			}
			if before != "" {
				to, err := strconv.Atoi(before)
				if err != nil {
					return page, err
				}
				from = to - most - 1
			}
			var items []int
			for n := from + 1; n <= min(from+most, s.items); n++ {
				if n == s.broken {
					return page, errStorage
				}
				items = append(items, n)
			}
			if err := allowance.Reserve(r.Context(), 2*int64(len(items))); err != nil {
				return page, err
			}
			if s.site.Answers != nil {
				s.most = max(s.most, s.site.Answers.InUse())
			}
			return web.PartOf(items, from > 0, from+most < s.items, strconv.Itoa), nil
		},
	}.Serve(r, "page.html", &page, &page)
}

func TestList_PagesAndFiles(t *testing.T) {
	s := newScene(t, organization.Owner, "")
	s.items = 1234
	ask := func(path string, want int) string {
		t.Helper()
		res, body := s.do(t, http.MethodGet, path, nil)
		if res.StatusCode != want {
			t.Fatalf("%s: %d %s", path, res.StatusCode, body)
		}
		return body
	}
	for path, has := range map[string]string{
		"/list": "1 2 3", "/list?after=50": "51 52", "/list?before=101": "51 52", "/list?after=1200": "1201 1202",
	} {
		if body := ask(path, http.StatusOK); !strings.Contains(body, "["+has) {
			t.Errorf("%s: %s", path, body)
		}
	}
	ask("/list?after=x", http.StatusBadRequest)
	ask("/list?before=x", http.StatusInternalServerError)
	for _, items := range []int{0, 1, 500, 1234, web.MaxTotal, web.MaxTotal + 1} {
		s.items = items
		kept := min(items, web.MaxTotal)
		lines := strings.Split(strings.TrimSpace(ask("/list?format=csv&after=7", http.StatusOK)), "\n")
		if !strings.HasPrefix(lines[0], "\ufeff") {
			t.Errorf("the file does not begin with a byte order mark: %q", lines[0])
		}
		if len(lines) != kept+1 || kept > 0 && lines[kept] != strconv.Itoa(kept)+",'="+strconv.Itoa(kept) {
			t.Errorf("%d items: %d lines, the last is %s", items, len(lines), lines[len(lines)-1])
		}
		var all struct {
			Items []int
			More  bool
		}
		if err := json.Unmarshal([]byte(ask("/list?format=json", http.StatusOK)), &all); err != nil {
			t.Fatal(err)
		}
		if len(all.Items) != kept || all.More != (items > kept) {
			t.Errorf("%d items: JSON of %d, more is %t", items, len(all.Items), all.More)
		}
	}
}

// What fails before the first row is an error, and what fails later breaks the answer off.
func TestList_FileThatFails(t *testing.T) {
	s := newScene(t, organization.Owner, "")
	for _, format := range []string{"csv", "json"} {
		s.items, s.broken = 2000, 3
		if res, body := s.do(t, http.MethodGet, "/list?format="+format, nil); res.StatusCode != http.StatusInternalServerError {
			t.Errorf("%s: %d %s", format, res.StatusCode, body)
		}
		s.broken = 1500
		func() {
			defer func() {
				if err, is := recover().(error); !is || !errors.Is(err, http.ErrAbortHandler) {
					t.Errorf("%s: the answer ends as if it was whole: %v", format, err)
				}
			}()
			s.do(t, http.MethodGet, "/list?format="+format, nil)
		}()
	}
}

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
