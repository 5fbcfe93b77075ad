package server

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/annals-project/annals/console/agents"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/sealedtables"
)

// agentAnswer is what an endpoint answers a program.
type agentAnswer struct {
	status int
	out    map[string]any
}

// want checks the status, and the code of an error, "" for none.
func (a agentAnswer) want(t testing.TB, what string, status int, code string) agentAnswer {
	t.Helper()
	if a.status != status || a.at("error")+a.at("code") != code {
		t.Errorf("%s: %d %v, want %d %s", what, a.status, a.out, status, code)
	}
	return a
}

// at is the text at a path of an answer.
func (a agentAnswer) at(path string) string {
	var v any = a.out
	for name := range strings.SplitSeq(path, ".") {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	text, _ := v.(string)
	return text
}

// sendAs sends a body to an endpoint of the console, or of the API with a token.
func (h *consoleHarness) sendAs(token, method, address, contentType, body string) agentAnswer {
	h.t.Helper()
	req, err := http.NewRequestWithContext(h.t.Context(), method, address, strings.NewReader(body))
	runtest.Must(h.t, err)
	req.Header.Set("Content-Type", contentType)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("X-Service-Project", "default")
	}
	if h.place != nil { // a network may register a few agents only
		req.Header.Set("X-Forwarded-For", h.network())
	}
	res, err := http.DefaultClient.Do(req)
	runtest.Must(h.t, err)
	defer res.Body.Close()
	read, err := io.ReadAll(res.Body)
	runtest.Must(h.t, err)
	out := map[string]any{}
	if len(read) > 0 {
		runtest.Must(h.t, json.Unmarshal(read, &out))
	}
	return agentAnswer{res.StatusCode, out}
}

// askAgent posts JSON to an endpoint of registration.
func (h *consoleHarness) askAgent(path string, body map[string]string) agentAnswer {
	h.t.Helper()
	text, err := json.Marshal(body)
	runtest.Must(h.t, err)
	return h.sendAs("", http.MethodPost, h.urls.Auth+path, "application/json", string(text))
}

type registeredAgent struct{ claim, link, email string }

func (h *consoleHarness) register(role string) registeredAgent {
	h.t.Helper()
	email := h.mail(role)
	in := map[string]string{"type": "service_auth", "login_hint": email, "client_name": "Helper"}
	made := h.askAgent("/agent/identity", in).want(h.t, "registered", http.StatusOK, "")
	return registeredAgent{made.at("claim.token"), made.at("claim.attempt.verification_uri"), email}
}

var sixDigits = regexp.MustCompile(`<code>(\d{6})</code>`)

// decide plays the person at the page of a link, and returns the code that it shows.
func (h *consoleHarness) decide(role, link, decision string) (status int, code string) {
	h.t.Helper()
	target, err := url.Parse(link)
	runtest.Must(h.t, err)
	r := h.as(role)
	page := r.Ask(http.MethodGet, target.RequestURI(), nil)
	if page.Status != http.StatusOK {
		return page.Status, page.Body
	}
	form := url.Values{
		"token": {target.Query().Get("token")}, "decision": {decision}, "place": {h.home().String()},
	}
	if answer := r.Ask(http.MethodPost, target.Path, form); answer.Status != http.StatusSeeOther {
		return answer.Status, answer.Body
	}
	found := sixDigits.FindStringSubmatch(r.Ask(http.MethodGet, target.RequestURI(), nil).Body)
	if found == nil {
		return http.StatusOK, ""
	}
	return http.StatusOK, found[1]
}

// cannotApprove checks that somebody is refused who approves a link.
func (h *consoleHarness) cannotApprove(role, link string, status int) {
	h.t.Helper()
	if got, page := h.decide(role, link, "approve"); got != status || strings.Contains(page, "Helper") {
		h.t.Errorf("%s approves a link: %d, want %d: %s", role, got, status, page)
	}
}

// try sends a code, without the pause between two of them.
func (h *consoleHarness) try(claim, code string) agentAnswer {
	h.t.Helper()
	h.exec(`update ops.agent_registrations set tried_at = null where address = $1`, h.network())
	return h.askAgent("/agent/identity/claim/complete", map[string]string{"claim_token": claim, "user_code": code})
}

func (h *consoleHarness) exec(statement string, args ...any) {
	h.t.Helper()
	_, err := h.storage.db.Exec(h.t.Context(), statement, args...)
	runtest.Must(h.t, err)
}

// admit registers an agent that its person lets in, and returns its assertion and refresh token.
func (h *consoleHarness) admit(role string) (assertion, refresh string) {
	h.t.Helper()
	a := h.register(role)
	_, code := h.decide(role, a.link, "approve")
	got := h.try(a.claim, code).want(h.t, "the code", http.StatusOK, "")
	if got.at("status") != "claimed" {
		h.t.Fatalf("the code %q is answered with %v", code, got.out)
	}
	return got.at("identity.assertion"), got.at("identity.refresh_token.value")
}

func (h *consoleHarness) exchange(assertion string, more ...string) agentAnswer {
	h.t.Helper()
	form := url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:jwt-bearer"}, "assertion": {assertion}}
	for i := 0; i < len(more); i += 2 {
		form.Set(more[i], more[i+1])
	}
	return h.sendAs("", http.MethodPost, h.urls.Auth+"/oauth2/token", "application/x-www-form-urlencoded", form.Encode())
}

func (h *consoleHarness) recallAs(token string) agentAnswer {
	h.t.Helper()
	return h.sendAs(token, http.MethodPost, h.urls.API+"/api/v1/recall", "application/json",
		`{"query":"launch","identity":"ana"}`)
}

func TestAgents_Attacks(t *testing.T) {
	h := newStaff(t)
	t.Run("bad registrations", func(t *testing.T) {
		for kind, c := range map[string]struct {
			status int
			code   string
		}{
			"anonymous": {403, "anonymous_registration_disabled"}, "identity_assertion": {400, "unsupported_identity_type"},
			"other": {400, "invalid_request"}, "service_auth": {400, "invalid_login_hint"}, "refresh": {401, "invalid_refresh_token"},
		} {
			h.askAgent("/agent/identity", map[string]string{"type": kind, "login_hint": "nobody"}).
				want(t, kind, c.status, c.code)
		}
	})
	t.Run("an unknown address is answered as a known one", func(t *testing.T) {
		a := h.register("stranger")
		if !strings.HasPrefix(a.claim, "clm_") || !strings.Contains(a.link, "/agents/claim?token=cvt_") {
			t.Errorf("registered as %+v", a)
		}
		h.cannotApprove("owner", a.link, 403)
	})
	t.Run("wrong account, unverified, nobody", func(t *testing.T) {
		a := h.register("owner")
		h.cannotApprove("admin", a.link, 403)
		h.cannotApprove("foreign", a.link, 403)
		h.cannotApprove("nobody", a.link, 303)
		h.cannotApprove("write", h.register("write").link, 403)
		h.try(a.claim, "123456").want(t, "before the approval", 409, "claim_not_confirmed")
		h.askAgent("/agent/identity/claim/complete", map[string]string{"claim_token": a.claim, "user_code": "1"}).
			want(t, "too fast", 429, "rate_limit_exceeded")
		h.try("clm_x", "1").want(t, "an unknown claim", 401, "invalid_claim_token")
		hint := map[string]string{"type": "service_auth", "claim_token": a.claim, "login_hint": h.mail("admin")}
		h.askAgent("/agent/identity/claim", hint).want(t, "an attempt for another address", 400, "invalid_login_hint")
		hint["login_hint"] = strings.ToUpper(h.mail("owner"))
		for range 2 {
			h.askAgent("/agent/identity/claim", hint).want(t, "another attempt", 200, "")
		}
		h.askAgent("/agent/identity/claim", hint).want(t, "a fourth attempt", 429, "too_many_attempts")
		h.exec(`update ops.agent_attempts set ends_at = now() - interval '1 second'
			where registration_id in (select id from ops.agent_registrations where address = $1)`, h.network())
		h.try(a.claim, "123456").want(t, "expired links", 410, "user_code_expired")
		h.cannotApprove("owner", a.link, 404)
		h.exec(`update ops.agent_registrations set ends_at = now() - interval '1 second'
			where claimed_at is null and address = $1`, h.network())
		h.try(a.claim, "123456").want(t, "an expired claim", 410, "claim_expired")
	})
	t.Run("denied", func(t *testing.T) {
		a := h.register("owner")
		if status, code := h.decide("owner", a.link, "deny"); status != 200 || code != "" {
			t.Errorf("denied: %d %s", status, code)
		}
		h.try(a.claim, "123456").want(t, "a denied claim", 403, "claim_denied")
		h.cannotApprove("owner", a.link, 409)
	})
	t.Run("five wrong codes", func(t *testing.T) {
		a := h.register("admin")
		_, code := h.decide("admin", a.link, "approve")
		wrong := "000000"
		if code == wrong {
			wrong = "000001"
		}
		for range 5 {
			h.try(a.claim, wrong).want(t, "a wrong code", 401, "invalid_user_code")
		}
		h.try(a.claim, code).want(t, "the right code after five wrong ones", 410, "user_code_expired")
	})
	t.Run("completed twice", func(t *testing.T) {
		a := h.register("admin")
		_, code := h.decide("admin", a.link, "approve")
		h.try(a.claim, code).want(t, "the right code", 200, "")
		h.try(a.claim, code).want(t, "the right code again", 409, "already_claimed")
	})
	t.Run("tokens", h.agentTokens)
}

// agentTokens is what an agent gets.
func (h *consoleHarness) agentTokens(t *testing.T) {
	assertion, _ := h.admit("owner")
	got := h.exchange(assertion).want(t, "exchange", 200, "")
	token := got.at("access_token")
	if got.at("scope") != "memory:read memory:write" || got.out["expires_in"] != 900.0 ||
		got.at("token_type") != "Bearer" {
		t.Errorf("exchanged for %v", got.out)
	}
	h.recallAs(token).want(t, "a recall", 200, "")
	h.recallAs(assertion).want(t, "an assertion at the API", 401, "unauthorized")
	for resource, c := range map[string]string{
		h.urls.API: "", h.urls.API + "/": "", h.urls.API + "/api/v1": "", h.urls.API + "/api/v1/": "",
		h.urls.Console + "/mcp": "invalid_target", h.urls.API + "/api/v1//": "invalid_target",
	} {
		h.exchange(assertion, "resource", resource).want(t, resource, map[bool]int{true: 200, false: 400}[c == ""], c)
	}
	got = h.exchange(assertion, "scope", "memory:read").want(t, "a narrower scope", 200, "")
	if got.at("scope") != "memory:read" {
		t.Errorf("a narrower scope: %v", got.out)
	}
	h.exchange(assertion, "scope", "memory:admin").want(t, "an unknown scope", 400, "invalid_scope")
	h.exchange(token).want(t, "a token as an assertion", 400, "invalid_grant")

	// The role of the person bounds the token.
	assertion, refresh := h.admit("read")
	if got = h.exchange(assertion); got.at("scope") != "memory:read" {
		t.Errorf("the token of a reader has the scope %v", got.out)
	}
	h.get("read", "/settings/agents").want(t, 200, "Helper")
	h.sendAs("", http.MethodPost, h.urls.Auth+"/oauth2/revoke", "application/x-www-form-urlencoded", "token="+refresh).
		want(t, "revoked", 200, "")
	h.exchange(assertion).want(t, "the assertion of a revoked registration", 400, "invalid_grant")
	runtest.Must(t, h.agents.Tidy(t.Context()))
}

var fenced = regexp.MustCompile("(?s)```bash\n(.*?)```")

// Every command of auth.md runs as it stands, in order. The person is played at the approval alone.
func TestAuthMD_EveryCommand(t *testing.T) {
	h := newStaff(t)
	res, err := http.Get(h.urls.API + "/auth.md") //nolint:noctx // the test ends it
	runtest.Must(t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	runtest.Must(t, err)
	if got := res.Header.Get("Content-Type"); got != "text/markdown; charset=utf-8" || res.Header.Get("Access-Control-Allow-Origin") != "*" {
		t.Errorf("served as %q", got)
	}
	if got := h.as("nobody").Ask(http.MethodGet, "/auth.md", nil); got.Body != string(text) {
		t.Errorf("the console serves another document: %d", got.Status)
	}
	store := filepath.Join(t.TempDir(), "store")
	bash := exec.CommandContext(t.Context(), "bash", "--noprofile", "--norc")
	bash.Env = append(os.Environ(), "EMAIL="+h.mail("owner"), "STORE="+store, "PROJECT=default")
	bash.Stderr = os.Stderr
	in, err := bash.StdinPipe()
	runtest.Must(t, err)
	from, err := bash.StdoutPipe()
	runtest.Must(t, err)
	runtest.Must(t, bash.Start())
	out := bufio.NewReader(from)
	run := func(block string) (said string) {
		_, err := io.WriteString(in, block+"\nprintf '\\n@@%s\\n' \"$?\"\n")
		runtest.Must(t, err)
		for {
			line, err := out.ReadString('\n')
			runtest.Must(t, err)
			if status, is := strings.CutPrefix(line, "@@"); is {
				if status != "0\n" {
					t.Errorf("ended with %s: %s\n%s", strings.TrimSpace(status), block, said)
				}
				return said
			}
			said += line
		}
	}
	var all, link, token string
	blocks := fenced.FindAllStringSubmatch(string(text), -1)
	if len(blocks) != 11 {
		t.Errorf("auth.md has %d blocks of commands", len(blocks))
	}
	for _, block := range blocks {
		if strings.Contains(block[1], "USER_CODE=") {
			status, code := h.decide("owner", link, "approve")
			if status != 200 || code == "" {
				t.Fatalf("the link %s answers %d", link, status)
			}
			run("USER_CODE=" + code)
		}
		said := run(block[1])
		all += said
		for word := range strings.FieldsSeq(said) {
			if strings.Contains(word, "/agents/claim?token=") {
				link = word
			}
		}
		if strings.Contains(block[1], "TOKEN=$(curl") && token == "" {
			token = strings.TrimSpace(run(`printf '%s' "$TOKEN"`))
		}
	}
	runtest.Must(t, in.Close())
	runtest.Must(t, bash.Wait())
	for _, part := range []string{"resource_metadata=", `"ingestionId"`, `"results"`} {
		if !strings.Contains(all, part) {
			t.Errorf("the commands print no %s:\n%s", part, all)
		}
	}
	if strings.Contains(all, "art_") || strings.Contains(all, "clm_") || token == "" || strings.Contains(all, token) {
		t.Errorf("the commands print a secret:\n%s", all)
	}
	if _, err := os.Stat(store); !os.IsNotExist(err) {
		t.Errorf("the store is left: %v", err)
	}
}

func (h *consoleHarness) renewAgent(refresh string) agentAnswer {
	h.t.Helper()
	return h.askAgent("/agent/identity", map[string]string{"type": "refresh", "refresh_token": refresh})
}

// Refreshes at the same time, and one that is 60 s late, have the same successor. After five minutes the registration
// ends. The page shows a revoked agent, and neither a denied nor a stopped one. A session that ended lets none in.
func TestAgents_RefreshAtOnce(t *testing.T) {
	t.Parallel()
	h := startStaff(t)
	assertion, refresh := h.admit("admin")
	answers := make([]agentAnswer, 2)
	var both sync.WaitGroup
	for i := range answers {
		both.Go(func() { answers[i] = h.renewAgent(refresh) })
	}
	both.Wait()
	const value = "identity.refresh_token.value"
	next := answers[0].at(value)
	h.exec(`update ops.agent_refresh_tokens set spent_at = spent_at - interval '60 seconds' where spent_at is not null`)
	late := h.renewAgent(refresh).want(t, "a late refresh", 200, "")
	if next == "" || next == refresh || answers[1].at(value) != next || late.at(value) != next {
		t.Fatalf("refreshed as %v, and late as %v", answers, late)
	}
	h.restoreAgents(t)
	h.renewAgent(next).want(t, "after a restore", 200, "")
	key, _ := h.keys()
	before, _ := h.usage(key).Project["recalls"].(float64)
	token := h.exchange(assertion).at("access_token")
	h.recallAs(token).want(t, "a recall after a restore", 200, "")
	if after, _ := h.usage(key).Project["recalls"].(float64); after != before+1 {
		t.Errorf("a recall of an agent is counted as %v", after-before)
	}
	h.exec(`update ops.agent_refresh_tokens set spent_at = spent_at - interval '5 minutes' where spent_at is not null`)
	h.renewAgent(refresh).want(t, "five minutes late", 401, "invalid_refresh_token")
	h.exchange(assertion).want(t, "the assertion of the family", 400, "invalid_grant")
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
	h.recallAs(token).want(t, "the token of a revoked agent, before it expires", 200, "")
	var id string
	runtest.Must(t, h.storage.db.QueryRow(t.Context(), `select id::text from access.agents`).Scan(&id))
	h.postForm("admin", "/settings/agents/stop", url.Values{"agent": {id}}, 403)
	h.postForm("owner", "/settings/agents/stop", url.Values{"agent": {id}}, 303)
	listed("stopped", 0)
	h.recallAs(token).want(t, "the token of a stopped agent", 401, "unauthorized")
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
	h.cannotApprove("admin", h.register("admin").link, http.StatusUnauthorized)
	_, answer := h.consent("admin", strings.Repeat("x", 43))
	if answer.Status != http.StatusUnauthorized || answer.Location != "" {
		t.Errorf("a client is let in: %d %s", answer.Status, answer.Location)
	}
}
