package authserver

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/internal/auth"
)

// A client of OAuth 2.1 sends no redirect_uri with the code; one that is sent is compared.
func TestToken_WithoutRedirect(t *testing.T) {
	s := newScene(t)
	client := s.registers(callback)
	code := s.code(s.ana, client)
	refused(t, "another address", s.redeems(client, code, "redirect_uri", "https://evil.example/"), 400, invalidGrant)
	s.tokens(s.redeems(client, code, "redirect_uri", ""))
}

// A request of 8 KB comes to the page of consent and back, through a sign-in; a longer one does not.
func TestAuthorize_LongState(t *testing.T) {
	s := newScene(t)
	client := s.registers(callback)
	for _, length := range []int{512, 2_000, 7_500} {
		state := strings.Repeat("s", length)
		got := s.send(http.MethodGet, "/oauth2/authorize?"+asks(client, "state", state).Encode(), uuid.Nil, "", "")
		to, err := url.Parse(got.header.Get("Location"))
		if err != nil || got.status != http.StatusFound || len(to.RequestURI()) > 2_000 {
			t.Fatalf("%d: %d to %d bytes, %v", length, got.status, len(to.RequestURI()), err)
		}
		_, values := s.decides(s.ana, to.Query(), "approve", s.acme.String())
		if values.Get("state") != state || values.Get("code") == "" {
			t.Errorf("%d: %d characters of state come back", length, len(values.Get("state")))
		}
	}
	got := s.send(http.MethodGet, "/oauth2/authorize?"+asks(client, "state", strings.Repeat("s", 9_000)).Encode(), uuid.Nil, "", "")
	if got.status < 400 {
		t.Errorf("9,000 characters: %d", got.status)
	}
	kept := s.send(http.MethodGet, "/oauth2/authorize?"+asks(client, "state", strings.Repeat("s", 3_000)).Encode(), uuid.Nil, "", "")
	s.clock = s.clock.Add(requestLives + time.Second)
	to, _ := url.Parse(kept.header.Get("Location"))
	if page := s.send(http.MethodGet, to.RequestURI(), s.ana, "", ""); page.status < 400 || !strings.Contains(page.body, "expired") {
		t.Errorf("an hour later: %d %s", page.status, page.body)
	}
}

// Spellings of a resource that RFC 3986 calls equal are equal, and nothing else is.
func TestResource_Spellings(t *testing.T) {
	s := newScene(t)
	client := s.registers(callback)
	host := strings.TrimPrefix(urls.Console, "https://")
	for spelled, path := range map[string]string{
		urls.Console + "/mcp": auth.MCPPath, urls.Console + "/mcp/": auth.MCPPath, "HTTPS://" + strings.ToUpper(host) + "/mcp": auth.MCPPath,
		urls.Console + ":443/mcp": auth.MCPPath, urls.Console + "/%6Dcp": auth.MCPPath, urls.Console + "/x/../mcp": auth.MCPPath,
		urls.Console + "/./mcp/read/": auth.MCPReadPath, urls.Console + "/mcp/operator": auth.MCPOperatorPath,
		urls.Console + "/MCP": "", urls.Console + "/mcp%2Fread": "", urls.Console + "//mcp": "", urls.Console + "/mcp?x": "",
		urls.Console + "/mcp#": "", "http://" + host + "/mcp": "", urls.Console + ":444/mcp": "", "https://u@" + host + "/mcp": "",
		urls.Console + ".evil.example/mcp": "", urls.Console: "", "mcp": "",
	} {
		got, values := s.decides(s.ana, asks(client, "resource", spelled), "approve", s.acme.String())
		if path == "" {
			if values.Get("code") != "" || got.status == http.StatusSeeOther {
				t.Errorf("%q: %d %v", spelled, got.status, values)
			}
			continue
		}
		has := s.tokens(s.redeems(client, values.Get("code"), "resource", spelled))
		g, err := s.Authenticate(t.Context(), has.AccessToken)
		if err != nil || g.Resource != urls.Console+path || has.Scope != strings.Join(auth.MCPScopes(path), " ") {
			t.Errorf("%q: a token for %q with %s, %v", spelled, g.Resource, has.Scope, err)
		}
	}
	_, values := s.decides(s.ana, asks(client), "approve", s.acme.String())
	refused(t, "another resource than that of the code", s.redeems(client, values.Get("code"), "resource", urls.Console+"/mcp/read"),
		400, invalidGrant)
}

// Only an Owner or Admin can give the scope of an operator, and who is one no more takes it away.
func TestConsent_Operate(t *testing.T) {
	s := newScene(t)
	client := s.registers(callback)
	q := asks(client, "resource", urls.Console+auth.MCPOperatorPath)
	page := s.send(http.MethodGet, "/oauth2/consent?"+q.Encode(), s.ben, "", "")
	if strings.Contains(page.body, `value="approve"`) || !strings.Contains(page.body, "Only an Owner or Admin") {
		t.Errorf("a member is asked: %s", page.body)
	}
	if _, values := s.decides(s.ben, q, "approve", s.acme.String()); values.Get("code") != "" {
		t.Error("a member gives it")
	}
	page = s.send(http.MethodGet, "/oauth2/consent?"+q.Encode(), s.ana, "", "")
	if !strings.Contains(page.body, "memory:operate") || !strings.Contains(page.body, "delete for good") ||
		!strings.Contains(page.body, `value="deny" class="second"`) {
		t.Errorf("%s", page.body)
	}
	_, values := s.decides(s.ana, q, "approve", s.acme.String())
	has := s.tokens(s.redeems(client, values.Get("code"), "resource", urls.Console+auth.MCPOperatorPath))
	if has.Scope != "memory:read memory:write memory:operate" {
		t.Errorf("%s", has.Scope)
	}
	s.people[s.ana].Memberships[0].Role = organization.Member
	s.people[s.ana].Memberships[0].Access = map[uuid.UUID]organization.Access{s.oil: organization.WriteAccess}
	g, err := s.Authenticate(t.Context(), has.AccessToken)
	if err != nil || len(g.Scopes) != 2 {
		t.Errorf("a former Admin: %v %v", g.Scopes, err)
	}
}

// An office, or a hosted client that calls from few addresses, registers as often as it needs to.
func TestRegister_ManyFromOneAddress(t *testing.T) {
	s := newScene(t)
	for n := range 25 {
		if got := s.registersFrom("192.0.2.9"); got.status != http.StatusCreated {
			t.Fatalf("registration %d: %d %s", n+1, got.status, got.body)
		}
	}
}
