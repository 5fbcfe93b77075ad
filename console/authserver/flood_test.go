package authserver

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/google/uuid"
)

// Many network addresses together register no more than the service takes, so that the rows of strangers are bounded.
func TestRegister_IsLimitedForAll(t *testing.T) {
	s := newScene(t, func(c *Config) { c.Registrations = 1 })
	for n := range registrationsOfAll + 1 {
		got := s.send(http.MethodPost, "/oauth2/register", uuid.Nil, `{"redirect_uris":["`+callback+`"]}`, "application/json",
			"X-Forwarded-For", fmt.Sprintf("198.51.100.%d", n))
		if n < registrationsOfAll && got.status != http.StatusCreated {
			t.Fatalf("address %d: %d %s", n, got.status, got.body)
		}
		if n == registrationsOfAll {
			refused(t, "one too many", got, 429, "rate_limit_exceeded")
		}
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
