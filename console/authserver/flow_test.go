package authserver

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/sealedtables"
)

func TestDocuments_AreByteExact(t *testing.T) {
	s := newScene(t)
	const want = `{"issuer":"https://memory.example","authorization_endpoint":"https://memory.example/oauth2/authorize",` +
		`"token_endpoint":"https://memory.example/oauth2/token","registration_endpoint":"https://memory.example/oauth2/register",` +
		`"revocation_endpoint":"https://memory.example/oauth2/revoke","jwks_uri":"https://memory.example/.well-known/jwks.json",` +
		`"scopes_supported":["memory:read","memory:write","offline_access"],"response_types_supported":["code"],` +
		`"response_modes_supported":["query"],"grant_types_supported":["authorization_code","refresh_token",` +
		`"urn:ietf:params:oauth:grant-type:jwt-bearer"],"token_endpoint_auth_methods_supported":["none"],` +
		`"revocation_endpoint_auth_methods_supported":["none"],"code_challenge_methods_supported":["S256"],` +
		`"authorization_response_iss_parameter_supported":true,"service_documentation":"https://api.example/auth.md",` +
		`"agent_auth":{"skill":"https://api.example/auth.md","identity_endpoint":"https://memory.example/agent/identity",` +
		`"claim_endpoint":"https://memory.example/agent/identity/claim",` +
		`"revocation_endpoint":"https://memory.example/oauth2/revoke","identity_types_supported":["service_auth"]}}`
	const at = "/.well-known/oauth-authorization-server"
	got := s.send(http.MethodGet, at, uuid.Nil, "", "", "Host", "evil.example", "Origin", "https://other.example")
	if got.status != 200 || got.body != want || got.header.Get("Access-Control-Allow-Origin") != "*" ||
		got.header.Get("Content-Type") != "application/json" || got.header.Get("Cache-Control") != "public, max-age=300" {
		t.Errorf("%d %v\n%s", got.status, got.header, got.body)
	}
	if s.Documents.On = true; !strings.Contains(s.send(http.MethodGet, at, uuid.Nil, "", "").body,
		`"client_id_metadata_document_supported":true,`) {
		t.Error("documents of clients are not announced")
	}
	set := s.send(http.MethodGet, "/.well-known/jwks.json", uuid.Nil, "", "")
	if keys := set.json(t)["keys"].([]any); len(keys) != 2 || strings.Contains(set.body, `"d"`) {
		t.Errorf("%s", set.body)
	}
	if got := s.send(http.MethodOptions, at, uuid.Nil, "", ""); got.status != http.StatusNoContent {
		t.Errorf("preflight: %d", got.status)
	}
	for _, path := range []string{"openid-configuration", "oauth-authorization-server/mcp", "x", ""} {
		got := s.send(http.MethodGet, "/.well-known/"+path, uuid.Nil, "", "")
		if got.status != http.StatusNotFound || strings.Contains(got.body, "<") {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
}

func TestRegister_EchoesWhatIsKnown(t *testing.T) {
	s := newScene(t)
	got := s.send(http.MethodPost, "/oauth2/register", uuid.Nil, `{"client_name":"MCP \u0007CLI`+strings.Repeat("x", 90)+`",
		"redirect_uris":["http://localhost:11953/oauth/callback"],"grant_types":["authorization_code","client_credentials"],
		"token_endpoint_auth_method":"client_secret_basic","application_type":"native","scope":"memory:read","logo_uri":null}`,
		"application/json")
	fields := got.json(t)
	if got.status != http.StatusCreated || fields["token_endpoint_auth_method"] != "none" ||
		fields["scope"] != "memory:read memory:write offline_access" || fields["application_type"] != "native" ||
		strings.Contains(got.body, "null") || strings.Contains(got.body, `\u0007`) || len(fields["client_name"].(string)) > 90 ||
		!strings.HasPrefix(fields["client_id"].(string), "mcpc_") || fields["client_secret"] != nil {
		t.Errorf("%d %s", got.status, got.body)
	}
	for body, code := range map[string]string{
		``: invalidMetadata, `[]`: invalidMetadata, `{"redirect_uris":"https://a.example"}`: invalidMetadata,
		`{}`: invalidRedirect, `{"redirect_uris":[]}`: invalidRedirect, `{"redirect_uris":["/cb"]}`: invalidRedirect,
	} {
		refused(t, body, s.send(http.MethodPost, "/oauth2/register", uuid.Nil, body, "application/json"), 400, code)
	}
}

func TestRegister_IsLimitedByAddress(t *testing.T) {
	s := newScene(t, func(c *Config) { c.Registrations, c.Calls = 2, 1 })
	s.registers(callback)
	s.registers(callback)
	got := s.send(http.MethodPost, "/oauth2/register", uuid.Nil, "{}", "application/json")
	refused(t, "the third", got, http.StatusTooManyRequests, "rate_limit_exceeded")
	if got.header.Get("Retry-After") == "" || got.json(t)["retry_after"] == nil {
		t.Errorf("no time to wait: %s", got.body)
	}
	s.post("/oauth2/token", nil)
	refused(t, "a token", s.post("/oauth2/token", nil), http.StatusTooManyRequests, "rate_limit_exceeded")
	s.clock = s.clock.Add(time.Hour)
	s.registers(callback)
}

// A person lets a client act, the client gets tokens, refreshes them, and the person ends it.
func TestFlow_FromConsentToRevocation(t *testing.T) {
	s := newScene(t)
	client := s.registers(callback)
	q := asks(client, "scope", " memory:write  memory:read offline_access admin ")
	got := s.send(http.MethodGet, "/oauth2/authorize?"+q.Encode(), uuid.Nil, "", "")
	if to := got.header.Get("Location"); got.status != http.StatusFound || to != urls.Console+"/oauth2/consent?"+q.Encode() {
		t.Fatalf("%d %s", got.status, to)
	}
	got = s.send(http.MethodGet, "/oauth2/consent?"+q.Encode(), uuid.Nil, "", "")
	if to := got.header.Get("Location"); !strings.HasPrefix(to, "/sign-in?next=%2Foauth2%2Fconsent%3F") {
		t.Fatalf("without a session: %d %s", got.status, to)
	}
	got = s.send(http.MethodGet, "/oauth2/consent?"+q.Encode(), s.ana, "", "")
	for _, text := range []string{"<strong>App</strong>", "app.example", "all my projects", ">oil<", "memory:write"} {
		if !strings.Contains(got.body, text) {
			t.Errorf("the page has no %q: %s", text, got.body)
		}
	}
	if policy := got.header.Get("Content-Security-Policy"); strings.Contains(policy, "form-action") ||
		!strings.Contains(policy, "frame-ancestors 'none'") {
		t.Errorf("the policy is %s", policy)
	}
	got, values := s.decides(s.ana, q, "approve", s.acme.String()+"/"+s.oil.String())
	if got.status != http.StatusSeeOther || values.Get("iss") != urls.Auth || values.Get("state") != "st" {
		t.Fatalf("%d %s", got.status, got.header.Get("Location"))
	}
	has := s.tokens(s.redeems(client, values.Get("code")))
	if has.TokenType != "Bearer" || has.ExpiresIn != 3600 || has.Scope != "memory:read memory:write" ||
		!strings.HasPrefix(has.AccessToken, "svc_oat_") || !strings.HasPrefix(has.RefreshToken, "svc_ort_") {
		t.Errorf("%+v", has)
	}
	g, err := s.Authenticate(t.Context(), has.AccessToken)
	runtest.Must(t, err)
	if g.Person != s.ana || g.Organization != s.acme || g.Project != "oil" || g.ClientID != client || g.ClientName != "App" ||
		!slices.Equal(g.Scopes, []auth.Scope{auth.Read, auth.Write}) {
		t.Errorf("%+v", g)
	}
	narrow := s.tokens(s.refreshes(client, has.RefreshToken, "scope", "memory:read"))
	g, err = s.Authenticate(t.Context(), narrow.AccessToken)
	runtest.Must(t, err)
	if narrow.Scope != "memory:read" || len(g.Scopes) != 1 {
		t.Errorf("narrowed: %+v %+v", narrow, g)
	}
	wide := s.tokens(s.refreshes(client, narrow.RefreshToken))
	if wide.Scope != has.Scope {
		t.Errorf("after the narrowed one: %+v", wide)
	}
	list, err := s.Grants(t.Context(), s.ana)
	runtest.Must(t, err)
	if len(list) != 1 || list[0].ID != g.ID || list[0].RedirectHost != "app.example" || list[0].UsedAt == nil {
		t.Fatalf("%+v", list)
	}
	if found, err := s.RevokeGrant(t.Context(), engine.Call{}, s.ben, g.ID); found || err != nil {
		t.Errorf("somebody else ends it: %t %v", found, err)
	}
	if found, err := s.RevokeGrant(t.Context(), engine.Call{}, s.ana, g.ID); !found || err != nil {
		t.Errorf("%t %v", found, err)
	}
	if s.lives(has.AccessToken) || s.lives(wide.AccessToken) {
		t.Error("a token of a revoked grant is valid")
	}
	refused(t, "refresh", s.refreshes(client, wide.RefreshToken), 400, invalidGrant)
	events := s.log.all()
	approved, is := events[0].(organization.GrantApproved)
	if !is || len(events) != 2 || approved.MemberID != s.ana || approved.GrantID != g.ID || approved.ProjectID != s.oil ||
		events[1] != (organization.GrantRevoked{OrganizationID: s.acme, MemberID: s.ana, GrantID: g.ID}) {
		t.Errorf("events %+v", events)
	}
}

// A grant at an address that only its host can answer is remembered; any other is asked for again.
func TestConsent_IsRemembered(t *testing.T) {
	s := newScene(t)
	client := s.registers(callback, "http://localhost/cb", "cursor://cb")
	ask := func(changes ...string) string {
		got := s.send(http.MethodGet, "/oauth2/consent?"+asks(client, changes...).Encode(), s.ana, "", "")
		return got.header.Get("Location")
	}
	for _, redirect := range []string{callback, "http://localhost:4711/cb", "cursor://cb"} {
		s.code(s.ana, client, "redirect_uri", redirect, "scope", "memory:read")
	}
	if !strings.Contains(ask("scope", "memory:read"), "code=") {
		t.Error("asked again")
	}
	for name, to := range map[string]string{
		"more scopes": ask(), "prompt": ask("scope", "memory:read", "prompt", "consent"),
		"loopback": ask("scope", "memory:read", "redirect_uri", "http://localhost:4711/cb"),
		"private":  ask("scope", "memory:read", "redirect_uri", "cursor://cb"),
	} {
		if to != "" {
			t.Errorf("%s: not asked: %s", name, to)
		}
	}
	s.people[s.ana].Memberships[0].SecondFactor = true
	if to := ask("scope", "memory:read"); strings.Contains(to, "code=") {
		t.Error("granted without the second factor that the organization requires")
	}
}

// A token does what its person may do now.
func TestAuthenticate_IsLive(t *testing.T) {
	s := newScene(t)
	client := s.registers(callback)
	_, values := s.decides(s.ben, asks(client), "approve", s.acme.String())
	has := s.tokens(s.redeems(client, values.Get("code")))
	if has.Scope != "memory:read" {
		t.Errorf("Ben gives %s", has.Scope)
	}
	if _, values := s.decides(s.ben, asks(client, "scope", "memory:write"), "approve", s.acme.String()); values.Get("error") != invalidScope {
		t.Errorf("Ben gives write: %v", values)
	}
	_, anas := s.connected(s.ana)
	s.people[s.ana].Memberships[0].Role = organization.Member
	g, err := s.Authenticate(t.Context(), anas.AccessToken)
	runtest.Must(t, err)
	if len(g.Scopes) != 0 {
		t.Errorf("without access: %v", g.Scopes)
	}
	s.people[s.ana].Memberships[0].Access = map[uuid.UUID]organization.Access{s.oil: organization.ReadAccess}
	if g, err = s.Authenticate(t.Context(), anas.AccessToken); err != nil || len(g.Scopes) != 1 {
		t.Errorf("with read: %v %v", g.Scopes, err)
	}
	s.people[s.ana].Memberships = nil
	if s.lives(anas.AccessToken) {
		t.Error("a token of somebody who left is valid")
	}
	s.clock = s.clock.Add(accessLives)
	if s.lives(has.AccessToken) {
		t.Error("an expired token is valid")
	}
	for _, token := range []string{"", "svc_oat_", "svc_sk_x", has.RefreshToken, has.AccessToken + "x"} {
		if s.lives(token) {
			t.Errorf("%q is valid", token)
		}
	}
}

func TestTidy_KeepsWhatLives(t *testing.T) {
	s := newScene(t)
	s.registers(callback)
	client, has := s.connected(s.ana)
	_, bens := s.connected(s.ben)
	s.clock = s.clock.Add(refreshLives - time.Minute)
	delete(s.people, s.ben)
	has = s.tokens(s.refreshes(client, has.RefreshToken))
	s.clock = s.clock.Add(2 * time.Minute)
	runtest.Must(t, s.Tidy(t.Context()))
	var clients, grants, codes, tokens int
	runtest.Must(t, s.DB.QueryRow(t.Context(), `select (select count(*) from ops.oauth_clients),
		(select count(*) from ops.oauth_grants), (select count(*) from ops.oauth_codes), (select count(*) from ops.oauth_tokens)`).
		Scan(&clients, &grants, &codes, &tokens))
	if clients != 2 || grants != 1 || codes != 0 || tokens != 1 || !s.lives(has.AccessToken) || s.lives(bens.AccessToken) {
		t.Errorf("%d clients, %d grants, %d codes, %d tokens", clients, grants, codes, tokens)
	}
}

// A client that never had a grant ends after a day, and one that had any after 30 days without one.
func TestTidy_Clients(t *testing.T) {
	s := newScene(t)
	s.registers(callback)
	client, _ := s.connected(s.ana)
	count := func() (n int) {
		runtest.Must(t, s.Tidy(t.Context()))
		runtest.Must(t, s.DB.QueryRow(t.Context(), `select count(*) from ops.oauth_clients`).Scan(&n))
		return n
	}
	for _, c := range []struct {
		after time.Duration
		want  int
		why   string
	}{
		{newClient - time.Minute, 2, "before a day"},
		{2 * time.Minute, 1, "after a day"},
		{60 * 24 * time.Hour, 1, "with a grant for two months"},
	} {
		if s.clock = s.clock.Add(c.after); count() != c.want {
			t.Errorf("%s: %d clients", c.why, count())
		}
	}
	_, err := s.DB.Exec(t.Context(), `delete from ops.oauth_grants where client_id = $1`, client)
	runtest.Must(t, err)
	s.clock = s.clock.Add(29 * 24 * time.Hour)
	if n := count(); n != 1 {
		t.Errorf("29 days after the last grant: %d clients", n)
	}
	s.clock = s.clock.Add(unusedClient - 29*24*time.Hour + time.Minute)
	if n := count(); n != 0 {
		t.Errorf("30 days after the last grant: %d clients", n)
	}
}

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

// After a restore a client keeps its id and what people let it do, with the second factor, and has to ask for tokens
// again. What ended with all of a person is still to be recorded.
func TestBackup_KeepsClientsAndGrants(t *testing.T) {
	s := newScene(t)
	s.second = true
	s.connected(s.ben)
	runtest.Must(t, pgx.BeginFunc(t.Context(), s.DB, func(tx pgx.Tx) error { return s.EndAll(t.Context(), tx, s.ben) }))
	client, has := s.connected(s.ana)
	before, err := s.Grants(t.Context(), s.ana)
	runtest.Must(t, err)
	var dump bytes.Buffer
	runtest.Must(t, sealedtables.Dump(t.Context(), s.DB, s.Sealer, &dump, Tables()...))
	if bytes.Contains(dump.Bytes(), []byte("app.example")) {
		t.Error("the backup is not sealed")
	}
	_, err = s.DB.Exec(t.Context(), `delete from ops.oauth_grants; delete from ops.oauth_clients;
		delete from ops.oauth_endings`)
	runtest.Must(t, err)
	runtest.Must(t, sealedtables.Load(t.Context(), s.DB, s.Sealer, &dump, Tables()...))
	after, err := s.Grants(t.Context(), s.ana)
	runtest.Must(t, err)
	if len(after) != 1 || len(before) != 1 || after[0].ID != before[0].ID || after[0].ClientID != client {
		t.Errorf("%+v, want %+v", after, before)
	}
	s.people[s.ana].Memberships[0].SecondFactor = true
	runtest.Must(t, s.Tidy(t.Context()))
	if e, is := s.log.all()[len(s.log.all())-1].(organization.GrantRevoked); !is || e.MemberID != s.ben {
		t.Errorf("the last event is %+v", e)
	}
	refused(t, "refresh", s.refreshes(client, has.RefreshToken), 400, invalidGrant)
	got := s.send("GET", "/oauth2/consent?"+asks(client).Encode(), s.ana, "", "")
	s.tokens(s.redeems(client, back(t, got).Get("code")))
}
