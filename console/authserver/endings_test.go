package authserver

import (
	"net/http"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/internal/runtest"
)

// opens reports whether an access token opens /mcp.
func (s *scene) opens(token string) bool {
	s.t.Helper()
	_, err := s.Authenticate(s.t.Context(), token)
	if err != nil && err != ErrToken { //nolint:errorlint // as it is
		s.t.Error(err)
	}
	return err == nil
}

// A grant that was made without a second factor is refused while the organization requires one, and not after another
// consent with one. What it gave before stays refused then.
func TestGrant_WithoutSecondFactor(t *testing.T) {
	s := newScene(t)
	client, before := s.connected(s.ana)
	code := s.code(s.ana, client)
	s.people[s.ana].Memberships[0].SecondFactor = true
	if s.opens(before.AccessToken) {
		t.Error("a grant without a second factor opens what requires one")
	}
	refused(t, "a refresh", s.refreshes(client, before.RefreshToken), 400, invalidGrant)
	refused(t, "a code", s.redeems(client, code), 400, invalidGrant)
	s.people[s.ana].Memberships[0].SecondFactor = false
	if !s.opens(before.AccessToken) {
		t.Error("a grant stays refused")
	}
	s.tokens(s.redeems(client, code))
	before = s.tokens(s.refreshes(client, before.RefreshToken))
	s.people[s.ana].Memberships[0].SecondFactor = true
	s.second = true
	if got := s.send(http.MethodGet, "/oauth2/consent?"+asks(client).Encode(), s.ana, "", ""); got.status != http.StatusOK {
		t.Errorf("a consent without a second factor is remembered for a session with one: %d", got.status)
	}
	after := s.tokens(s.redeems(client, s.code(s.ana, client)))
	if !s.opens(after.AccessToken) || s.opens(before.AccessToken) {
		t.Error("the consent with a second factor does not count, or the one without does")
	}
	refused(t, "a refresh of before", s.refreshes(client, before.RefreshToken), 400, invalidGrant)
	s.tokens(s.refreshes(client, after.RefreshToken))
}

// What ended with all of the person is refused at once, also if the process ends before the log has it.
func TestEndAll(t *testing.T) {
	s := newScene(t)
	client, has := s.connected(s.ana)
	code := s.code(s.ana, client)
	_, bens := s.connected(s.ben)
	runtest.Must(t, pgx.BeginFunc(t.Context(), s.DB, func(tx pgx.Tx) error { return s.EndAll(t.Context(), tx, s.ana) }))
	if s.opens(has.AccessToken) || !s.opens(bens.AccessToken) {
		t.Error("a token of Ana opens, or one of Ben does not")
	}
	refused(t, "a refresh", s.refreshes(client, has.RefreshToken), 400, invalidGrant)
	refused(t, "a code", s.redeems(client, code), 400, invalidGrant)
	revoked := func() (people []uuid.UUID) {
		for _, e := range s.log.all() {
			if e, is := e.(organization.GrantRevoked); is {
				people = append(people, e.MemberID)
			}
		}
		return people
	}
	if list := revoked(); len(list) != 0 {
		t.Errorf("recorded %v", list)
	}
	again := s.tokens(s.redeems(client, s.code(s.ana, client)))
	runtest.Must(t, s.Tidy(t.Context()))
	runtest.Must(t, s.Tidy(t.Context()))
	if list := revoked(); len(list) != 1 || list[0] != s.ana || !s.opens(again.AccessToken) {
		t.Errorf("recorded %v, and what was given since opens: %t", list, s.opens(again.AccessToken))
	}
}
