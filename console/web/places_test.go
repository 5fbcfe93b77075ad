package web_test

import (
	"net/http"
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
