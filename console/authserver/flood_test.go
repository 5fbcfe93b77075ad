package authserver

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/google/uuid"
)

// registersFrom registers a program from a network address.
func (s *scene) registersFrom(address string) page {
	s.t.Helper()
	return s.send(http.MethodPost, "/oauth2/register", uuid.Nil, `{"redirect_uris":["`+callback+`"]}`, "application/json",
		"X-Forwarded-For", address)
}

// strangers register from new network addresses until they are refused, and returns how many could.
func (s *scene) strangers(network string) (n int) {
	s.t.Helper()
	for ; n <= registrationsOfAll; n++ {
		if got := s.registersFrom(fmt.Sprintf("%s.%d", network, n)); got.status != http.StatusCreated {
			refused(s.t, "one too many", got, 429, "rate_limit_exceeded")
			return n
		}
	}
	return n
}

// Many network addresses together register no more than the service takes, so that the rows of strangers are bounded,
// and keep out no network that registered before.
func TestRegister_IsLimitedForAll(t *testing.T) {
	s := newScene(t, func(c *Config) { c.Registrations = 1 })
	const returning, trusted, early = "192.0.2.1", "192.0.2.2", "192.0.2.3"
	got := s.registersFrom(trusted)
	s.code(s.ana, got.json(t)["client_id"].(string))
	s.registersFrom(returning)
	s.clock = s.clock.Add(registeringSpan)
	if n := s.strangers("198.51.100"); n != 38 {
		t.Errorf("%d strangers register, want three quarters of %d", n, registrationsOfAll)
	}
	for n := range 7 {
		from := returning
		if n > 0 {
			from = fmt.Sprintf("203.0.113.%d", n) // those have registered too
			if _, err := s.DB.Exec(t.Context(), `insert into ops.oauth_clients (id, name, redirects, created_at, network)
				select $1, '', '{}', $2, $3`, "mcpc_"+from, s.clock.Add(-registeringSpan), s.networkOf(from)); err != nil {
				t.Fatal(err)
			}
		}
		if got := s.registersFrom(from); (got.status == http.StatusCreated) != (n < 6) {
			t.Errorf("returning network %d: %d %s", n, got.status, got.body)
		}
	}
	if got := s.registersFrom(trusted); got.status != http.StatusCreated {
		t.Errorf("a network whose program a person let in: %d %s", got.status, got.body)
	}
	refused(t, "its second one", s.registersFrom(trusted), 429, "rate_limit_exceeded")
	s.clock = s.clock.Add(registeringSpan)
	if got := s.registersFrom(early); got.status != http.StatusCreated {
		t.Errorf("an hour later: %d %s", got.status, got.body)
	}
}

// What Postgres cannot store is refused as the mistake of the program that it is.
func TestParameters_WhichAreNoText(t *testing.T) {
	s := newScene(t)
	for _, bad := range []string{"mcpc_\x00", "mcpc_\xff"} {
		refused(t, "token", s.redeems(bad, "code"), 400, invalidRequest)
		refused(t, "refresh", s.refreshes(bad, "svc_ort_x"), 400, invalidRequest)
		refused(t, "revoke", s.post("/oauth2/revoke", url.Values{"token": {"svc_oat_x"}, "client_id": {bad}}), 400, invalidRequest)
		got := s.send(http.MethodGet, "/oauth2/consent?"+asks(bad).Encode(), s.ana, "", "")
		if got.status != http.StatusBadRequest && got.status != http.StatusUnprocessableEntity {
			t.Errorf("consent for %q: %d", bad, got.status)
		}
	}
}
