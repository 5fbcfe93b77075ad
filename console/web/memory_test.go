package web_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/runtest"
)

// recorder notes what is reserved of an allowance while an answer is written.
type recorder struct {
	*httptest.ResponseRecorder

	of   *allowance.Allowance
	held int64
}

func (w *recorder) Write(p []byte) (int, error) {
	w.held = w.of.InUse()
	return w.ResponseRecorder.Write(p)
}

// What a page reads and makes is reserved until it is written, as an answer of the API is.
func TestRequest_ReservesWhatItMakes(t *testing.T) {
	const (
		share = 8 << 20
		read  = 1 << 20
		large = 3 << 20
	)
	s := newScene(t, organization.Member, organization.ReadAccess)
	cfg := s.site.Config
	// A reservation without room is refused at once.
	cfg.Answers = allowance.New(allowance.Config{Total: 2 * share, Share: share, Refusal: "no room"})
	page := func(length int) func(*web.Request) error {
		return func(r *web.Request) error {
			if err := allowance.Reserve(r.Context(), int64(length)/3); err != nil { // as queries do
				return err
			}
			return r.Render("page.html", strings.Repeat("x", length))
		}
	}
	site, err := web.New(cfg, []web.Area{{Templates: templatesOfTest, Routes: []web.Route{
		{Pattern: "GET /p/{project}/large", Needs: web.Read, Serve: page(large)},
		{Pattern: "GET /p/{project}/small", Needs: web.Read, Serve: page(0)},
	}}})
	runtest.Must(t, err)
	s.site = site
	open := func(path string) *recorder {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, console+"/p/mine"+path, http.NoBody)
		set := httptest.NewRecorder()
		s.cookies.Set(set, web.SessionCookie, "token", time.Hour)
		r.AddCookie(set.Result().Cookies()[0])
		w := &recorder{ResponseRecorder: httptest.NewRecorder(), of: cfg.Answers}
		runtest.Must(t, site.Serve(w, r, &httpx.PageNote{}))
		return w
	}
	for path, most := range map[string]int64{"/large": read + large + 1<<20, "/large?format=json": read + 5*large} {
		w := open(path)
		if w.Code != http.StatusOK || w.Body.Len() < large || w.held < min(read+large, share) || w.held > most {
			t.Errorf("%s: %d with %d bytes, of which %d were reserved", path, w.Code, w.Body.Len(), w.held)
		}
		if held := cfg.Answers.InUse(); held != 0 {
			t.Errorf("%s: %d bytes stay reserved", path, held)
		}
	}
	for _, room := range []int64{0, read + large/2} { // for what is read, or not even for that
		other := cfg.Answers.Open(allowance.Owner{Organization: acme})
		runtest.Must(t, other.Reserve(t.Context(), share-room))
		for _, path := range []string{"/large", "/large?format=json"} {
			if w := open(path); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "no room") {
				t.Errorf("%s without room: %d", path, w.Code)
			}
		}
		if w := open("/small"); w.Code != http.StatusOK {
			t.Errorf("a small page without room: %d %s", w.Code, w.Body)
		}
		other.Release()
	}
}

// Pages that nobody reads lose the memory that another organization waits for.
func TestRequest_MemoryOfUnreadPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startCrowd(t)
		for range admission.Answers.Total / admission.Answers.Organization {
			s.send(s.member(uuid.New()), http.MethodGet, "/kept", 0)
		}
		synctest.Wait()
		if held := s.answers.InUse(); held != admission.Answers.Total {
			t.Fatalf("%d bytes are reserved", held)
		}
		if status, body, err := read(s.send(s.member(acme), http.MethodGet, "/kept", 0)); status != http.StatusOK || err != nil {
			t.Errorf("a reader of another organization: %d %s, %v", status, body, err)
		}
	})
}

// A list that is written as a file keeps the memory of one part.
func TestList_MemoryOfOnePart(t *testing.T) {
	s := newScene(t, organization.Admin, "")
	s.site.Answers = allowance.New(allowance.Config{Total: 1 << 20, Share: 1 << 20, Refusal: "no room"})
	s.items = 1700
	for _, format := range []string{"csv", "json"} {
		s.most = 0
		if res, body := s.do(t, http.MethodGet, "/list?format="+format, nil); res.StatusCode != http.StatusOK {
			t.Fatalf("%d %s", res.StatusCode, body)
		}
		if s.most != 1000 || s.site.Answers.InUse() != 0 {
			t.Errorf("%s: at most %d bytes were reserved, want those of a part, and %d stay", format, s.most, s.site.Answers.InUse())
		}
	}
}
