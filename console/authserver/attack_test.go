package authserver

import (
	"context"
	"fmt"
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
