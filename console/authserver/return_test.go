package authserver

import (
	"net/http"
	"strings"
	"testing"

	"github.com/annals-project/annals/internal/runtest"
)

// Who leaves and returns has none of the connections of before: neither their tokens, nor a code that is open, nor a
// consent that is remembered. A new consent does not wake the tokens of the old one.
func TestReturn_WakesNoGrant(t *testing.T) {
	s := newScene(t)
	client, has := s.connected(s.ana)
	code := s.code(s.ana, client)
	_, bens := s.connected(s.ben)
	s.returns(s.ana)
	if s.lives(has.AccessToken) {
		t.Error("the access token of before is valid")
	}
	refused(t, "refresh", s.refreshes(client, has.RefreshToken), 400, invalidGrant)
	refused(t, "code", s.redeems(client, code), 400, invalidGrant)
	if list, err := s.Grants(t.Context(), s.ana); err != nil || len(list) != 0 {
		t.Errorf("the page of connections lists %+v, %v", list, err)
	}
	got := s.send(http.MethodGet, "/oauth2/consent?"+asks(client).Encode(), s.ana, "", "")
	if to := got.header.Get("Location"); strings.Contains(to, "code=") {
		t.Errorf("the consent of before is remembered: %s", to)
	}
	again := s.tokens(s.redeems(client, s.code(s.ana, client)))
	if s.lives(has.AccessToken) || !s.lives(again.AccessToken) || !s.lives(bens.AccessToken) {
		t.Error("the new consent wakes the tokens of before, or has none, or those of another person ended")
	}
	refused(t, "refresh after a new consent", s.refreshes(client, has.RefreshToken), 400, invalidGrant)
	s.returns(s.ana)
	runtest.Must(t, s.Tidy(t.Context()))
	var left int
	runtest.Must(t, s.DB.QueryRow(t.Context(), `select count(*) from ops.oauth_grants`).Scan(&left))
	if left != 1 || !s.lives(bens.AccessToken) {
		t.Errorf("%d grants are left, want Ben's", left)
	}
}

// A grant that the projection does not know yet is not deleted, as while it is built again.
func TestTidy_KeepsUnknownGrants(t *testing.T) {
	s := newScene(t)
	_, has := s.connected(s.ana)
	before := s.log.state.Grants
	s.log.state.Grants = nil
	runtest.Must(t, s.Tidy(t.Context()))
	if s.lives(has.AccessToken) {
		t.Error("a grant that is not known works")
	}
	s.log.state.Grants = before
	if !s.lives(has.AccessToken) {
		t.Error("a grant that was not known for a while is deleted")
	}
}
