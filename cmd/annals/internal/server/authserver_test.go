package server

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	oauth "github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/webtest"
)

const oauthCallback = "http://127.0.0.1:7777/callback"

// consents is a person who is sent to the page of consent, and allows what it asks for in a place that is offered.
func (h *consoleHarness) consents(reader *webtest.Reader, place string) oauth.AuthorizationCodeFetcher {
	return func(_ context.Context, args *oauth.AuthorizationArgs) (*oauth.AuthorizationResult, error) {
		_, query, _ := strings.Cut(args.URL, "?")
		at := "/oauth2/consent?" + query
		page := reader.Open(at)
		value := ""
		for _, option := range page.Find("option").EachIter() {
			if strings.HasPrefix(option.Text(), place) {
				value = option.AttrOr("value", "")
			}
		}
		form := url.Values{"decision": {"approve"}, "place": {value}}
		answer := reader.Ask(http.MethodPost, at, form)
		to, err := url.Parse(answer.Location)
		if err == nil && to.Query().Get("code") == "" {
			err = fmt.Errorf("%s: %d %q %s: %.3000s", at, answer.Status, value, answer.Location, webtest.Plain(answer.Body))
		}
		return &oauth.AuthorizationResult{
			Code: to.Query().Get("code"), State: to.Query().Get("state"), Iss: to.Query().Get("iss"),
		}, err
	}
}

// connect connects go-sdk's client with its whole flow: discovery, registration, consent, tokens.
func (h *consoleHarness) connect(reader *webtest.Reader, place string) agent {
	h.t.Helper()
	handler, err := oauth.NewAuthorizationCodeHandler(&oauth.AuthorizationCodeHandlerConfig{
		DynamicClientRegistrationConfig: &oauth.DynamicClientRegistrationConfig{Metadata: &oauthex.ClientRegistrationMetadata{
			ClientName: "Sdk" + markup, RedirectURIs: []string{oauthCallback}, TokenEndpointAuthMethod: "none",
		}},
		RedirectURL: oauthCallback, AuthorizationCodeFetcher: h.consents(reader, place), RequestRefreshToken: true,
	})
	runtest.Must(h.t, err)
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(h.t.Context(), &mcp.StreamableClientTransport{
		Endpoint: h.urls.Console + "/mcp", OAuthHandler: handler, DisableStandaloneSSE: true,
	}, nil)
	runtest.Must(h.t, err)
	h.t.Cleanup(func() { _ = session.Close() })
	return agent{session, h.t}
}

// A client of go-sdk gets in by a person's consent, does what the person may, and has to ask again
// once the person ends it.
func TestOAuth_ClientOfGoSDK(t *testing.T) {
	unraced(t)
	t.Parallel()
	h := newConsole(t)
	admin := h.connect(h.as("admin"), "default")
	if tools := admin.tools(); !slices.Contains(tools, "recall") || !slices.Contains(tools, "remember") {
		t.Errorf("an Admin's client has %v", tools)
	}
	var found struct{ Results []any }
	if text, refusal := admin.use("recall", map[string]any{"query": "When is the launch?"}, &found); refusal != "" {
		t.Errorf("%s %s", text, refusal)
	}
	reads := h.connect(h.as("read"), "all my projects")
	if tools := reads.tools(); !slices.Contains(tools, "recall") || slices.Contains(tools, "remember") {
		t.Errorf("a reader's client has %v", tools)
	}
	data, meta := h.lastEvent("organization.grant-approved.v1")
	if !strings.Contains(meta, "person:"+h.ids["read"].String()) || !strings.Contains(data, `"scopes":["memory:read"]`) ||
		strings.Contains(data, "Sdk") || strings.Contains(data, "127.0.0.1") {
		t.Errorf("the event is %s %s", data, meta)
	}
	grants, err := h.authServer.Grants(t.Context(), h.ids["admin"])
	runtest.Must(t, err)
	if len(grants) != 1 || grants[0].ClientName != "Sdk"+markup || grants[0].UsedAt == nil {
		t.Fatalf("%+v", grants)
	}
	call := commands.Call{
		Principal: auth.Principal{Kind: auth.Person, KeyID: h.ids["admin"]}, RequestID: uuid.New(), ReceivedAt: time.Now(),
	}
	_, err = h.authServer.RevokeGrant(t.Context(), call, h.ids["admin"], grants[0].ID)
	runtest.Must(t, err)
	admin.use("recall", map[string]any{"query": "zebra"}, nil) // sends the person to the page of consent again
	again, err := h.authServer.Grants(t.Context(), h.ids["admin"])
	runtest.Must(t, err)
	if len(again) != 1 || again[0].ID == grants[0].ID {
		t.Errorf("a revoked client is served: %+v", again)
	}
}

// The documents are those of the settings, whatever name a client calls by.
func TestOAuth_Documents(t *testing.T) {
	unraced(t)
	t.Parallel()
	h := newTenant(t)
	for path, want := range map[string]string{
		"/.well-known/oauth-protected-resource/mcp": `{"resource":"` + h.urls.Console + `/mcp",`,
		"/.well-known/oauth-protected-resource":     `{"resource":"` + h.urls.Console + `/mcp",`,
		"/.well-known/oauth-authorization-server":   `{"issuer":"` + h.urls.Auth + `","authorization_endpoint":"` + h.urls.Auth + `/oauth2/authorize",`,
		"/.well-known/jwks.json":                    `{"keys":[{"kty":"EC",`,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.urls.Console+path, nil)
		runtest.Must(t, err)
		req.Host = "evil.example"
		res, err := http.DefaultClient.Do(req)
		runtest.Must(t, err)
		body, err := io.ReadAll(res.Body)
		runtest.Must(t, err)
		runtest.Must(t, res.Body.Close())
		if res.StatusCode != http.StatusOK || !strings.HasPrefix(string(body), want) || strings.Contains(string(body), "evil") ||
			res.Header.Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("%s: %d %s", path, res.StatusCode, body)
		}
	}
}
