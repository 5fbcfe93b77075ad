package httpx_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/readapi"
)

const challenge = `Bearer resource_metadata="https://console.example.com/.well-known/oauth-protected-resource/api/v1"`

// pathOf fills the parameters of a template.
func pathOf(template string) string {
	parts := strings.Split(template, "/")
	for i, p := range parts {
		if strings.HasPrefix(p, ":") {
			parts[i] = "x"
		}
	}
	return strings.Join(parts, "/")
}

// TestRoutes_Credentials calls every route of the contract, none of them built, with
// every kind of credential: the credential is judged first, and only what the route takes hears
// that nothing is there.
func TestRoutes_Credentials(t *testing.T) {
	api, _ := start(t, httpx.Config{}, nil)
	for _, r := range auth.Routes() {
		t.Run(r.Method+" "+r.Path, func(t *testing.T) {
			path := pathOf(r.Path)
			if r.ProjectQuery {
				path += "?project=" + apitest.Principal.Project.Slug
			}
			call := func(key string) apitest.Response { return api.Call(r.Method, path, key, "") }
			if r.Open {
				for _, key := range []string{"", apitest.ProjectKey, apitest.UnknownKey, "nonsense"} {
					call(key).Want(t, 404, `"code":"not-found"`)
				}
				return
			}
			call("").Want(t, 401, `"code":"missing-api-key"`)
			call("nonsense").Want(t, 401, `"code":"malformed-api-key"`, "not a recognized key")
			if r.Takes(auth.ProjectKey) {
				call(apitest.ProjectKey).Want(t, 404, `"code":"not-found"`)
				call(apitest.ArchivedKey).Want(t, 403, `"code":"project-archived"`)
				call(apitest.PreparingKey).Want(t, 503, `"code":"organization-not-ready"`)
				call(apitest.UnknownKey).Want(t, 401, `"code":"unauthorized"`, "unknown, expired or revoked")
				call(apitest.UnreachableKey).Want(t, 503, `"code":"service-unavailable"`)
			} else {
				call(apitest.ProjectKey).Want(t, 401, `"code":"unauthorized"`, "does not accept a project key")
			}
			if r.Takes(auth.ManagementKey) {
				call(apitest.ManagementKey).Want(t, 404, `"code":"not-found"`)
				call(apitest.UnknownManagement).Want(t, 401, `"code":"unauthorized"`, "unknown, expired or revoked")
			} else {
				call(apitest.ManagementKey).Want(t, 401, `"code":"unauthorized"`, "does not accept a management key")
			}
			if r.Takes(auth.AgentToken) {
				call(apitest.AgentToken).Want(t, 401, `"code":"unauthorized"`, "agent token")
			} else {
				call(apitest.AgentToken).Want(t, 401, `"code":"malformed-api-key"`, "agent token")
			}
		})
	}
}

func TestRoutes_Unknown(t *testing.T) {
	api, _ := start(t, httpx.Config{}, nil)
	for _, path := range []string{
		"/api/v1", "/api/v1/", "/api/v1/nothing", "/api/v1/ingest/", "/api/v1/recall/", "/api/v1/data-points/a/b", "/api/v1/ingest/x/y", "/api/v1//recall",
		"/api/v1/trace/nodes/a/b", "/api%2Fv1/recall", "/api/v1/Recall",
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete, "BREW"} {
			api.Call(method, path, "", "").Want(t, 401, `"code":"missing-api-key"`)
			api.Call(method, path, apitest.UnknownKey, "").Want(t, 401, `"code":"unauthorized"`)
			api.Call(method, path, apitest.ArchivedKey, "").Want(t, 403, `"code":"project-archived"`)
			api.Call(method, path, apitest.ProjectKey, "").Want(t, 404, `"code":"not-found"`, `"data":{}`)
			api.Call(method, path, apitest.ManagementKey, "").Want(t, 404, `"code":"not-found"`)
		}
	}
	for _, path := range []string{"/", "/nothing", "/api/v2/recall", "/api/v10/recall", "/.well-known/nothing"} {
		api.Call(http.MethodGet, path, "", "").Want(t, 404, `"code":"not-found"`, `"data":{}`)
	}
}

func TestRoutes_UnknownMethods(t *testing.T) {
	api, _ := start(t, httpx.Config{}, nil)
	for _, c := range []struct{ method, path, allow string }{
		{http.MethodGet, "/recall", "POST"},
		{http.MethodPut, "/ingest", "POST"},
		{http.MethodOptions, "/ingest", "POST"},
		{http.MethodHead, "/usage", "GET"},
		{"BREW", "/ingest", "POST"},
		{http.MethodPost, "/ingest/0", "DELETE, GET"},
		{http.MethodPatch, "/projects", "GET, POST"},
		{http.MethodPost, "/data-points/x", "DELETE"},
		{http.MethodPatch, "/data-points/delete", "POST"},
	} {
		t.Run(c.method+" "+c.path, func(t *testing.T) {
			path := "/api/v1" + c.path
			got := api.Call(c.method, path, "", "")
			if got.Status != 401 {
				t.Errorf("without a key: status %d, want 401", got.Status)
			}
			for _, key := range []string{apitest.ProjectKey, apitest.ManagementKey} {
				got = api.Call(c.method, path, key, "")
				if got.Status != 405 || got.Header.Get("Allow") != c.allow {
					t.Errorf("status %d, Allow %q; want 405 and %q", got.Status, got.Header.Get("Allow"), c.allow)
				}
				says := fmt.Sprintf(`"debugMessage":"%s is not a method of this route: it has %s"`, c.method, c.allow)
				if c.method != http.MethodHead {
					got.Want(t, 405, `"code":"method-not-allowed"`, says)
				}
			}
		})
	}
	api.Call(http.MethodGet, "/api/v1/webhooks/whk_1/token", "", "").Want(t, 405, `"code":"method-not-allowed"`)
}

func TestAuthorization_Headers(t *testing.T) {
	api, said := start(t, httpx.Config{}, at(http.MethodPost, "/ingest", noContent))
	for _, c := range []struct {
		name, header string
		status       int
		says         []string
	}{
		{"none", "", 401, []string{"missing-api-key"}},
		{"scheme alone", "Bearer", 401, []string{"missing-api-key"}},
		{"value of another scheme", "Basic " + apitest.ProjectKey, 401, []string{"malformed-api-key", "does not read Bearer"}},
		{"key alone", apitest.ProjectKey, 401, []string{"malformed-api-key", "does not read Bearer"}},
		{"two values", "Bearer " + apitest.ProjectKey + " x", 401, []string{"malformed-api-key", "does not read Bearer"}},
		{"prefix alone", "Bearer svc_sk_", 401, []string{"unauthorized", "unknown, expired or revoked"}},
		{"prefix in capitals", "Bearer SVC_SK_1", 401, []string{"malformed-api-key", "not a recognized key"}},
		{"key with dots", "Bearer svc_sk_a.b.c", 401, []string{"unauthorized", "unknown, expired or revoked"}},
		{"two parts", "Bearer a.b", 401, []string{"malformed-api-key"}},
		{"an empty part", "Bearer a.b.", 401, []string{"malformed-api-key"}},
		{"four parts", "Bearer a.b.c.d", 401, []string{"malformed-api-key"}},
		{"parts that are no base64url", "Bearer a.b.c=", 401, []string{"malformed-api-key"}},
		{"a key with one more character", "Bearer " + apitest.ProjectKey + "0", 401, []string{"unauthorized"}},
		{"good", "Bearer " + apitest.ProjectKey, 204, nil},
		{"scheme in lower case", "bearer " + apitest.ProjectKey, 204, nil},
		{"more space", "Bearer   " + apitest.ProjectKey + "  ", 204, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := api.Call(http.MethodPost, "/api/v1/ingest", "", "", "Authorization:"+c.header)
			if got.Status != c.status {
				t.Errorf("status %d, want %d: %s", got.Status, c.status, got.Body)
			}
			for _, s := range c.says {
				if !strings.Contains(got.Body, s) {
					t.Errorf("the body lacks %q: %s", s, got.Body)
				}
			}
			if c.status == 401 && got.Header.Get("WWW-Authenticate") != challenge {
				t.Errorf("WWW-Authenticate %q, want %q", got.Header.Get("WWW-Authenticate"), challenge)
			}
		})
	}
	t.Run("two headers", func(t *testing.T) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, api.URL()+"/api/v1/ingest", nil)
		runtest.Must(t, err)
		req.Header["Authorization"] = []string{"Bearer " + apitest.ProjectKey, "Bearer " + apitest.UnknownKey}
		api.Do(req).Want(t, 401, `"code":"malformed-api-key"`, "more than one")
	})
	if strings.Contains(said.String(), apitest.ProjectKey) {
		t.Error("the key is in the log")
	}
}

func TestChallenges(t *testing.T) {
	api, _ := start(t, httpx.Config{}, nil)
	for name, c := range map[string]struct{ path, key, want string }{
		"no credential":        {"/api/v1/recall", "", challenge},
		"unknown key":          {"/api/v1/recall", apitest.UnknownKey, challenge},
		"keys only":            {"/api/v1/audiences", "", challenge},
		"unknown route":        {"/api/v1/nothing", "", challenge},
		"bad token":            {"/api/v1/recall", apitest.AgentToken, challenge + `, error="invalid_token"`},
		"archived":             {"/api/v1/recall", apitest.ArchivedKey, ""},
		"outside of the API":   {"/nothing", "", ""},
		"known, nothing there": {"/api/v1/nothing", apitest.ProjectKey, ""},
	} {
		method := http.MethodPost
		if strings.HasSuffix(c.path, "audiences") {
			method = http.MethodGet
		}
		if got := api.Call(method, c.path, c.key, "").Header.Get("WWW-Authenticate"); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestPrincipal_ReachesTheHandler(t *testing.T) {
	var got auth.Principal
	api, said := start(t, httpx.Config{}, at(http.MethodDelete, "/ingest/:ingestionId", func(c echo.Context) error {
		got = httpx.Principal(c)
		return c.NoContent(http.StatusNoContent)
	}))
	api.Call(http.MethodDelete, "/api/v1/ingest/x", apitest.ProjectKey, "").Want(t, 204)
	if got != apitest.Principal {
		t.Errorf("principal %+v", got)
	}
	if !strings.Contains(said.String(), `"principal":"`+apitest.Principal.Name()+`"`) {
		t.Errorf("the log does not name the principal: %s", said)
	}
}

func TestBrowsers_Refused(t *testing.T) {
	api, _ := start(t, httpx.Config{}, at(http.MethodDelete, "/ingest/:ingestionId", noContent))
	for _, origin := range []string{"https://example.com", "https://api.example.com", "https://console.example.com", "null", "http://localhost:3000"} {
		preflight := api.Call(http.MethodOptions, "/api/v1/ingest", "", "", "Origin:"+origin,
			"Access-Control-Request-Method: POST")
		preflight.Want(t, 403, `"code":"cors-refused"`)
		api.Call(http.MethodDelete, "/api/v1/ingest/x", apitest.ProjectKey, "", "Origin:"+origin).
			Want(t, 403, `"code":"cors-refused"`)
		api.Call(http.MethodPost, "/api/v1/webhooks/whk_1/token", "", "{}", "Origin:"+origin).
			Want(t, 403, `"code":"cors-refused"`)
		for name := range preflight.Header {
			if strings.HasPrefix(name, "Access-Control-") {
				t.Errorf("the answer to a preflight has %s", name)
			}
		}
	}
	api.Call(http.MethodDelete, "/api/v1/ingest/x", apitest.ProjectKey, "").Want(t, 204)
}

func TestAdmission_ClosedForTheAPIOnly(t *testing.T) {
	closed := fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "the service is starting")
	api, _ := start(
		t, httpx.Config{Admit: func() error { return closed }}, func(e *echo.Echo) { e.GET("/healthz", noContent) },
	)
	for _, key := range []string{"", apitest.ProjectKey, apitest.UnknownKey} {
		got := api.Call(http.MethodPost, "/api/v1/recall", key, "{}")
		got.Want(t, 503, `"code":"service-unavailable"`, "starting")
		if got.Header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
	}
	api.Call(http.MethodGet, "/healthz", "", "").Want(t, 204)
	api.Call(http.MethodGet, "/.well-known/oauth-protected-resource", "", "").Want(t, 200)
}

func TestWebhookToken_RepeatedNowhere(t *testing.T) {
	api, said := start(t, httpx.Config{}, nil)
	got := api.Call(http.MethodPost, "/api/v1/webhooks/whk_1/token-in-the-path", "", "{}")
	got.Want(t, 404, `"code":"not-found"`)
	if strings.Contains(got.Body+said.String(), "token-in-the-path") {
		t.Errorf("the token is in the answer or the log: %s %s", got.Body, said)
	}
}

func TestProtectedResource_Document(t *testing.T) {
	edge, _ := start(t, httpx.Config{}, nil)
	console := startConsole(t)
	for name, api := range map[string]*apitest.Client{"API": edge, "console": console} {
		t.Run(name, func(t *testing.T) { resourceDocuments(t, api, name == "console") })
	}
	for _, path := range []string{"/", "/api/v1/recall", "/healthz", "/.well-known/oauth-protected-resource/", "/.well-known/oauth-protected-resource/other"} {
		got := console.Call(http.MethodGet, path, apitest.ProjectKey, "")
		got.Want(t, 404, `"code":"not-found"`)
		if got.Header.Get("WWW-Authenticate") != "" {
			t.Errorf("%s: challenged", path)
		}
	}
	console.Call(http.MethodPost, auth.ResourcePath, "", "").Want(t, 405, `"code":"method-not-allowed"`)
}

// startConsole serves the console's address.
func startConsole(t *testing.T) *apitest.Client {
	t.Helper()
	return apitest.StartEdge(t, readapi.OpenAPI,
		httpx.NewConsole(httpx.Config{Log: slog.New(slog.DiscardHandler), URLs: apitest.URLs}))
}

func resourceDocuments(t *testing.T, api *apitest.Client, console bool) {
	t.Helper()
	const ofAPI = `{"resource":"https://api.example.com/api/v1","resource_name":"Memory","authorization_servers":["https://auth.example.com"],` +
		`"scopes_supported":["memory:read","memory:write"],"bearer_methods_supported":["header"]}`
	const ofMCP = `{"resource":"https://console.example.com/mcp","resource_name":"Memory","authorization_servers":["https://auth.example.com"],` +
		`"scopes_supported":["memory:read","memory:write"],"bearer_methods_supported":["header"],` +
		`"resource_documentation":"https://api.example.com/auth.md"}`
	bare := ofAPI
	if console {
		bare = ofMCP
	}
	for path, want := range map[string]string{
		"/.well-known/oauth-protected-resource/api/v1": ofAPI, "/.well-known/oauth-protected-resource/mcp": ofMCP,
		"/.well-known/oauth-protected-resource/mcp/read": strings.NewReplacer(`/mcp"`, `/mcp/read"`,
			`,"memory:write"`, "").Replace(ofMCP),
		"/.well-known/oauth-protected-resource/mcp/operator": strings.NewReplacer(`/mcp"`, `/mcp/operator"`,
			`"memory:write"`, `"memory:write","memory:operate"`).Replace(ofMCP),
		"/.well-known/oauth-protected-resource": bare,
	} {
		got := api.Call(http.MethodGet, path, "", "", "Origin: https://example.com")
		got.Want(t, 200)
		if strings.TrimSpace(got.Body) != want {
			t.Errorf("document %s", got.Body)
		}
		if got.Header.Get("Access-Control-Allow-Origin") != "*" ||
			!strings.HasPrefix(got.Header.Get("Content-Type"), "application/json") {
			t.Errorf("headers %v", got.Header)
		}
		api.Call(http.MethodOptions, path, "", "").Want(t, 204)
	}
}

func TestProject_NamedInTheQuery(t *testing.T) {
	const mismatch, required, missing = `"code":"project-mismatch"`, `"code":"project-required"`, `"code":"not-found"`
	api, _ := start(t, httpx.Config{}, nil)
	for _, r := range auth.Routes() {
		if r.Open {
			continue
		}
		t.Run(r.Method+" "+r.Path, func(t *testing.T) {
			call := func(key, query string) apitest.Response { return api.Call(r.Method, pathOf(r.Path)+query, key, "") }
			if r.Takes(auth.ProjectKey) {
				// Nothing is built here: 404 is the answer after the check.
				for _, query := range []string{"", "?project=", "?project=default", "?project=default&project=default"} {
					call(apitest.ProjectKey, query).Want(t, 404, "nothing is served")
				}
				for _, query := range []string{"?project=other", "?project=Default", "?project=default%20", "?project=default&project=other", "?project=%00"} {
					call(apitest.ProjectKey, query).Want(t, 400, mismatch)
				}
				call(apitest.ArchivedKey, "?project=other").Want(t, 403, `"code":"project-archived"`)
			}
			if !r.Takes(auth.ManagementKey) {
				return
			}
			if !r.ProjectQuery {
				for _, query := range []string{"", "?project=default", "?project=other"} {
					call(apitest.ManagementKey, query).Want(t, 404, "nothing is served")
				}
				return
			}
			for _, query := range []string{"", "?project=", "?project"} {
				call(apitest.ManagementKey, query).Want(t, 400, required)
			}
			for _, query := range []string{"?project=other", "?project=Default", "?project=%00", "?project=%FF", "?project=" + url.QueryEscape("a/b")} {
				call(apitest.ManagementKey, query).Want(t, 404, missing, "no project of this slug")
			}
			call(apitest.ManagementKey, "?project=default&project=other").Want(t, 400, `"code":"invalid-request"`)
			call(apitest.ManagementKey, "?project="+apitest.ArchivedSlug).Want(t, 403, `"code":"project-archived"`)
			call(apitest.ManagementKey, "?project="+apitest.UnreachableSlug).Want(t, 503, `"code":"service-unavailable"`)
			call(apitest.ManagementKey, "?project=default").Want(t, 404, "nothing is served")
			call(apitest.UnknownManagement, "?project=other").Want(t, 401, `"code":"unauthorized"`)
		})
	}
}

func TestProject_NamedByAManagementKey(t *testing.T) {
	var got auth.Principal
	api, _ := start(t, httpx.Config{}, at(http.MethodGet, "/identities", func(c echo.Context) error {
		got = httpx.Principal(c)
		return c.NoContent(http.StatusNoContent)
	}))
	api.Call(http.MethodGet, "/api/v1/identities?project=default", apitest.ManagementKey, "").Want(t, 204)
	want := apitest.Manager
	want.Project = apitest.Principal.Project
	if got != want {
		t.Errorf("principal %+v, want %+v", got, want)
	}
}

func TestProject_UnknownRouteComesFirst(t *testing.T) {
	api, _ := start(t, httpx.Config{}, nil)
	api.Call(http.MethodGet, "/api/v1/nothing?project=other", apitest.ProjectKey, "").Want(t, 404, `"code":"not-found"`)
	api.Call(http.MethodGet, "/api/v1/identities/a/b?project=other", apitest.ProjectKey, "").
		Want(t, 404, `"code":"not-found"`)
	api.Call(http.MethodPut, "/api/v1/identities?project=other", apitest.ProjectKey, "").
		Want(t, 405, `"code":"method-not-allowed"`)
}

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
