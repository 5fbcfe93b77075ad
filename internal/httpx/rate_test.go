package httpx_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
)

// TestRateLimit_EveryRoute calls every route past the limit: only those that are outside of it hear
// anything else than an empty 429.
func TestRateLimit_EveryRoute(t *testing.T) {
	api, _ := start(t,
		httpx.Config{Limit: func(auth.Principal) (time.Duration, bool) { return 1500 * time.Millisecond, false }}, nil)
	var outside []string
	for _, r := range auth.Routes() {
		key := apitest.ProjectKey
		if !r.Takes(auth.ProjectKey) {
			key = apitest.ManagementKey
		}
		path := pathOf(r.Path) + "?project=other" // the limit comes before what the call asks for
		got := api.Call(r.Method, path, key, "")
		if got.Status != http.StatusTooManyRequests {
			outside = append(outside, r.Method+" "+strings.TrimPrefix(r.Path, auth.Prefix))
			continue
		}
		if got.Body != "" || got.Header.Get("Retry-After") != "2" || got.Header.Get("Content-Type") != "" {
			t.Errorf("%s: body %q, headers %v", path, got.Body, got.Header)
		}
	}
	if got := strings.Join(outside, ", "); got != "GET /ingest/:ingestionId, POST /webhooks/:webhookId/:token" {
		t.Errorf("outside of the limit are %s", got)
	}
	for key, status := range map[string]int{
		"": 401, apitest.UnknownKey: 401, apitest.ArchivedKey: 403, apitest.PreparingKey: 503,
	} {
		api.Call(http.MethodPost, "/api/v1/recall", key, "{}").Want(t, status, `"code"`)
	}
	api.Call(http.MethodGet, "/api/v1/nothing", apitest.ProjectKey, "").Want(t, 429)
	api.Call(http.MethodGet, "/.well-known/oauth-protected-resource", "", "").Want(t, 200)
}

func TestRateLimit_KnownCallersOnly(t *testing.T) {
	var asked []auth.Principal
	api, _ := start(t, httpx.Config{Limit: func(p auth.Principal) (time.Duration, bool) {
		asked = append(asked, p)
		return 0, true
	}}, func(e *echo.Echo) {
		e.POST("/api/v1/recall", noContent)
		e.GET("/api/v1/ingest/:ingestionId", noContent)
	})
	for _, key := range []string{apitest.ProjectKey, apitest.UnknownKey, apitest.ArchivedKey, apitest.PreparingKey} {
		api.Call(http.MethodPost, "/api/v1/recall", key, "{}")
		api.Call(http.MethodGet, "/api/v1/ingest/x", key, "")
	}
	if len(asked) != 1 || asked[0] != apitest.Principal {
		t.Errorf("asked for %+v, want one call of the project key", asked)
	}
}
