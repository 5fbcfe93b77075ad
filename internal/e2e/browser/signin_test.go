package browser

import "github.com/annals-project/annals/internal/webtest"

// signIn signs in as the Owner that the first start made.
func (s *service) signIn(r *webtest.Reader) {
	s.t.Helper()
	r.Open("/")
}
