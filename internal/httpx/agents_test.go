package httpx_test

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/requestlog"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/tokens"
)

// book verifies the tokens that are written in it.
type book map[string]auth.AgentClaims

func (b book) Verify(_ context.Context, token, typ, issuer, audience string, claims jwt.Claims) error {
	c, is := b[token]
	if token == "the.database.fails" {
		return errors.New("the database does not answer")
	}
	if !is || typ != "at+jwt" || c.Issuer != issuer || len(c.Audience) != 1 || c.Audience[0] != audience {
		return tokens.ErrInvalid
	}
	*claims.(*auth.AgentClaims) = c
	return nil
}

// agentKeys are the keys of apitest, and agents. Their organization has projects besides.
type agentKeys struct {
	apitest.Keys

	agents map[uuid.UUID]auth.AgentHolder
	named  map[string]auth.Named
}

func (k agentKeys) Agent(_ context.Context, id uuid.UUID) (auth.AgentHolder, bool, error) {
	h, ok := k.agents[id]
	if h.Person == uuid.Max {
		return h, false, errors.New("the database does not answer")
	}
	return h, ok, nil
}

func (k agentKeys) ProjectNamed(ctx context.Context, of uuid.UUID, slug string) (auth.Named, bool, error) {
	if n, ok := k.named[slug]; ok && of == apitest.Principal.OrganizationID {
		return n, true, nil
	}
	return k.Keys.ProjectNamed(ctx, of, slug)
}

var (
	agentOf = uuid.MustParse("a0a0a0a0-0000-4000-8000-000000000001")
	ana     = uuid.MustParse("a0a0a0a0-0000-4000-8000-000000000002")
	other   = auth.Project{ID: uuid.MustParse("a0a0a0a0-0000-4000-8000-000000000003"), Number: 3, Slug: "other"}
)

// agents are tokens by a name. Each is of an agent that differs from the first by change.
type agents struct {
	agentKeys
	book
}

func newAgents() agents {
	return agents{agentKeys{
		agents: map[uuid.UUID]auth.AgentHolder{},
		named:  map[string]auth.Named{other.Slug: {Project: other}},
	}, book{}}
}

// add adds an agent that an owner with one project approved, with a token for both scopes, and returns the token.
func (a agents) add(name string, change func(*auth.AgentHolder, *auth.AgentClaims)) string {
	id := uuid.NewSHA1(agentOf, []byte(name))
	h := auth.AgentHolder{
		ID: id, Organization: apitest.Principal.OrganizationID, Person: ana, Scopes: []auth.Scope{auth.Read, auth.Write},
		Role: organization.Owner, Projects: []auth.Named{{Project: apitest.Principal.Project}},
	}
	c := auth.AgentClaims{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer: apitest.URLs.Auth, Audience: jwt.ClaimStrings{apitest.URLs.API + "/api/v1"}, Subject: ana.String(),
			ExpiresAt: jwt.NewNumericDate(time.Now().Add(time.Hour)),
		},
		ClientID: auth.AgentID(id), ClientName: "helper", Actor: auth.Actor{Subject: auth.AgentID(id)},
		Organization: h.Organization, Scope: "memory:read memory:write",
	}
	if change != nil {
		change(&h, &c)
	}
	token := strings.ReplaceAll(name, " ", "-") + ".token.signed"
	a.agents[id], a.book[token] = h, c
	return token
}

func (a agents) start(t *testing.T, cfg httpx.Config) *apitest.Client {
	t.Helper()
	cfg.Keys, cfg.Tokens = a, a
	api, _ := start(t, cfg, nil)
	return api
}

// call calls a route with a token, in the project that the slug names.
func agentCall(t *testing.T, api *apitest.Client, r auth.Route, token, slug string) apitest.Response {
	t.Helper()
	path := strings.NewReplacer(":ingestionId", "x", ":sourceId", "x", ":identity", "x", ":slug", "x", ":keyId", "x",
		":requestId", "x", ":id", "x", ":rootId", "x").Replace(r.Path)
	req, err := http.NewRequestWithContext(t.Context(), r.Method, api.URL()+path, nil)
	runtest.Must(t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	if slug != "" {
		req.Header.Set("X-Service-Project", slug)
	}
	return api.Do(req)
}

// A token for one organization, project, role or scope opens nothing of another: every route with every token.
func TestRoutes_EveryAgentToken(t *testing.T) {
	a := newAgents()
	type claims = auth.AgentClaims
	type holder = auth.AgentHolder
	reader := func(h *holder, _ *claims) {
		h.Role, h.Access = organization.Member, map[uuid.UUID]organization.Access{
			apitest.Principal.Project.ID: organization.ReadAccess,
		}
	}
	const all, reads, none = "all", "reads", ""
	for _, c := range []struct {
		name   string
		change func(*holder, *claims)
		slug   string
		opens  string
		code   string
	}{
		{"of an owner", nil, "", all, ""},
		{"of an owner in a project", nil, "default", all, ""},
		{"with the scope to read", func(_ *holder, c *claims) { c.Scope = "memory:read" }, "", reads, "403 insufficient-scope"},
		{"with no scope", func(_ *holder, c *claims) { c.Scope = "memory:admin" }, "", none, "403 insufficient-scope"},
		{"of who may read", reader, "", reads, "403 insufficient-scope"},
		{"of who may nothing", func(h *holder, _ *claims) { h.Role = organization.Member }, "default", none, "404 project-not-found"},
		{"of who may read elsewhere", reader, "other", none, "404 project-not-found"},
		{"for another project alone", func(h *holder, _ *claims) { h.Only = other.ID }, "default", none, "404 project-not-found"},
		{"for a project alone", func(h *holder, _ *claims) { h.Only = apitest.Principal.Project.ID }, "default", all, ""},
		{"in no project", nil, "nothing", none, "404 project-not-found"},
		{"in no slug", nil, "no slug!", none, "404 project-not-found"},
		{"in an archived project", nil, apitest.ArchivedSlug, none, "403 project-archived"},
		{"in an unreachable project", nil, apitest.UnreachableSlug, none, "503 service-unavailable"},
		{"with two projects", func(h *holder, _ *claims) { h.Projects = append(h.Projects, auth.Named{Project: other}) }, "", none, "400 project-required"},
		{"with two projects of which one is named", func(h *holder, _ *claims) { h.Projects = append(h.Projects, auth.Named{Project: other}) }, "other", all, ""},
		{"without a project", func(h *holder, _ *claims) { h.Projects = nil }, "", none, "404 project-not-found"},
		{"of another organization", func(h *holder, c *claims) { h.Organization, c.Organization = other.ID, other.ID }, "default", none, "404 project-not-found"},
		{"that names another organization", func(_ *holder, c *claims) { c.Organization = other.ID }, "", none, "401 unauthorized"},
		{"that names another person", func(_ *holder, c *claims) { c.Subject = uuid.NewString() }, "", none, "401 unauthorized"},
		{"that names another actor", func(_ *holder, c *claims) { c.Actor.Subject = "agent_reg_1" }, "", none, "401 unauthorized"},
		{"of no agent", func(_ *holder, c *claims) { c.ClientID = "agent_reg_1" }, "", none, "401 unauthorized"},
		{"of an unknown agent", func(_ *holder, c *claims) {
			c.ClientID = auth.AgentID(uuid.New())
			c.Actor.Subject = c.ClientID
		}, "", none, "401 unauthorized"},
		{"of a stopped agent", func(h *holder, _ *claims) { h.Revoked, h.Stopped = true, true }, "", none, "401 unauthorized"},
		{"of a revoked agent", func(h *holder, _ *claims) { h.Revoked = true }, "", all, ""},
		{"for another audience", func(_ *holder, c *claims) { c.Audience = jwt.ClaimStrings{apitest.URLs.Console + "/mcp"} }, "", none, "401 unauthorized"},
		{"of another issuer", func(_ *holder, c *claims) { c.Issuer = "https://evil.example.com" }, "", none, "401 unauthorized"},
		{"before the organization is ready", func(h *holder, _ *claims) { h.Preparing = true }, "", none, "503 organization-not-ready"},
		{"while the database is gone", func(h *holder, _ *claims) { h.Person = uuid.Max }, "", none, "503 service-unavailable"},
	} {
		token := a.add(c.name, c.change)
		t.Run(c.name, func(t *testing.T) {
			api := a.start(t, httpx.Config{})
			for _, r := range auth.Routes() {
				status, code, _ := strings.Cut(c.code, " ")
				switch {
				case r.Open:
					continue
				case r.Agent == auth.None:
					status, code = "401", "malformed-api-key"
				case c.opens == all, c.opens == reads && r.Agent == auth.Read:
					status, code = "404", "not-found" // there is no handler
				}
				got := agentCall(t, api, r, token, c.slug)
				if !strings.Contains(got.Body, `"code":"`+code+`","status":`+status) {
					t.Errorf("%s %s: %s, want %s %s", r.Method, r.Path, got.Body, status, code)
				}
				challenge := got.Header.Get("WWW-Authenticate")
				want := map[string]string{
					"401": `Bearer resource_metadata="https://console.example.com/.well-known/oauth-protected-resource/api/v1", error="invalid_token"`,
				}[status]
				if code == "insufficient-scope" {
					want = `Bearer error="insufficient_scope", scope="` + string(r.Agent) +
						`", resource_metadata="https://console.example.com/.well-known/oauth-protected-resource/api/v1"`
				}
				if challenge != want {
					t.Errorf("%s %s: challenge %q, want %q", r.Method, r.Path, challenge, want)
				}
			}
		})
	}
}

func TestAgentToken_OtherRefusals(t *testing.T) {
	a := newAgents()
	token := a.add("agent", nil)
	api := a.start(t, httpx.Config{})
	recall := auth.Route{Method: http.MethodPost, Path: "/api/v1/recall"}
	agentCall(t, api, recall, "the.database.fails", "").Want(t, 503, `"code":"service-unavailable"`)
	agentCall(t, api, recall, "unknown.to.us", "").Want(t, 401, `"code":"unauthorized"`)
	agentCall(t, api, auth.Route{Method: http.MethodPost, Path: "/api/v1/recall?project=other"}, token, "").
		Want(t, 400, `"code":"project-mismatch"`)
	agentCall(t, api, auth.Route{Method: http.MethodGet, Path: "/api/v1/nothing"}, token, "none").Want(t, 404, `"code":"not-found"`)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, api.URL()+"/api/v1/recall", nil)
	runtest.Must(t, err)
	req.Header = http.Header{"Authorization": {"Bearer " + token}, "X-Service-Project": {"default", "other"}}
	api.Do(req).Want(t, 400, `"code":"invalid-request"`, "more than once")
}

// A call with an agent token has a row of the request log as one with a key has.
func TestAgentToken_IsLogged(t *testing.T) {
	a := newAgents()
	named := a.add("named", nil)
	nameless := a.add("nameless", func(_ *auth.AgentHolder, c *auth.AgentClaims) { c.ClientName = "" })
	narrow := a.add("narrow", func(_ *auth.AgentHolder, c *auth.AgentClaims) { c.Scope = "memory:read" })
	calls := &callLog{room: admission.LoggedCalls.New()}
	cfg := httpx.Config{Keys: a, Tokens: a, Calls: calls}
	var as []auth.Principal
	api, _ := start(t, cfg, at(http.MethodPost, "/ingest", func(c echo.Context) error {
		as = append(as, httpx.Principal(c))
		return c.NoContent(http.StatusAccepted)
	}))
	ingest := auth.Route{Method: http.MethodPost, Path: "/api/v1/ingest"}
	agentCall(t, api, ingest, named, "").Want(t, 202)
	agentCall(t, api, ingest, nameless, "other").Want(t, 202)
	agentCall(t, api, ingest, narrow, "").Want(t, 403)
	agentCall(t, api, ingest, named, "nothing").Want(t, 404)
	want := map[requestlog.Key]int{}
	for i, name := range []string{"named", "nameless", "narrow"} {
		id := auth.AgentID(uuid.NewSHA1(agentOf, []byte(name)))
		key := requestlog.Key{Name: "agent:helper", Prefix: id[:18]}
		if name == "nameless" {
			key.Name = "agent:" + id
		}
		want[key] = []int{202, 202, 403}[i]
	}
	got := map[requestlog.Key]int{}
	for _, r := range calls.rows {
		got[r.Key] = r.Status
	}
	if !maps.Equal(got, want) {
		t.Errorf("rows %v, want %v", got, want)
	}
	if len(as) != 2 || as[0].Project != apitest.Principal.Project || as[1].Project != other ||
		as[0].Name() != "agent:"+uuid.NewSHA1(agentOf, []byte("named")).String() {
		t.Errorf("called as %+v", as)
	}
}
