package web_test

import (
	"fmt"
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

// A member who opens many slow pages makes the own organization wait, and no other one.
func TestSite_PlacesOfAnOrganization(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, organization.Member, "")
		s.hold = make(chan struct{})
		answers := make(chan int, 100)
		open := func() {
			res, _ := s.do(t, http.MethodGet, "/slow", nil)
			answers <- res.StatusCode
		}
		for range admission.Pages.Organization {
			go open()
		}
		synctest.Wait()
		began := time.Now()
		res, body := s.do(t, http.MethodGet, "/member", nil)
		if res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") == "" ||
			!strings.Contains(body, "too many pages of the organization") {
			t.Errorf("without a place: %d %v %s", res.StatusCode, res.Header, body)
		}
		if waited := time.Since(began); waited != admission.Pages.Wait {
			t.Errorf("waited %s", waited)
		}
		s.live = false
		if res, _ := s.do(t, http.MethodGet, "/nothing", nil); res.StatusCode != http.StatusOK {
			t.Errorf("somebody who signs in: %d", res.StatusCode)
		}
		s.live = true
		s.person.Memberships[0].Organization = other
		if res, _ := s.do(t, http.MethodGet, "/member", nil); res.StatusCode != http.StatusOK {
			t.Errorf("another organization: %d", res.StatusCode)
		}
		s.person.Memberships[0].Organization = acme
		close(s.hold)
		for range admission.Pages.Organization {
			if got := <-answers; got != http.StatusOK {
				t.Errorf("a slow page: %d", got)
			}
		}
		if res, _ := s.do(t, http.MethodGet, "/member", nil); res.StatusCode != http.StatusOK {
			t.Errorf("with a place: %d", res.StatusCode)
		}
	})
}

func TestSite_EndsSlowPages(t *testing.T) {
	for path, want := range map[string]time.Duration{"/slow": 30 * time.Second, "/long": 5 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(t, organization.Member, "")
			s.hold = make(chan struct{})
			began := time.Now()
			res, _ := s.do(t, http.MethodGet, path, nil)
			if took := time.Since(began); res.StatusCode != http.StatusServiceUnavailable || took != want {
				t.Errorf("%s: %d after %s", path, res.StatusCode, took)
			}
		})
	}
}

// wait is a page that is ready once nothing holds it up.
func (s *scene) wait(r *web.Request) error {
	select {
	case <-s.hold:
		return r.Render("page.html", "slow")
	case <-r.Context().Done():
		return r.Context().Err()
	}
}

// While strangers have all places of visitors, a browser in which a person signed in before has a place of its own.
func TestSite_PlaceOfAKnownBrowser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, organization.Member, "")
		s.live, s.hold = false, make(chan struct{})
		open := func(path, from, cookie string) (int, string) {
			res, body := s.do(t, http.MethodGet, path, func(r *http.Request) {
				r.RemoteAddr = from + ":1"
				set := httptest.NewRecorder()
				s.cookies.Set(set, web.KnownCookie, cookie, time.Hour)
				r.AddCookie(set.Result().Cookies()[0])
			})
			return res.StatusCode, body
		}
		answers := make(chan int, admission.Visitors.Total+admission.Known.Organization)
		hold := func(from, cookie string) {
			go func() {
				status, _ := open("/entrance", from, cookie)
				answers <- status
			}()
		}
		for n := range admission.Visitors.Total {
			hold(fmt.Sprintf("192.0.2.%d", 1+n/admission.Visitors.Organization), "made up")
		}
		synctest.Wait()
		const want = "too many people are signing in"
		if status, body := open("/nothing", "192.0.2.1", "made up"); status != 503 || !strings.Contains(body, want) {
			t.Errorf("a stranger without a place: %d %s", status, body)
		}
		for range admission.Known.Organization {
			if status, body := open("/nothing", "192.0.2.1", "known"); status != http.StatusOK {
				t.Errorf("a known browser: %d %s", status, body)
			}
			hold("192.0.2.1", "known")
			synctest.Wait()
		}
		if status, body := open("/nothing", "198.51.100.1", "known"); status != 503 || !strings.Contains(body, want) {
			t.Errorf("a known browser beyond the places of its person: %d %s", status, body)
		}
		for _, of := range s.site.Shared() {
			want := map[string][2]int64{
				"visitors": {admission.Visitors.Total, 1}, "known-browsers": {admission.Known.Organization, 1},
			}[of.Class]
			if got := [2]int64{of.InUse(), int64(of.Refused())}; got != want { //nolint:gosec // a few
				t.Errorf("%s: %d in use and refused, want %d", of.Class, got, want)
			}
		}
		close(s.hold)
		for range cap(answers) {
			if got := <-answers; got != http.StatusOK {
				t.Errorf("a page that had a place: %d", got)
			}
		}
	})
}

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
