package authserver

import (
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/runtest"
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

// hosts are answers by the address of a document.
type hosts map[string]func(http.ResponseWriter)

func (h hosts) RoundTrip(r *http.Request) (*http.Response, error) {
	write := h[r.URL.String()]
	if write == nil {
		return nil, http.ErrServerClosed
	}
	w := httptest.NewRecorder()
	write(w)
	return w.Result(), nil
}

func TestDocuments_OfClients(t *testing.T) {
	const good = "https://client.example/oauth/client.json"
	reads := 0
	doc := func(text string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { reads++; _, _ = w.Write([]byte(text)) }
	}
	web := hosts{
		good:                            doc(`{"client_id":"` + good + `","client_name":"Doc","redirect_uris":["` + callback + `"],"token_endpoint_auth_method":"none"}`),
		"https://client.example/other":  doc(`{"client_id":"` + good + `","redirect_uris":["` + callback + `"]}`),
		"https://client.example/long":   doc(strings.Repeat(" ", maxDocument+1)),
		"https://client.example/html":   doc("<html>"),
		"https://client.example/none":   doc(`{"client_id":"https://client.example/none"}`),
		"https://client.example/secret": doc(`{"client_id":"https://client.example/secret","redirect_uris":["` + callback + `"],"token_endpoint_auth_method":"client_secret_post"}`),
		"https://client.example/scheme": doc(`{"client_id":"https://client.example/scheme","redirect_uris":["` + callback + `","search-ms:x"]}`),
		"https://client.example/moved": func(w http.ResponseWriter) {
			w.Header().Set("Location", good)
			w.WriteHeader(http.StatusFound)
		},
	}
	s := newScene(t, func(c *Config) { c.Documents, c.Fetch = Documents{On: true}, web })
	opens := func(client string) page {
		return s.send(http.MethodGet, "/oauth2/consent?"+asks(client).Encode(), s.ana, "", "")
	}
	s.send(http.MethodGet, "/oauth2/consent?"+asks(good).Encode(), uuid.Nil, "", "")
	if reads > 0 {
		t.Error("a document is read for somebody who is not signed in")
	}
	for range 2 {
		if got := opens(good); got.status != 200 || !strings.Contains(got.body, "<strong>Doc</strong>") || reads != 1 {
			t.Errorf("%d after %d reads: %s", got.status, reads, got.body)
		}
	}
	s.tokens(s.redeems(good, s.code(s.ana, good)))
	for _, client := range []string{
		"https://client.example/other", "https://client.example/long", "https://client.example/html", "https://client.example/none",
		"https://client.example/secret", "https://client.example/moved", "https://client.example/down", "https://client.example/scheme",
		"http://client.example/oauth/client.json", "https://client.example", "https://client.example/", "https://client.example:8443/x",
		"https://client.example/a/../b", "https://client.example/x#y", "https://client.example/x?y", "https://u:p@client.example/x",
		"https://CLIENT.example/x", "https://client.example/" + strings.Repeat("x", maxClientID), "file:///etc/passwd",
	} {
		if got := opens(client); got.status != http.StatusBadRequest || got.header.Get("Location") != "" {
			t.Errorf("%s: %d %s", client, got.status, got.header.Get("Location"))
		}
	}
	s.Documents.Hosts = []string{"claude.ai"}
	if got := opens(good); got.status != http.StatusBadRequest {
		t.Errorf("of a host that is not listed: %d", got.status)
	}
}

// A document is read from public addresses alone, whatever its name resolves to.
func TestDocuments_OfPrivateAddresses(t *testing.T) {
	for _, address := range []string{
		"127.0.0.1", "127.9.9.9", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
		"192.0.0.1", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "::", "::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1",
		"::127.0.0.1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "ff02::1", "64:ff9b::7f00:1", "2002:7f00:1::", "2001:0::1",
		"fec0::1",
	} {
		if isPublic(netip.MustParseAddr(address)) {
			t.Errorf("%s counts as public", address)
		}
	}
	for _, address := range []string{"93.184.216.34", "2606:2800:220:1::1", "::ffff:93.184.216.34"} {
		if !isPublic(netip.MustParseAddr(address)) {
			t.Errorf("%s does not count as public", address)
		}
	}
	asked := false
	private := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer private.Close()
	for _, at := range []string{private.URL, strings.Replace(private.URL, "127.0.0.1", "localhost", 1)} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at+"/doc", nil)
		runtest.Must(t, err)
		res, err := publicTransport().RoundTrip(req)
		if err == nil {
			_ = res.Body.Close() // the test fails
		}
		if err == nil || !strings.Contains(err.Error(), "not public") || asked {
			t.Errorf("%s was reached: %v", at, err)
		}
	}
}

func TestParseDocuments(t *testing.T) {
	for setting, want := range map[string]string{
		"": "{false []}", "off": "{false []}", "on": "{true []}", "claude.ai, VSCode.dev": "{true [claude.ai vscode.dev]}",
	} {
		if got, err := ParseDocuments(setting); err != nil || fmt.Sprint(got) != want {
			t.Errorf("%q: %v %v", setting, got, err)
		}
	}
	for _, setting := range []string{"yes please", "https://claude.ai", "claude.ai/x", "a:443", "claude.ai,,x"} {
		if _, err := ParseDocuments(setting); err == nil {
			t.Errorf("%q is taken", setting)
		}
	}
}
