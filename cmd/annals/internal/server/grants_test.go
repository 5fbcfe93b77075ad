package server

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/console/signin"
	"github.com/annals-project/annals/internal/runtest"
)

// let is what a person let in: a client with its tokens, and an agent with its own.
type let struct{ client, access, refresh, assertion, renewal string }

// letIn has somebody of a role let a client and an agent in.
func (h *consoleHarness) letIn(role string) (l let) {
	h.t.Helper()
	const verifier = "dBjFtJeZ4CVP-mB92K27uhbUUP1mD2aLxMvE6J3qxYz"
	sum := sha256.Sum256([]byte(verifier))
	status, out := h.sendAs("", http.MethodPost, h.urls.Auth+"/oauth2/register", "application/json",
		`{"client_name":"Desk","redirect_uris":["`+oauthCallback+`"]}`)
	if l.client = at(out, "client_id"); l.client == "" {
		h.t.Fatalf("registered: %d %v", status, out)
	}
	consent := "/oauth2/consent?" + url.Values{
		"response_type": {"code"}, "client_id": {l.client}, "redirect_uri": {oauthCallback}, "state": {"st"},
		"scope": {"memory:read"}, "code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])},
		"code_challenge_method": {"S256"}, "resource": {h.urls.Console + "/mcp"},
	}.Encode()
	answer := h.as(role).Ask(http.MethodPost, consent,
		url.Values{"decision": {"approve"}, "place": {h.home().String()}})
	to, err := url.Parse(answer.Location)
	runtest.Must(h.t, err)
	status, out = h.token(url.Values{
		"grant_type": {"authorization_code"}, "code": {to.Query().Get("code")}, "client_id": {l.client},
		"redirect_uri": {oauthCallback}, "code_verifier": {verifier}, "resource": {h.urls.Console + "/mcp"},
	})
	if l.access, l.refresh = at(out, "access_token"), at(out, "refresh_token"); l.refresh == "" {
		h.t.Fatalf("no tokens: %d %v, %d %.2000s", status, out, answer.Status, answer.Body)
	}
	l.assertion, l.renewal = h.admit(role)
	return l
}

func (h *consoleHarness) token(form url.Values) (int, map[string]any) {
	h.t.Helper()
	return h.sendAs("", http.MethodPost, h.urls.Auth+"/oauth2/token", "application/x-www-form-urlencoded", form.Encode())
}

// initialize is the status of /mcp for an access token.
func (h *consoleHarness) initialize(token string) int {
	h.t.Helper()
	req, err := http.NewRequestWithContext(h.t.Context(), http.MethodPost, h.urls.Console+"/mcp", strings.NewReader(
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},`+
			`"clientInfo":{"name":"desk","version":"1"}}}`))
	runtest.Must(h.t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	res, err := http.DefaultClient.Do(req)
	runtest.Must(h.t, err)
	_, err = io.Copy(io.Discard, res.Body)
	runtest.Must(h.t, err)
	runtest.Must(h.t, res.Body.Close())
	return res.StatusCode
}

// works fails unless what a person let in works, or does not.
func (h *consoleHarness) works(when string, l let, is bool) {
	h.t.Helper()
	want := map[bool]int{true: http.StatusOK, false: http.StatusUnauthorized}[is]
	if status := h.initialize(l.access); status != want {
		h.t.Errorf("%s: /mcp answers %d, want %d", when, status, want)
	}
	if status, out := h.exchange(l.assertion); (status == http.StatusOK) != is || !is && at(out, "error") != "invalid_grant" {
		h.t.Errorf("%s: the agent exchanges its assertion: %d %v", when, status, out)
	}
}

// ended fails unless nothing can be renewed of what a person let in.
func (h *consoleHarness) ended(when string, l let) {
	h.t.Helper()
	h.works(when, l, false)
	status, out := h.token(url.Values{"grant_type": {"refresh_token"}, "refresh_token": {l.refresh}, "client_id": {l.client}})
	want(h.t, when+": refresh", status, out, 400, "invalid_grant")
	status, out = h.renewAgent(l.renewal)
	want(h.t, when+": the agent's refresh", status, out, 401, "invalid_refresh_token")
}

// live counts what the log lets in for people of a role.
func (h *consoleHarness) live(role string) (n int) {
	h.t.Helper()
	runtest.Must(h.t, h.storage.db.QueryRow(h.t.Context(), `select
		(select count(*) from access.client_grants where person_id = $1 and not ended) +
		(select count(*) from access.agents where person_id = $1 and not revoked)`, h.ids[role]).Scan(&n))
	return n
}

// What a session let in ends with a reset of the password, and with all sessions if the person asks for it.
func TestGrants_EndWithWhatLetThemIn(t *testing.T) {
	unraced(t)
	t.Parallel()
	h := newStaff(t)
	owner, admin, read := h.letIn("owner"), h.letIn("admin"), h.letIn("read")
	for role, l := range map[string]let{"owner": owner, "admin": admin, "read": read} {
		h.works("before, "+role, l, true)
	}
	h.postForm("read", "/account/sessions", url.Values{}, http.StatusSeeOther)
	h.works("after all sessions", read, true)
	h.postForm("read", "/account/sessions", url.Values{"programs": {"yes"}}, http.StatusSeeOther)
	h.ended("after everything", read)

	token, err := h.signin.NewLink(t.Context(), signin.Link{
		Purpose: signin.Owner, Person: h.ids["admin"], Email: h.mail("admin"),
	})
	runtest.Must(t, err)
	h.postForm("nobody", "/link/"+token, url.Values{"password": {"correct horse battery"}}, http.StatusSeeOther)
	h.ended("after a reset", admin)
	h.works("of somebody else", owner, true)
	for _, role := range []string{"read", "admin"} {
		if n := h.live(role); n != 0 {
			t.Errorf("the log lets %d in for %s", n, role)
		}
	}

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

// What was let in without a second factor is refused while the organization requires one.
func TestGrants_NeedTheSecondFactor(t *testing.T) {
	unraced(t)
	t.Parallel()
	h := newStaff(t)
	l := h.letIn("admin")
	h.works("before", l, true)
	service, call := h.people()
	of := h.home()
	call.Principal.OrganizationID = of
	runtest.Must(t, service.SetSecondFactor(t.Context(), call, of, true))
	h.ended("while it is required", l)
	runtest.Must(t, service.SetSecondFactor(t.Context(), call, of, false))
	h.works("once it is not", l, true)
	if status, out := h.renewAgent(l.renewal); status != http.StatusOK {
		text, _ := json.Marshal(out) // of text
		t.Errorf("the agent's refresh once it is not: %d %s", status, text)
	}
	h.exec(`update ops.agent_registrations set second_factor = true where person_id = $1`, h.ids["admin"])
	h.exec(`update ops.oauth_grants set second_factor = true where person_id = $1`, h.ids["admin"])
	runtest.Must(t, service.SetSecondFactor(t.Context(), call, of, true))
	h.works("with one", l, true)
}

// Who leaves an organization takes along what was let in there. The last Owner stays.
func TestLeave_EndsGrants(t *testing.T) {
	unraced(t)
	t.Parallel()
	h := newStaff(t)
	of := h.home().String()
	owner, read := h.letIn("owner"), h.letIn("read")
	got := h.postForm("owner", "/account/leave", url.Values{"organization": {of}, "sure": {"yes"}}, http.StatusConflict)
	if !strings.Contains(got.Body, "last owner") {
		t.Errorf("the last Owner is shown %.3000s", got.Body)
	}
	h.postForm("read", "/account/leave", url.Values{"organization": {of}}, http.StatusBadRequest)
	h.works("before", read, true)
	got = h.postForm("read", "/account/leave", url.Values{"organization": {of}, "sure": {"yes"}}, http.StatusSeeOther)
	if got.Location != "/sign-in" {
		t.Errorf("leads to %s", got.Location)
	}
	h.ended("after leaving", read)
	h.works("of who stays", owner, true)
	if data, meta := h.lastEvent("organization.member-removed.v1"); !strings.Contains(data, h.ids["read"].String()) ||
		!strings.Contains(meta, "person:"+h.ids["read"].String()) {
		t.Errorf("the event is %s %s", data, meta)
	}
	if got := h.as("read").Ask(http.MethodGet, "/", nil); got.Status != http.StatusSeeOther {
		t.Errorf("who left opens the console: %d", got.Status)
	}
}

// An Admin's reset of the second factor ends what the person let in.
func TestReset_OfTheSecondFactorEndsGrants(t *testing.T) {
	unraced(t)
	t.Parallel()
	h := newStaff(t)
	read, admin := h.letIn("read"), h.letIn("admin")
	h.works("before", read, true)
	h.postForm("owner", membersPage+"/"+h.ids["read"].String(), url.Values{"do": {"second-factor"}, "sure": {"yes"}}, http.StatusSeeOther)
	h.ended("after a reset of the second factor", read)
	h.works("of somebody else", admin, true)
	if n := h.live("read"); n != 0 {
		t.Errorf("the log lets %d in", n)
	}
}
