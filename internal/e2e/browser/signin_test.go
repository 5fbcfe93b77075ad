package browser

import (
	"net/http"

	"github.com/annals-project/annals/internal/webtest"
)

// The names of what the first start writes for the Owner.
const (
	ownerEmail    = "ANNALS_OWNER_EMAIL"
	ownerPassword = "ANNALS_OWNER_PASSWORD"
)

// signIn signs in as the Owner that the first start made.
func (s *service) signIn(r *webtest.Reader) {
	s.t.Helper()
	r.Open("/")
	r.Submit("Sign in", map[string]string{"E-mail": s.credentials[ownerEmail], "Password": s.credentials[ownerPassword]})
	r.Answered(http.StatusOK)
}

// signInAs signs in by the form.
func (s *service) signInAs(p *person, email, password string) {
	s.t.Helper()
	p.open("/")
	p.fill("E-mail", email)
	p.fill("Password", password)
	p.click("button", "Sign in")
}
