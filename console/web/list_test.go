package web_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/internal/allowance"
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
