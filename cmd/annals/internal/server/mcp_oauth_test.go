package server

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/annals-project/annals/internal/runtest"
)

// consentsOf is a person of a role who allows what a client asks for, in all of her projects, and counts it.
func (h *consoleHarness) consentsOf(role string, times *int) auth.AuthorizationCodeFetcher {
	return func(_ context.Context, args *auth.AuthorizationArgs) (*auth.AuthorizationResult, error) {
		*times++
		person := h.as(role)
		page := person.Open(strings.TrimPrefix(args.URL, h.urls.Console))
		place, _ := page.Find("option").First().Attr("value")
		answer := person.Ask(http.MethodPost, page.URL.RequestURI(), url.Values{"place": {place}, "decision": {"approve"}})
		if answer.Status != http.StatusSeeOther {
			h.t.Fatalf("the consent is answered %d", answer.Status)
		}
		to, err := url.Parse(answer.Location)
		runtest.Must(h.t, err)
		q := to.Query()
		return &auth.AuthorizationResult{Code: q.Get("code"), State: q.Get("state"), Iss: q.Get("iss")}, nil
	}
}

// A client that knows the address alone finds the authorization server, registers, asks a person, and gets tokens with
// which it remembers and recalls. Nothing of it opens the API.
func TestMCP_OAuth(t *testing.T) {
	unraced(t)
	t.Parallel()
	h := newConsole(t)
	for role, tools := range map[string]int{"write": 5, "read": 3} {
		asked := 0
		const callback = "http://127.0.0.1:11953/callback"
		handler, err := auth.NewAuthorizationCodeHandler(&auth.AuthorizationCodeHandlerConfig{
			DynamicClientRegistrationConfig: &auth.DynamicClientRegistrationConfig{Metadata: &oauthex.ClientRegistrationMetadata{
				ClientName: "Desk", RedirectURIs: []string{callback}, GrantTypes: []string{"authorization_code", "refresh_token"},
			}},
			RedirectURL: callback, AuthorizationCodeFetcher: h.consentsOf(role, &asked), RequestRefreshToken: true,
		})
		runtest.Must(t, err)
		client := mcp.NewClient(&mcp.Implementation{Name: "desk", Version: "1"}, nil)
		session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{
			Endpoint: h.urls.Console + "/mcp", OAuthHandler: handler, DisableStandaloneSSE: true,
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = session.Close() })
		a := agent{session, t}
		if names := a.tools(); len(names) != tools || asked != 1 {
			t.Errorf("%s is shown %q after %d consents", role, names, asked)
		}
		if role == "write" {
			a.must("remember", map[string]any{"content": "The lamp is green."}, nil)
		}
		if text := a.must("recall", map[string]any{"query": "zebra"}, nil); !strings.Contains(text, ": ") {
			t.Errorf("%s recalls %s", role, text)
		}
		source, err := handler.TokenSource(t.Context())
		runtest.Must(t, err)
		token, err := source.Token()
		runtest.Must(t, err)
		if status, _ := h.call(token.AccessToken, http.MethodGet, api+"/usage", nil); status != http.StatusUnauthorized {
			t.Errorf("the API answers a token of /mcp with %d", status)
		}
	}
}
