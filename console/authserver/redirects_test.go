package authserver

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/runtest"
)

var away = regexp.MustCompile(`<a href="([^"]*)" rel="noreferrer noopener nofollow">([^<]*)</a>`)

// leads is the one link of a page that leads away from the console.
func (s *scene) leads(got page) (text string, to *url.URL) {
	s.t.Helper()
	links := away.FindAllStringSubmatch(got.body, -1)
	if len(links) != 1 {
		s.t.Fatalf("%d links: %s", len(links), got.body)
	}
	to, err := url.Parse(html.UnescapeString(links[0][1]))
	runtest.Must(s.t, err)
	return links[0][2], to
}

// What a client asks for wrongly is shown on our page, with a link to the client: a browser that nobody made a decision
// in is sent nowhere, since anybody registers a client.
func TestAuthorize_ShowsWhatIsAskedWrongly(t *testing.T) {
	s := newScene(t)
	client := s.registers(callback)
	for name, c := range map[string]struct {
		change []string
		code   string
	}{
		"no challenge":           {[]string{"code_challenge", ""}, invalidRequest},
		"no method, so plain":    {[]string{"code_challenge_method", ""}, invalidRequest},
		"plain":                  {[]string{"code_challenge_method", "plain", "code_challenge", verifier}, invalidRequest},
		"short challenge":        {[]string{"code_challenge", "abc"}, invalidRequest},
		"padded challenge":       {[]string{"code_challenge", challengeOf(verifier) + "="}, invalidRequest},
		"token in the answer":    {[]string{"response_type", "token"}, "unsupported_response_type"},
		"code and token":         {[]string{"response_type", "code token"}, "unsupported_response_type"},
		"no type":                {[]string{"response_type", ""}, "unsupported_response_type"},
		"the API":                {[]string{"resource", urls.API + "/api/v1"}, invalidTarget},
		"another service":        {[]string{"resource", "https://evil.example/mcp"}, invalidTarget},
		"below the resource":     {[]string{"resource", urls.Console + "/mcp/x"}, invalidTarget},
		"the host of the server": {[]string{"resource", urls.Console}, invalidTarget},
	} {
		q := asks(client, c.change...)
		for _, got := range []page{
			s.send(http.MethodGet, "/oauth2/consent?"+q.Encode(), s.ana, "", ""),
			func() page { got, _ := s.decides(s.ana, q, "approve", s.acme.String()); return got }(),
			func() page { got, _ := s.decides(s.ana, q, "deny", ""); return got }(),
		} {
			if got.status != http.StatusBadRequest || got.header.Get("Location") != "" || got.header.Get("Refresh") != "" {
				t.Errorf("%s: %d %s", name, got.status, got.header.Get("Location"))
			}
			text, to := s.leads(got)
			values := to.Query()
			if !strings.Contains(text, "app.example") || !strings.HasPrefix(to.String(), callback+"?") ||
				values.Get("error") != c.code || values.Get("iss") != urls.Auth || values.Get("state") != "st" || values.Has("code") {
				t.Errorf("%s: the link %q leads to %s", name, text, to)
			}
		}
	}
	if events := s.log.all(); len(events) > 0 {
		t.Errorf("made %v", events)
	}
	for _, good := range [][]string{{"resource", ""}, {"resource", urls.Console + "/mcp/"}, {"state", ""}} {
		s.code(s.ana, client, good...)
	}
	got, values := s.decides(s.ana, asks(client), "deny", s.acme.String())
	if values.Get("error") != accessDenied || values.Get("iss") != urls.Auth {
		t.Errorf("denied: %d %v", got.status, values)
	}
}

// A client that asks for an answer without a page gets the page: there is no answer without a decision or a consent.
func TestAuthorize_WithoutPrompt(t *testing.T) {
	s := newScene(t)
	client := s.registers(callback)
	for _, prompt := range []string{"none", "login", "consent"} {
		got := s.send(http.MethodGet, "/oauth2/consent?"+asks(client, "prompt", prompt).Encode(), s.ana, "", "")
		if got.status != http.StatusOK || got.header.Get("Location") != "" || !strings.Contains(got.body, "Allow access") {
			t.Errorf("prompt %s: %d %s", prompt, got.status, got.header.Get("Location"))
		}
	}
}

// A client that registered before its scheme was refused gets no answer there, and the person reads why.
func TestAuthorize_OfARefusedScheme(t *testing.T) {
	s := newScene(t)
	client := s.registers(callback)
	_, err := s.DB.Exec(t.Context(), `update ops.oauth_clients set redirects = array_append(redirects, 'ms-msdt:/id')`)
	runtest.Must(t, err)
	q := asks(client, "redirect_uri", "ms-msdt:/id", "response_type", "token")
	got := s.send(http.MethodGet, "/oauth2/consent?"+q.Encode(), s.ana, "", "")
	if got.status != http.StatusBadRequest || got.header.Get("Location") != "" || strings.Contains(got.body, `"ms-msdt:`) ||
		!strings.Contains(got.body, "the scheme ms-msdt is refused") {
		t.Errorf("%d %s %s", got.status, got.header.Get("Location"), got.body)
	}
}

// Who is not signed in signs in first, and then stands on our page too. The scheme of a program is a link as well.
func TestAuthorize_OfStrangers(t *testing.T) {
	s := newScene(t)
	client := s.registers(callback, "com.example.app:/cb", "http://127.0.0.1/cb")
	path := "/oauth2/consent?" + asks(client, "response_type", "token").Encode()
	got := s.send(http.MethodGet, path, uuid.Nil, "", "")
	if to := got.header.Get("Location"); got.status != http.StatusSeeOther || to != "/sign-in?next="+url.QueryEscape(path) {
		t.Errorf("%d %s", got.status, to)
	}
	for redirect, want := range map[string]string{
		"com.example.app:/cb": "com.example.app:", "http://127.0.0.1:4711/cb": "127.0.0.1, a program on this computer",
	} {
		got := s.send(http.MethodGet, "/oauth2/consent?"+asks(client, "redirect_uri", redirect, "code_challenge", "").Encode(),
			s.ana, "", "")
		text, to := s.leads(got)
		if got.header.Get("Location") != "" || !strings.Contains(text, want) || !strings.HasPrefix(to.String(), redirect+"?") ||
			to.Query().Get("error") != invalidRequest {
			t.Errorf("%s: %d %s: %q leads to %s", redirect, got.status, got.header.Get("Location"), text, to)
		}
	}
}

// A client chooses an address of https, one of the person's machine, or a scheme that belongs to a program.
func TestRedirects_Table(t *testing.T) {
	s := newScene(t, func(c *Config) { c.Registrations = 1000 })
	for redirect, allowed := range map[string]bool{
		callback: true, "https://app.example/cb?x=1": true, "https://localhost/cb": true,
		"http://localhost/cb": true, "http://127.0.0.1:7777/cb": true, "http://[::1]:1/cb": true,
		"com.example.app:/cb": true, "com.example.app://cb": true, "COM.example.App:/cb": true, "xn--p1ai.example:/cb": true,
		"com.googleusercontent.apps.123-abc:/oauth2redirect": true,
		"cursor://anysphere.cursor-mcp/oauth/callback":       true, "vscode://publisher.extension/cb": true,
		"vscode-insiders://publisher.extension/cb": true, "windsurf://cb": true, "claude://cb": true, "zed://cb": true,
		"warp://mcp/oauth2callback": true, "raycast://oauth": true,

		"search-ms:query=x": false, "ms-msdt:/id": false, "ms-settings:": false, "ms-officecmd:x": false, "intent://x": false,
		"chrome://settings": false, "x:": false, "x:y": false, "x-apple.systempreferences:x": false, "a.b:/cb": false,
		"com.:/cb": false, "com..app:/cb": false, "com.-app:/cb": false, "com.app-:/cb": false, "com.a+b:/cb": false,
		"1password://x": false, "tel:1": false, "sms:1": false, "mailto:a@b.example": false, "ws://a.example": false,
		"javascript:alert(1)": false, "JAVASCRIPT:x": false, "data:text/html,x": false, "DATA:text/html,x": false,
		"vbscript:x": false, "file:///etc/passwd": false, "blob:x": false, "view-source:https://a.example": false,
		"about:blank": false, "ftp://a.example/": false, "urn:ietf:wg:oauth:2.0:oob": false, "vscodes://x": false,
		"http://app.example/cb": false, "https:///cb": false, "https://u@app.example/": false, "https://a.example/#": false,
		"http://localhost.example/": false, "https:app.example": false, "https://a.example/\u00e9": false, "": false, "/cb": false,
		"https://a.example/" + strings.Repeat("x", maxRedirect): false,
	} {
		got := s.send(http.MethodPost, "/oauth2/register", uuid.Nil, fmt.Sprintf(`{"redirect_uris":[%q]}`, redirect), "application/json")
		if !allowed {
			refused(t, redirect, got, 400, invalidRedirect)
		} else if got.status != http.StatusCreated {
			t.Errorf("%q: %d %s", redirect, got.status, got.body)
		}
		stored := Client{Redirects: []string{redirect}} // as one that registered before
		if stored.allows(redirect) != allowed {
			t.Errorf("%q: the answer goes there: %t", redirect, !allowed)
		}
	}
	refused(t, "a good and a bad one", s.send(http.MethodPost, "/oauth2/register", uuid.Nil,
		`{"redirect_uris":["`+callback+`","search-ms:x"]}`, "application/json"), 400, invalidRedirect)
}
