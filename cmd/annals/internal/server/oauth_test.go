package server

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	oauth "github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/people"
	"github.com/annals-project/annals/console/signin"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/mcptest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/webtest"
)

const oauthCallback = "http://127.0.0.1:7777/callback"

// consents is a person who is sent to the page of consent, and allows what it asks for in a place that is offered: the
// first whose name begins so. times counts it, unless it is nil.
func (h *consoleHarness) consents(reader *webtest.Reader, place string, times *int) oauth.AuthorizationCodeFetcher {
	return func(_ context.Context, args *oauth.AuthorizationArgs) (*oauth.AuthorizationResult, error) {
		if times != nil {
			*times++
		}
		_, query, _ := strings.Cut(args.URL, "?")
		at := "/oauth2/consent?" + query
		value := ""
		for _, option := range reader.Open(at).Find("option").EachIter() {
			if value == "" && strings.HasPrefix(option.Text(), place) {
				value = option.AttrOr("value", "")
			}
		}
		answer := reader.Ask(http.MethodPost, at, url.Values{"decision": {"approve"}, "place": {value}})
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
		RedirectURL: oauthCallback, AuthorizationCodeFetcher: h.consents(reader, place, nil), RequestRefreshToken: true,
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
	h := newStaff(t)
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
	call := engine.Call{
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

// let is what a person let in: a client with its tokens, and an agent with its own.
type let struct{ client, access, refresh, assertion, renewal string }

// registerClient registers a client that leads back to an address.
func (h *consoleHarness) registerClient(callback string) (id string) {
	h.t.Helper()
	id = h.sendAs("", http.MethodPost, h.urls.Auth+"/oauth2/register", "application/json",
		`{"client_name":"Desk","redirect_uris":["`+callback+`"]}`).
		want(h.t, "the registration of a client", http.StatusCreated, "").at("client_id")
	if id == "" {
		h.t.Fatal("a client is registered without an id")
	}
	return id
}

// consent registers a client, and has somebody of a role let it in.
func (h *consoleHarness) consent(role, challenge string) (client string, answer page) {
	h.t.Helper()
	client = h.registerClient(oauthCallback)
	at := "/oauth2/consent?" + url.Values{
		"response_type": {"code"}, "client_id": {client}, "redirect_uri": {oauthCallback}, "state": {"st"},
		"scope": {"memory:read"}, "code_challenge": {challenge}, "code_challenge_method": {"S256"},
		"resource": {h.urls.Console + "/mcp"},
	}.Encode()
	return client, h.submit(role, at, "decision", "approve", "place", h.home().String())
}

// letIn has somebody of a role let a client and an agent in.
func (h *consoleHarness) letIn(role string) (l let) {
	h.t.Helper()
	const verifier = "dBjFtJeZ4CVP-mB92K27uhbUUP1mD2aLxMvE6J3qxYz"
	sum := sha256.Sum256([]byte(verifier))
	var answer page
	l.client, answer = h.consent(role, base64.RawURLEncoding.EncodeToString(sum[:]))
	to, err := url.Parse(answer.Location)
	runtest.Must(h.t, err)
	got := h.token(url.Values{
		"grant_type": {"authorization_code"}, "code": {to.Query().Get("code")}, "client_id": {l.client},
		"redirect_uri": {oauthCallback}, "code_verifier": {verifier}, "resource": {h.urls.Console + "/mcp"},
	})
	if l.access, l.refresh = got.at("access_token"), got.at("refresh_token"); l.refresh == "" {
		h.t.Fatalf("no tokens: %+v, %d %.2000s", got, answer.Status, answer.Body)
	}
	l.assertion, l.renewal = h.admit(role)
	return l
}

func (h *consoleHarness) token(form url.Values) agentAnswer {
	h.t.Helper()
	return h.sendAs("", http.MethodPost, h.urls.Auth+"/oauth2/token", "application/x-www-form-urlencoded", form.Encode())
}

// works fails unless what a person let in works, or does not.
func (h *consoleHarness) works(when string, l let, is bool) {
	h.t.Helper()
	want := map[bool]int{true: http.StatusOK, false: http.StatusUnauthorized}[is]
	if status, _, _ := h.postMCP("/mcp", l.access, "initialize", `{"protocolVersion":"2025-06-18","capabilities":{},`+
		`"clientInfo":{"name":"desk","version":"1"}}`); status != want {
		h.t.Errorf("%s: /mcp answers %d, want %d", when, status, want)
	}
	if got := h.exchange(l.assertion); (got.status == http.StatusOK) != is || !is && got.at("error") != "invalid_grant" {
		h.t.Errorf("%s: the agent exchanges its assertion: %+v", when, got)
	}
}

// ended fails unless nothing can be renewed of what a person let in.
func (h *consoleHarness) ended(when string, l let) {
	h.t.Helper()
	h.works(when, l, false)
	h.token(url.Values{"grant_type": {"refresh_token"}, "refresh_token": {l.refresh}, "client_id": {l.client}}).
		want(h.t, when+": refresh", 400, "invalid_grant")
	h.renewAgent(l.renewal).want(h.t, when+": the agent's refresh", 401, "invalid_refresh_token")
}

// live counts what the log lets in for people of a role.
func (h *consoleHarness) live(role string) (n int) {
	h.t.Helper()
	runtest.Must(h.t, h.storage.db.QueryRow(h.t.Context(), `select
		(select count(*) from access.client_grants where person_id = $1 and not ended) +
		(select count(*) from access.agents where person_id = $1 and not revoked)`, h.ids[role]).Scan(&n))
	return n
}

// What somebody let in, a client and an agent, ends with all sessions if the person asks for it, a reset of the
// password or of the second factor, and the membership; it is refused without a second factor that is required. A crash
// does not keep it.
func TestGrants_EndWithWhatLetThemIn(t *testing.T) {
	h := newStaff(t)
	owner, admin := h.letIn("owner"), h.letIn("admin")
	h.needsSecondFactor(admin)
	for _, c := range []struct {
		what string
		end  func()
	}{
		{"everything", func() {
			programs := h.letIn("read")
			h.postForm("read", "/account/sessions", url.Values{}, http.StatusSeeOther)
			h.works("after all sessions", programs, true)
			h.postForm("read", "/account/sessions", url.Values{"programs": {"yes"}}, http.StatusSeeOther)
		}},
		{"a reset of the password", func() {
			token, err := h.signin.NewLink(t.Context(), signin.Link{
				Purpose: signin.Owner, Person: h.ids["read"], Email: h.mail("read"),
			})
			runtest.Must(t, err)
			h.postForm("nobody", "/link/"+token, url.Values{"password": {"correct horse battery"}}, http.StatusSeeOther)
		}},
		{"a reset of the second factor", func() {
			h.postForm("owner", membersPage+"/"+h.ids["read"].String(), url.Values{"do": {"second-factor"}, "sure": {"yes"}}, 303)
		}},
		{"leaving and a return", h.leavesAndReturns},
	} {
		read := h.letIn("read")
		h.works("before "+c.what, read, true)
		c.end()
		h.ended("after "+c.what, read)
		if n := h.live("read"); n != 0 {
			t.Errorf("after %s the log lets %d in", c.what, n)
		}
	}
	h.works("of somebody else", owner, true)
	h.submit("owner", "/account/leave", "organization", h.home().String(), "sure", "yes").want(t, 409, "last owner")

	// The process ends after the transaction: nothing is alive, and the tidying writes the rest.
	runtest.Must(t, pgx.BeginFunc(t.Context(), h.storage.db, func(tx pgx.Tx) error {
		return grantsOf{h.Server}.End(t.Context(), tx, h.ids["owner"])
	}))
	h.ended("after a crash", owner)
	if n := h.live("owner"); n != 2 {
		t.Errorf("the log lets %d in before the tidying", n)
	}
	runtest.Must(t, h.authServer.Tidy(t.Context()))
	runtest.Must(t, h.agents.Tidy(t.Context()))
	if n := h.live("owner"); n != 0 {
		t.Errorf("the log lets %d in after the tidying", n)
	}
	h.ended("after the tidying", owner)
}

// needsSecondFactor checks that what the admin let in without a second factor is refused while the organization
// requires one.
func (h *consoleHarness) needsSecondFactor(l let) {
	h.t.Helper()
	service, call := h.people()
	call.Principal.OrganizationID = h.home()
	require := func(is bool) {
		runtest.Must(h.t, service.SetSecondFactor(h.t.Context(), call, h.home(), is))
	}
	h.works("before", l, true)
	require(true)
	h.ended("while it is required", l)
	require(false)
	h.works("once it is not", l, true)
	h.renewAgent(l.renewal).want(h.t, "the agent's refresh once it is not", http.StatusOK, "")
	h.exec(`update ops.agent_registrations set second_factor = true where person_id = $1`, h.ids["admin"])
	h.exec(`update ops.oauth_grants set second_factor = true where person_id = $1`, h.ids["admin"])
	require(true)
	h.works("with one", l, true)
	require(false)
}

// leavesAndReturns has somebody leave the organization, who is added again.
func (h *consoleHarness) leavesAndReturns() {
	h.t.Helper()
	got := h.postForm("read", "/account/leave", url.Values{"organization": {h.home().String()}, "sure": {"yes"}}, 303)
	if got.Location != "/sign-in" {
		h.t.Errorf("leads to %s", got.Location)
	}
	if data, meta := h.lastEvent("organization.member-removed.v1"); !strings.Contains(data, h.ids["read"].String()) ||
		!strings.Contains(meta, "person:"+h.ids["read"].String()) {
		h.t.Errorf("the event is %s %s", data, meta)
	}
	service, call := h.people()
	call.Principal.OrganizationID = h.home()
	back, err := service.AddMember(h.t.Context(), call, h.home(),
		people.NewMember{Email: h.mail("read"), Role: organization.Member})
	runtest.Must(h.t, err)
	if back != h.ids["read"] {
		h.t.Errorf("%s returns as %s", h.ids["read"], back)
	}
	for path, none := range map[string]string{"/settings/connections": "No program is connected", "/settings/agents": ""} {
		h.get("read", path).want(h.t, 200, none).lacks(h.t, "Helper")
	}
}

const root = "../../../.."

// The service does what each revision of the protocol requires of a server, but for what the baseline names.
func TestMCP_Conformance(t *testing.T) {
	unraced(t)
	t.Parallel()
	mcptest.Suite(t, root)
	h, key := newHarness(t), ""
	proxy := mcptest.Proxy(t, func() string { return key }, func() string { return h.urls.Console })
	// The suite calls as a page of the address that it knows.
	h.set = func(c *Config) { c.MCPOrigins = proxy.URL }
	h.start()
	key, _ = h.keys()
	for _, revision := range mcptest.Revisions {
		mcptest.Server(t, root, proxy.URL+"/mcp", revision, "testdata/mcp-"+revision+".yaml")
	}
}

// A client that registered before gets a code and a token as the suite wants them. A person consents, nothing else.
func TestMCP_ConformanceOfAuthorization(t *testing.T) {
	mcptest.Suite(t, root)
	h := newStaff(t)
	_, port, _ := strings.Cut(runtest.FreeAddress(t), ":")
	id := h.registerClient("http://127.0.0.1:" + port + "/callback")
	var out, problems strings.Builder
	suite := mcptest.Suite(t, root, "authorization", "--url", h.urls.Auth, "--client-id", id, "--port", port,
		"--resource", h.urls.Console+"/mcp")
	suite.Stderr = &problems
	lines, err := suite.StdoutPipe()
	runtest.Must(t, err)
	runtest.Must(t, suite.Start())
	consents := 0
	consent := h.consents(h.as("write"), "", &consents)
	for lines := bufio.NewScanner(lines); lines.Scan(); {
		out.WriteString(lines.Text() + "\n")
		if strings.HasPrefix(lines.Text(), h.urls.Auth+"/oauth2/authorize?") {
			given, err := consent(t.Context(), &oauth.AuthorizationArgs{URL: lines.Text()})
			runtest.Must(t, err)
			back := "http://127.0.0.1:" + port + "/callback?" + url.Values{
				"code": {given.Code}, "state": {given.State}, "iss": {given.Iss},
			}.Encode()
			runtest.Await(t, "the suite listens", func() bool { // it may print the address before
				res, err := http.Get(back)
				return err == nil && res.Body.Close() == nil
			})
		}
	}
	if err := suite.Wait(); err != nil || consents != 1 || !strings.Contains(out.String(), "✓ authorization-code-grant: 1 passed") {
		t.Errorf("%v after %d consents\n%s%s", err, consents, out.String(), problems.String())
	}
}
