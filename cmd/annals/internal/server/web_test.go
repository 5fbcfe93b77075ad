package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/annals-project/annals/internal/auth"
)

// TestServer_ChallengeNamesDocument follows the challenge of a call without a credential, as an
// agent does.
func TestServer_ChallengeNamesDocument(t *testing.T) {
	t.Parallel()
	h := newTenant(t)
	header := h.fetch(http.MethodGet, h.urls.API+"/api/v1/usage", "", "").header
	named, ok := strings.CutPrefix(header.Get("WWW-Authenticate"), `Bearer resource_metadata="`)
	named = strings.TrimSuffix(named, `"`)
	if !ok || named != h.urls.Console+auth.ResourcePath || h.urls.Console == h.urls.API {
		t.Fatalf("challenge %q", header.Get("WWW-Authenticate"))
	}
	for _, url := range []string{named, h.urls.API + auth.ResourcePath} {
		got := h.fetch(http.MethodGet, url, "", "")
		var document auth.Resource
		if err := json.Unmarshal([]byte(got.body), &document); err != nil || got.status != http.StatusOK {
			t.Fatalf("%s: %d %s, %v", url, got.status, got.body, err)
		}
		if document.Resource != h.urls.API+"/api/v1" || fmt.Sprint(document.AuthorizationServers) != "["+h.urls.Auth+"]" {
			t.Errorf("%s: %s", url, got.body)
		}
	}
	if got := h.fetch(http.MethodGet, h.urls.Console+"/api/v1/usage", "", ""); got.status != http.StatusNotFound {
		t.Errorf("the console's address serves the API: %d %s", got.status, got.body)
	}
}

// TestServer_RateLimitOfOrganization calls with both keys of an organization: together they have
// the limit of one. Calls of agents count as well, and those of the operation's address do not.
func TestServer_RateLimitOfOrganization(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.set = func(s *Config) { s.RateLimit, s.OpsAddr = new(3), "127.0.0.1:0" }
	h.start()
	h.servesOperation()
	own, management := h.keys()
	for n, c := range []struct {
		key, path string
		status    int
	}{
		{own, "/api/v1/recall", 405},
		{management, "/api/v1/projects", 200},
		{"svc_sk_unknown", "/api/v1/usage", 401},
		{own, "/api/v1/nothing", 404},
		{own, "/api/v1/nothing", 429},
		{management, "/api/v1/projects", 429},
		{own, "/api/v1/ingest/01890000-0000-7000-8000-00000000000a", 404},
	} {
		status, body := h.call(c.key, http.MethodGet, c.path, nil)
		if status != c.status {
			t.Errorf("call %d of %s: %d, want %d", n+1, c.path, status, c.status)
		}
		if c.status == http.StatusTooManyRequests && len(body) > 0 {
			t.Errorf("call %d: %s", n+1, body)
		}
	}
	acme := h.newProject(h.createAcme().ManagementKey, "Tea") // two calls of the three
	a := h.operator(acme)
	a.must("get_usage", nil, nil)
	if _, refusal := a.use("get_usage", nil, nil); !strings.HasPrefix(refusal, "rate-limited: ") {
		t.Errorf("the call of an agent after three in a minute: %q", refusal)
	}
	if status, _ := h.call(acme, http.MethodGet, api+"/usage", nil); status != http.StatusTooManyRequests {
		t.Errorf("the API in the same minute: %d", status)
	}
}
