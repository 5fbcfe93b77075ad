package web_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/internal/admission"
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
