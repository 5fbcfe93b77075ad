package authserver

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/runtest"
)

// An address that a client did not register gets nothing, not even an error.
func TestAuthorize_RedirectTricks(t *testing.T) {
	s := newScene(t)
	client := s.registers(callback, "http://127.0.0.1:7777/cb?x=1", "http://localhost/cb", "cursor://anysphere/cb")
	for _, redirect := range []string{
		"", "/cb", "//app.example/cb", "https://app.example", "https://app.example/", "https://app.example/cb/",
		"https://app.example/cb/../cb", "https://app.example/cb/../evil", "https://app.example/cb?x", "https://app.example/cb#x",
		"https://app.example/CB", "https://APP.example/cb", "https://app.example:443/cb", "https://app.example:8443/cb",
		"http://app.example/cb", "https://app.example.evil.example/cb", "https://evil.example/cb", "https://app.example@evil.example/cb",
		"https://evil.example\\@app.example/cb", "https://app.example%2Fcb", "https://app.example/cb%2F", "https://app.example/cb ",
		"https://app.example/cb\r\nX: y", "javascript:alert(1)", "data:text/html,x", "cursor://anysphere/cb/x", "cursor://evil/cb",
		"http://127.0.0.1:7777/cb", "http://127.0.0.1:9/cb?x=2", "http://[::1]:7777/cb?x=1", "http://127.0.0.2/cb?x=1",
		"http://localhost.evil.example/cb", "http://localhost@evil.example/cb", "http://evil@localhost/cb", "https://localhost/cb",
		"http://127.0.0.1.nip.example/cb?x=1", "http://localhost:1/cb/../x", "http://2130706433/cb?x=1",
	} {
		q := asks(client, "redirect_uri", redirect)
		got := s.send(http.MethodGet, "/oauth2/consent?"+q.Encode(), s.ana, "", "")
		sent, _ := s.decides(s.ana, q, "approve", s.acme.String())
		for _, one := range []page{got, sent} {
			if one.status != http.StatusBadRequest || one.header.Get("Location") != "" {
				t.Errorf("%q: %d %s", redirect, one.status, one.header.Get("Location"))
			}
		}
	}
	for _, redirect := range []string{"http://127.0.0.1:1/cb?x=1", "http://localhost:65000/cb", "cursor://anysphere/cb"} {
		s.code(s.ana, client, "redirect_uri", redirect)
	}
	twice := asks(client)
	twice.Add("redirect_uri", "https://evil.example/cb")
	for name, query := range map[string]string{
		"twice":          twice.Encode(),
		"no client":      asks("").Encode(),
		"unknown client": asks("mcpc_none").Encode(),
		"an address":     asks("https://client.example/doc").Encode(),
		"markup":         asks("<script>alert(1)</script>").Encode(),
	} {
		got := s.send(http.MethodGet, "/oauth2/consent?"+query, s.ana, "", "")
		if got.status != http.StatusBadRequest || got.header.Get("Location") != "" || strings.Contains(got.body, "<script>alert") {
			t.Errorf("%s: %d %s", name, got.status, got.header.Get("Location"))
		}
	}
	got := s.send(http.MethodGet, "/oauth2/authorize?state="+strings.Repeat("x", maxQuery), uuid.Nil, "", "")
	if got.status != http.StatusBadRequest {
		t.Errorf("a long request: %d", got.status)
	}
}

// Another site cannot make a person consent, and a stranger's name is text.
func TestConsent_ForeignForm(t *testing.T) {
	s := newScene(t)
	client := s.registers(callback)
	form := url.Values{"decision": {"approve"}, "place": {s.acme.String()}}.Encode()
	path := "/oauth2/consent?" + asks(client).Encode()
	for _, header := range [][]string{
		{"Origin", "https://evil.example"},
		{"Origin", "null"},
		{"Origin", "", "Sec-Fetch-Site", "cross-site"},
		{"Origin", "", "Sec-Fetch-Site", ""},
		{"Origin", urls.API},
	} {
		got := s.send(http.MethodPost, path, s.ana, form, formType, header...)
		if got.status != http.StatusForbidden || got.header.Get("Location") != "" {
			t.Errorf("%q: %d %s", header, got.status, got.header.Get("Location"))
		}
	}
	stranger := s.send(http.MethodPost, path, uuid.Nil, form, formType, "Origin", urls.Console)
	if stranger.status != http.StatusUnauthorized {
		t.Errorf("without a session: %d", stranger.status)
	}
	if got := s.send(http.MethodGet, path+"&decision=approve&place="+s.acme.String(), s.ana, "", ""); got.header.Get("Location") != "" {
		t.Errorf("a link consents: %s", got.header.Get("Location"))
	}
	for name, c := range map[string]struct {
		person   uuid.UUID
		decision string
		place    string
	}{
		"no decision":          {s.ana, "", s.acme.String()},
		"no place":             {s.ana, "approve", ""},
		"foreign organization": {s.ana, "approve", uuid.NewString()},
		"foreign project":      {s.ana, "approve", s.acme.String() + "/" + uuid.NewString()},
		"project without role": {s.ben, "approve", s.acme.String() + "/" + s.oil.String()},
	} {
		if got, _ := s.decides(c.person, asks(client), c.decision, c.place); got.status != http.StatusBadRequest {
			t.Errorf("%s: %d", name, got.status)
		}
	}
	if events := s.log.all(); len(events) > 0 {
		t.Errorf("consented: %v", events)
	}
	marked := s.send(http.MethodPost, "/oauth2/register", uuid.Nil,
		`{"client_name":"<img src=x onerror=alert(1)>","redirect_uris":["https://app.example/cb"]}`, "application/json").json(t)
	page := s.send(http.MethodGet, "/oauth2/consent?"+asks(marked["client_id"].(string)).Encode(), s.ana, "", "")
	if strings.Contains(page.body, "<img") || !strings.Contains(page.body, "&lt;img src=x") {
		t.Errorf("%s", page.body)
	}
}

func TestToken_OfACode(t *testing.T) {
	s := newScene(t)
	client, other := s.registers(callback), s.registers(callback)
	code := s.code(s.ana, client)
	for name, c := range map[string]struct {
		change []string
		status int
		code   string
	}{
		"other verifier":   {[]string{"code_verifier", strings.Repeat("a", 43)}, 400, invalidGrant},
		"the challenge":    {[]string{"code_verifier", challengeOf(verifier)}, 400, invalidGrant},
		"no verifier":      {[]string{"code_verifier", ""}, 400, invalidRequest},
		"short verifier":   {[]string{"code_verifier", "abc"}, 400, invalidRequest},
		"other address":    {[]string{"redirect_uri", callback + "/"}, 400, invalidGrant},
		"other client":     {[]string{"client_id", other}, 400, invalidGrant},
		"no client":        {[]string{"client_id", ""}, 400, invalidRequest},
		"gone client":      {[]string{"client_id", "mcpc_gone"}, 401, "invalid_client"},
		"document, is off": {[]string{"client_id", "https://client.example/doc"}, 401, "invalid_client"},
		"the API":          {[]string{"resource", urls.API + "/api/v1"}, 400, invalidTarget},
		"other code":       {[]string{"code", "x"}, 400, invalidGrant},
		"no code":          {[]string{"code", ""}, 400, invalidGrant},
		"no grant type":    {[]string{"grant_type", ""}, 400, invalidRequest},
		"password":         {[]string{"grant_type", "password"}, 400, "unsupported_grant_type"},
		"token exchange":   {[]string{"grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"}, 400, "unsupported_grant_type"},
		"agents, if none":  {[]string{"grant_type", grantAgent}, 400, "unsupported_grant_type"},
	} {
		refused(t, name, s.redeems(client, code, c.change...), c.status, c.code)
	}
	form := url.Values{"grant_type": {grantCode, grantCode}}
	refused(t, "twice", s.post("/oauth2/token", form), 400, invalidRequest)
	refused(t, "JSON", s.send(http.MethodPost, "/oauth2/token", uuid.Nil, `{}`, "application/json"), 400, invalidRequest)
	refused(t, "in the URL", s.send(http.MethodPost, "/oauth2/token?grant_type=password", uuid.Nil, "", formType), 400, invalidRequest)

	has := s.tokens(s.redeems(client, code))
	next := s.tokens(s.refreshes(client, has.RefreshToken))
	refused(t, "the second use", s.redeems(client, code), 400, invalidGrant)
	if s.lives(has.AccessToken) || s.lives(next.AccessToken) {
		t.Error("what a code made that was used twice is valid")
	}
	refused(t, "refresh after it", s.refreshes(client, next.RefreshToken), 400, invalidGrant)

	late := s.code(s.ana, client)
	s.clock = s.clock.Add(codeLives)
	refused(t, "late", s.redeems(client, late), 400, invalidGrant)
}

// One code makes one pair of tokens, however many use it at once.
func TestToken_OfACodeAtOnce(t *testing.T) {
	s := newScene(t)
	client := s.registers(callback)
	code := s.code(s.ana, client)
	var all sync.WaitGroup
	var got [6]page
	for i := range got {
		all.Go(func() { got[i] = s.redeems(client, code) })
	}
	all.Wait()
	made := 0
	for _, one := range got {
		if one.status == http.StatusOK {
			made++
			if s.lives(s.tokens(one).AccessToken) {
				t.Error("a code that was used twice has tokens")
			}
		}
	}
	if made != 1 {
		t.Errorf("%d answers with tokens", made)
	}
}

func TestRefresh_OfASpentToken(t *testing.T) {
	s := newScene(t)
	client, has := s.connected(s.ana)
	var all sync.WaitGroup
	var got [4]page
	for i := range got {
		all.Go(func() { got[i] = s.refreshes(client, has.RefreshToken) })
	}
	all.Wait()
	first := s.tokens(got[0])
	for _, one := range got[1:] {
		if next := s.tokens(one); next != first {
			t.Errorf("at once: %+v, want %+v", next, first)
		}
	}
	s.clock = s.clock.Add(time.Minute)
	late := s.tokens(s.refreshes(client, has.RefreshToken))
	if late.AccessToken != first.AccessToken || late.RefreshToken != first.RefreshToken || late.ExpiresIn != 3540 {
		t.Errorf("a minute late: %+v", late)
	}
	var clear int
	runtest.Must(t, s.DB.QueryRow(t.Context(), `select count(*) from ops.oauth_tokens t
		where t::text like '%' || $1 || '%' or encode(successor, 'escape') like '%svc_%'`, first.RefreshToken).Scan(&clear))
	if clear > 0 {
		t.Error("a token is stored in clear")
	}
	other := s.tokens(s.redeems(client, s.code(s.ana, client)))
	second := s.tokens(s.refreshes(client, first.RefreshToken))
	s.clock = s.clock.Add(5 * time.Minute)
	refused(t, "after five minutes", s.refreshes(client, has.RefreshToken), 400, invalidGrant)
	if s.lives(first.AccessToken) || s.lives(second.AccessToken) {
		t.Error("the family lives")
	}
	refused(t, "the newest of the family", s.refreshes(client, second.RefreshToken), 400, invalidGrant)
	if !s.lives(other.AccessToken) {
		t.Error("another family of the grant has ended")
	}
}

func TestRefresh_Refuses(t *testing.T) {
	s := newScene(t)
	client, has := s.connected(s.ana)
	other, _ := s.connected(s.ana)
	for name, c := range map[string]struct {
		change []string
		status int
		code   string
	}{
		"other client":    {[]string{"client_id", other}, 400, invalidGrant},
		"gone client":     {[]string{"client_id", "mcpc_gone"}, 401, "invalid_client"},
		"no client":       {[]string{"client_id", ""}, 400, invalidRequest},
		"the API":         {[]string{"resource", urls.API + "/api/v1"}, 400, invalidTarget},
		"an access token": {[]string{"refresh_token", has.AccessToken}, 400, invalidGrant},
		"nothing":         {[]string{"refresh_token", ""}, 400, invalidGrant},
	} {
		refused(t, name, s.refreshes(client, has.RefreshToken, c.change...), c.status, c.code)
	}
	reads := s.tokens(s.redeems(client, s.code(s.ana, client, "scope", "memory:read")))
	refused(t, "more than granted", s.refreshes(client, reads.RefreshToken, "scope", "memory:read memory:write"), 400, invalidScope)
	s.tokens(s.refreshes(client, reads.RefreshToken, "scope", "offline_access"))
	_, err := s.DB.Exec(t.Context(), `delete from ops.oauth_clients where id = $1`, client)
	runtest.Must(t, err)
	refused(t, "of a client that is gone", s.refreshes(client, has.RefreshToken), 401, "invalid_client")
	s.clock = s.clock.Add(refreshLives)
}

// A token for another address of the service opens nothing after the address has changed.
func TestAuthenticate_OfAnotherResource(t *testing.T) {
	s := newScene(t)
	client, has := s.connected(s.ana)
	s.URLs.Console = "https://new.example"
	if s.lives(has.AccessToken) {
		t.Error("a token for another resource is valid")
	}
	refused(t, "refresh", s.refreshes(client, has.RefreshToken), 400, invalidGrant)
}

// exchange is what agents do.
type exchange struct{ revoked []string }

func (e *exchange) Exchange(_ context.Context, assertion, resource, scope string) (TokenResponse, error) {
	if assertion != "good" {
		return TokenResponse{}, &Error{Code: invalidGrant, Description: "no"}
	}
	return TokenResponse{AccessToken: resource, TokenType: "Bearer", ExpiresIn: 900, Scope: scope}, nil
}

func (e *exchange) Revoke(_ context.Context, token string) (bool, error) {
	e.revoked = append(e.revoked, token)
	return false, nil
}

func TestRevoke(t *testing.T) {
	agents := &exchange{}
	s := newScene(t, func(c *Config) { c.Exchange = agents })
	client, has := s.connected(s.ana)
	revoke := func(form url.Values) page { return s.post("/oauth2/revoke", form) }
	refused(t, "no token", revoke(nil), 400, invalidRequest)
	for _, form := range []url.Values{
		{"token": {"svc_oat_unknown"}}, {"token": {"art_x"}}, {"token": {has.AccessToken}, "client_id": {"mcpc_other"}},
	} {
		if got := revoke(form); got.status != http.StatusOK || got.body != "" || !s.lives(has.AccessToken) {
			t.Errorf("%v: %d %s", form, got.status, got.body)
		}
	}
	if !slices.Equal(agents.revoked, []string{"art_x"}) {
		t.Errorf("agents were asked about %v", agents.revoked)
	}
	if got := revoke(url.Values{"token": {has.RefreshToken}, "client_id": {client}}); got.status != 200 || s.lives(has.AccessToken) {
		t.Errorf("%d %s", got.status, got.body)
	}
	if events := s.log.all(); len(events) != 2 {
		t.Errorf("%v", events)
	}
	form := url.Values{"grant_type": {grantAgent}, "assertion": {"good"}, "resource": {"r"}, "scope": {"memory:read"}}
	if got := s.post("/oauth2/token", form); got.body != `{"access_token":"r","token_type":"Bearer","expires_in":900,"scope":"memory:read"}` {
		t.Errorf("%d %s", got.status, got.body)
	}
	form.Set("assertion", "bad")
	refused(t, "a bad assertion", s.post("/oauth2/token", form), 400, invalidGrant)
}
