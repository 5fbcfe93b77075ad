package account_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/runtest"
)

// While strangers have all places of visitors, a person signs in from a known browser, and nobody from another one.
func TestSignIn_PlaceOfAKnownBrowser(t *testing.T) {
	s := newScene(t, nil, false)
	s.enter()
	s.wants(s.post("/sign-out"), 200, "/sign-in")
	shared := s.site.Shared()
	at := slices.IndexFunc(shared, func(of web.Shared) bool { return of.Class == "visitors" })
	for range admission.Visitors.Total {
		hold := shared[at].Open(allowance.Owner{Organization: uuid.New()})
		runtest.Must(t, hold.Reserve(t.Context(), 1))
		defer hold.Release()
	}
	s.wants(s.post("/sign-in", "email", anasMail, "password", anas), http.StatusOK, "/")
	s.browser = newBrowser(t)
	s.wants(s.get("/sign-in"), http.StatusServiceUnavailable, "/sign-in", "too many people are signing in")
}
