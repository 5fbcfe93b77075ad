package server

import (
	"bytes"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/console/agents"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/sealedtables"
)

func (h *consoleHarness) renewAgent(refresh string) (int, map[string]any) {
	h.t.Helper()
	return h.askAgent("/agent/identity", map[string]string{"type": "refresh", "refresh_token": refresh})
}

// What a member let in ends with the membership, and stays so for a member who returns: agents with their tokens, and
// programs.
func TestReturn_WakesNothing(t *testing.T) {
	t.Parallel()
	h := newStaff(t)
	assertion, refresh := h.admit("admin")
	_, out := h.exchange(assertion)
	token := at(out, "access_token")
	if status, code := h.recallAs(token); status != 200 {
		t.Fatalf("a recall of the agent: %d %s", status, code)
	}
	program := h.connect(h.as("admin"), "default")
	program.must("recall", map[string]any{"query": "When is the launch?"}, nil)
	h.postForm("owner", "/settings/members/"+h.ids["admin"].String(), url.Values{"do": {"remove"}, "sure": {"yes"}}, 303)
	service, call := h.people()
	first := h.home()
	call.Principal.OrganizationID = first
	back, err := service.AddMember(t.Context(), call, first,
		commands.NewMember{Email: h.mail("admin"), Role: organization.Admin})
	runtest.Must(t, err)
	if back != h.ids["admin"] {
		t.Fatalf("%s returns as %s", h.ids["admin"], back)
	}
	var live int
	runtest.Must(t, h.storage.db.QueryRow(t.Context(), `select count(*) from access.client_grants
		where not ended and person_id = $1`, back).Scan(&live))
	if live != 0 {
		t.Errorf("%d programs are connected", live)
	}
	if page := h.as("admin").Ask(http.MethodGet, "/settings/connections", nil); page.Status != 200 ||
		!strings.Contains(page.Body, "No program is connected") {
		t.Errorf("connections: %d %.2000s", page.Status, page.Body)
	}
	if page := h.as("owner").Ask(http.MethodGet, "/settings/agents", nil); strings.Contains(page.Body, "Helper") {
		t.Error("the agent of somebody who left is listed")
	}
	status, out := h.renewAgent(refresh)
	want(t, "refresh", status, out, 401, "invalid_refresh_token")
	status, out = h.exchange(assertion)
	want(t, "exchange", status, out, 400, "invalid_grant")
	if status, code := h.recallAs(token); status != 401 {
		t.Errorf("the token of before: %d %s", status, code)
	}
	program.must("recall", map[string]any{"query": "launch"}, nil)
	var ended int
	runtest.Must(t, h.storage.db.QueryRow(t.Context(), `select count(*) filter (where ended), count(*) filter (where not ended)
		from access.client_grants where person_id = $1`, back).Scan(&ended, &live))
	if ended != 1 || live != 1 {
		t.Errorf("the program recalls without another consent: %d grants have ended, %d live", ended, live)
	}
}

// Refreshes at the same time, and one that is 60 s late, have the same successor. After five minutes the registration
// ends. The page shows a revoked agent, and neither a
// denied nor a stopped one. A session that ended lets none in.
func TestAgents_RefreshAtOnce(t *testing.T) {
	t.Parallel()
	h := startStaff(t)
	assertion, refresh := h.admit("admin")
	answers := make([]map[string]any, 2)
	var both sync.WaitGroup
	for i := range answers {
		both.Go(func() { _, answers[i] = h.renewAgent(refresh) })
	}
	both.Wait()
	next := at(answers[0], "identity.refresh_token.value")
	h.exec(`update ops.agent_refresh_tokens set spent_at = spent_at - interval '60 seconds' where spent_at is not null`)
	status, late := h.renewAgent(refresh)
	if next == "" || next == refresh || at(answers[1], "identity.refresh_token.value") != next || status != 200 ||
		at(late, "identity.refresh_token.value") != next {
		t.Fatalf("refreshed as %v, and late as %d %v", answers, status, late)
	}
	h.restoreAgents(t)
	if status, out := h.renewAgent(next); status != 200 {
		t.Errorf("after a restore: %d %v", status, out)
	}
	_, out := h.exchange(assertion)
	key, _ := h.keys()
	before, _ := h.usage(key).Project["recalls"].(float64)
	if status, code := h.recallAs(at(out, "access_token")); status != 200 {
		t.Errorf("a recall after a restore: %d %s", status, code)
	}
	if after, _ := h.usage(key).Project["recalls"].(float64); after != before+1 {
		t.Errorf("a recall of an agent is counted as %v", after-before)
	}
	h.exec(`update ops.agent_refresh_tokens set spent_at = spent_at - interval '5 minutes' where spent_at is not null`)
	status, out = h.renewAgent(refresh)
	want(t, "five minutes late", status, out, 401, "invalid_refresh_token")
	status, out = h.exchange(assertion)
	want(t, "the assertion of the family", status, out, 400, "invalid_grant")
	a := h.register("owner")
	if status, _ := h.decide("owner", a.link, "deny"); status != 200 {
		t.Errorf("denied with %d", status)
	}
	listed := func(state string, agents int) {
		page := h.as("owner").Ask(http.MethodGet, "/settings/agents", nil)
		if n := strings.Count(page.Body, "Helper"); page.Status != 200 || n != agents ||
			strings.Count(page.Body, "<td>revoked\n") != agents {
			t.Errorf("%s: %d with %d agents: %s", state, page.Status, n, page.Body)
		}
	}
	listed("revoked", 1)
	var id string
	runtest.Must(t, h.storage.db.QueryRow(t.Context(), `select id::text from access.agents`).Scan(&id))
	h.postForm("owner", "/settings/agents/stop", url.Values{"agent": {id}}, 303)
	listed("stopped", 0)
	h.refusesEndedSessions()
}

// restoreAgents replaces the rows of agents by those of a backup.
func (h *consoleHarness) restoreAgents(t *testing.T) {
	t.Helper()
	var dump bytes.Buffer
	runtest.Must(t, sealedtables.Dump(t.Context(), h.storage.db, h.agents.Sealer, &dump, agents.Tables()...))
	if bytes.Contains(dump.Bytes(), []byte("Helper")) {
		t.Error("the backup is not sealed")
	}
	h.exec(`delete from ops.agent_registrations`)
	runtest.Must(t, sealedtables.Load(t.Context(), h.storage.db, h.agents.Sealer, &dump, agents.Tables()...))
}

// refusesEndedSessions checks that a session that ended while its person decided lets nothing in.
func (h *consoleHarness) refusesEndedSessions() {
	t := h.t
	t.Helper()
	h.authServer.Hold, h.agents.Hold = h.signin.Hold, h.signin.Hold
	h.exec(`insert into ops.signin_sessions (id, token, person_id, pending, second_factor, browser, address, created_at,
		used_at, expires_at) values ($1, 'x', $1, false, false, '', '', now(), now(), now())`, h.ids["admin"])
	h.works("in a session", h.letIn("admin"), true)
	h.exec(`delete from ops.signin_sessions`)
	a := h.register("admin")
	if status, _ := h.decide("admin", a.link, "approve"); status != http.StatusUnauthorized {
		t.Errorf("an agent is let in: %d", status)
	}
	status, out := h.sendAs("", http.MethodPost, h.urls.Auth+"/oauth2/register", "application/json",
		`{"client_name":"Desk","redirect_uris":["`+oauthCallback+`"]}`)
	consent := "/oauth2/consent?" + url.Values{
		"response_type": {"code"}, "client_id": {at(out, "client_id")}, "redirect_uri": {oauthCallback}, "scope": {"memory:read"},
		"code_challenge": {strings.Repeat("x", 43)}, "code_challenge_method": {"S256"}, "resource": {h.urls.Console + "/mcp"},
	}.Encode()
	answer := h.as("admin").Ask(http.MethodPost, consent,
		url.Values{"decision": {"approve"}, "place": {h.home().String()}})
	if answer.Status != http.StatusUnauthorized || answer.Location != "" {
		t.Errorf("registered with %d, a client is let in: %d %s", status, answer.Status, answer.Location)
	}
}
