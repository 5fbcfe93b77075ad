package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/access"
)

// served is a service at its routes, with the keys of apitest and the tokens of people.
type served struct {
	*fixed

	url      string
	grants   map[string]Grant
	people   map[uuid.UUID]access.Person
	projects []access.Project
}

func (s *served) Memberships(_ context.Context, id uuid.UUID) (access.Person, bool, error) {
	p, ok := s.people[id]
	return p, ok, nil
}

func (s *served) Projects(context.Context, uuid.UUID) ([]access.Project, error) {
	return slices.Clone(s.projects), nil
}

func (s *served) OrganizationByID(context.Context, uuid.UUID) (access.Organization, bool, error) {
	return access.Organization{}, false, nil
}

func (s *served) EnsureSignedIn(context.Context, engine.Call, string) error { return nil }

// serve starts a service whose API answers each call with an empty object.
func serve(t *testing.T) *served {
	t.Helper()
	s := &served{
		grants: map[string]Grant{}, people: map[uuid.UUID]access.Person{},
		projects: []access.Project{{Project: apitest.Principal.Project}},
	}
	s.fixed = newFixed(t, func(c echo.Context) error {
		return c.JSON(http.StatusOK, object{"results": []any{}, "sourceId": "n", "status": "queued"})
	})
	s.Origins, s.Access, s.Identities = []string{"https://inspector.example"}, s, s
	s.Tokens = func(_ context.Context, token string) (Grant, bool, error) {
		g, ok := s.grants[token]
		return g, ok, nil
	}
	s.url = serveAt(t, apitest.URLs.Console, s.Service)
	return s
}

// serveAt serves the routes of a service whose public address is url, and returns where.
func serveAt(t *testing.T, url string, s *Service) string {
	t.Helper()
	site, err := web.New(web.Config{
		URL: url, Cookies: web.NewCookies("http:", uuid.Nil), Admit: func() error { return nil },
		Logger: runtest.Warnings(t), Now: time.Now,
	}, []web.Area{s.Area()})
	runtest.Must(t, err)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := site.Serve(w, r, &httpx.PageNote{}); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// token returns a token of a new person with a role, for a path and scopes.
func (s *served) token(m access.Membership, path string, scopes ...auth.Scope) string {
	id := uuid.New()
	m.Organization = apitest.Principal.OrganizationID
	s.people[id] = access.Person{ID: id, Email: "ana@example.com", Memberships: []access.Membership{m}}
	token := TokenPrefix + id.String()
	s.grants[token] = Grant{
		Person: id, Organization: m.Organization, ClientName: "Test", Resource: apitest.URLs.Console + path, Scopes: scopes,
	}
	return token
}

// ask sends a request with a token, and headers as pairs.
func (s *served) ask(method, path, token string, body []byte, headers ...string) (int, http.Header, string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, bytes.NewReader(body))
	runtest.Must(s.t, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for name, value := range pairs(headers) {
		r.Header[http.CanonicalHeaderKey(name)] = []string{value}
	}
	res, err := http.DefaultClient.Do(r)
	runtest.Must(s.t, err)
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(res.Body)
	runtest.Must(s.t, err)
	return res.StatusCode, res.Header, string(answer)
}

func pairs(list []string) map[string]string {
	named := map[string]string{}
	for pair := range slices.Chunk(list, 2) {
		named[pair[0]] = pair[1]
	}
	return named
}

// post sends a message.
func (s *served) post(path, token, method string, params any, headers ...string) (int, http.Header, string) {
	s.t.Helper()
	body, err := json.Marshal(object{"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
	runtest.Must(s.t, err)
	return s.ask(http.MethodPost, path, token, body, headers...)
}

// initialize is what a client sends first in some version of the protocol.
func initialize(version string) object {
	return object{
		"protocolVersion": version, "capabilities": object{}, "clientInfo": object{"name": "test", "version": "1"},
	}
}

// toolsOf are the names of the tools that a caller is shown.
func (s *served) toolsOf(path, token string) (names []string) {
	s.t.Helper()
	status, _, body := s.post(path, token, "tools/list", object{}, "Mcp-Protocol-Version", "2025-11-25")
	var list struct {
		Result struct{ Tools []struct{ Name string } }
	}
	if err := json.Unmarshal([]byte(body), &list); err != nil || status != http.StatusOK {
		s.t.Fatalf("tools of %s: %d %s", path, status, body)
	}
	for _, t := range list.Result.Tools {
		names = append(names, t.Name)
	}
	return names
}

// Who is not known reads a 401 for each method, with the document that names the authorization server, before anything
// else of the request is looked at.
func TestServe_Challenge(t *testing.T) {
	s := serve(t)
	metadata := `resource_metadata="` + apitest.URLs.Console + auth.AnyResourcePath +
		`/mcp", scope="memory:read memory:write"`
	elsewhere := s.token(access.Membership{Role: organization.Owner, Prepared: true}, auth.MCPReadPath, auth.Read)
	left := s.token(access.Membership{Role: organization.Owner, Prepared: true}, auth.MCPPath, auth.Read)
	s.people[s.grants[left].Person] = access.Person{ID: s.grants[left].Person}
	for token, challenge := range map[string]string{
		"": "Bearer " + metadata, apitest.UnknownKey: "Bearer " + metadata, apitest.ManagementKey: "Bearer " + metadata,
		"a.b.c": "Bearer " + metadata, "svc_oat_made-up": `Bearer error="invalid_token", ` + metadata,
		elsewhere: `Bearer error="invalid_token", ` + metadata, left: `Bearer error="invalid_token", ` + metadata,
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
			status, header, body := s.ask(method, auth.MCPPath, token, []byte("{no JSON"))
			if status != http.StatusUnauthorized || header.Get("WWW-Authenticate") != challenge ||
				token != "" && strings.Contains(body, token) {
				t.Errorf("%s with %q: %d %v %s", method, token, status, header, body)
			}
		}
	}
	for method, want := range map[string]int{http.MethodGet: 405, http.MethodDelete: 405, http.MethodPost: 400} {
		if status, _, body := s.ask(method, auth.MCPPath, apitest.ProjectKey, []byte("{no JSON")); status != want {
			t.Errorf("%s with a key: %d %s", method, status, body)
		}
	}
	if status, header, _ := s.ask(http.MethodPost, auth.MCPPath, apitest.UnreachableKey, nil); status != 503 ||
		header.Get("WWW-Authenticate") != "" || header.Get("Retry-After") != "2" {
		t.Errorf("while keys cannot be read: %d %v", status, header)
	}
}

// Pages of other sites cannot call; those of the console can, and those that the operator names.
func TestServe_Origins(t *testing.T) {
	s := serve(t)
	console := apitest.URLs.Console
	for origin, want := range map[string]int{
		"https://evil.example": 403, "null": 403, console + ".evil.example": 403, "https://inspector.example": 200, console: 200,
	} {
		status, header, _ := s.post(auth.MCPPath, apitest.ProjectKey, "initialize", initialize("2025-11-25"), "Origin", origin)
		if status != want || (header.Get("Access-Control-Allow-Origin") == origin) != (want == 200) {
			t.Errorf("%s: %d %v", origin, status, header)
		}
		want = map[int]int{200: 204, 403: 403}[want]
		status, header, _ = s.ask(http.MethodOptions, auth.MCPPath, "", nil, "Origin", origin, "Access-Control-Request-Method", "POST")
		if status != want || strings.Contains(header.Get("Access-Control-Allow-Headers"), "Mcp-Method") != (want == 204) {
			t.Errorf("preflight of %s: %d %v", origin, status, header)
		}
	}
}

// Origins are read as browsers name them.
func TestParseOrigins(t *testing.T) {
	got, err := ParseOrigins(" https://a.example, http://localhost:6274,")
	if err != nil || !slices.Equal(got, []string{"https://a.example", "http://localhost:6274"}) {
		t.Errorf("%q %v", got, err)
	}
	many := ""
	for i := range maxOrigins + 1 {
		many += fmt.Sprintf("https://%d.example,", i)
	}
	for _, text := range []string{"*", "null", "a.example", "https://a.example/", "https://a.example/mcp", "ftp://a.example", many} {
		if got, err := ParseOrigins(text); err == nil {
			t.Errorf("%.40q is %q", text, got)
		}
	}
}

// Each version from the oldest on is spoken, without sessions, one message at a time.
func TestServe_Versions(t *testing.T) {
	s := serve(t)
	for asked, want := range map[string]string{
		oldest: oldest, "2025-11-25": "2025-11-25", "2025-03-26": "2025-11-25", "2099-01-01": "2025-11-25",
	} {
		status, header, body := s.post(auth.MCPPath, apitest.ProjectKey, "initialize", initialize(asked))
		if status != http.StatusOK || !strings.Contains(body, `"protocolVersion":"`+want+`"`) || header.Get("Mcp-Session-Id") != "" ||
			header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("initialize of %s: %d %v %s", asked, status, header, body)
		}
	}
	status, _, body := s.post(auth.MCPPath, apitest.ProjectKey, "tools/list", object{},
		"Mcp-Protocol-Version", "2025-11-25", "Mcp-Session-Id", "of another server")
	if status != http.StatusOK || !strings.Contains(body, `"recall"`) || !strings.Contains(body, `"cacheScope":"private"`) {
		t.Errorf("with the session of another server: %d %s", status, body)
	}
	status, _, body = s.ask(http.MethodPost, auth.MCPPath, apitest.ProjectKey, []byte(` [{"jsonrpc":"2.0"}]`))
	if status != http.StatusBadRequest || !strings.Contains(body, "one message at a time") {
		t.Errorf("two messages in one: %d %s", status, body)
	}
	long := []byte(`{"x":"` + strings.Repeat("x", maxBody) + `"}`)
	status, _, body = s.ask(http.MethodPost, auth.MCPPath, apitest.ProjectKey, long)
	if status != http.StatusRequestEntityTooLarge {
		t.Errorf("a body that is too long: %d %s", status, body)
	}
}

// A key that is bound to an identity takes the paths of one identity, and a header that binds nobody is refused.
func TestServe_BoundKey(t *testing.T) {
	s := serve(t)
	person := s.token(access.Membership{Role: organization.Owner, Prepared: true}, auth.MCPPath, auth.Read)
	for _, c := range []struct {
		path, token, identity string
		status                int
		code                  string
	}{
		{auth.MCPPath, apitest.ProjectKey, "ben", 200, ""},
		{auth.MCPReadPath, apitest.ProjectKey, "ben", 200, ""},
		{auth.MCPOperatorPath, apitest.ProjectKey, "ben", 403, codeIdentityBound},
		{auth.MCPPath, apitest.ProjectKey, "", 400, fault.CodeInvalidRequest},
		{auth.MCPPath, apitest.ProjectKey, " ", 400, fault.CodeInvalidRequest},
		{auth.MCPPath, apitest.ProjectKey, strings.Repeat("b", 2000), 400, fault.CodeInvalidRequest},
		{auth.MCPPath, apitest.ProjectKey, "\xff", 400, fault.CodeInvalidRequest},
		{auth.MCPPath, person, "ben", 403, codeIdentityBound},
	} {
		status, _, body := s.post(c.path, c.token, "initialize", initialize("2025-11-25"), IdentityHeader, c.identity)
		if status != c.status || !strings.Contains(body, c.code) {
			t.Errorf("%s as %.10q: %d %s", c.path, c.identity, status, body)
		}
	}
	_, _, body := s.post(auth.MCPPath, apitest.ProjectKey, "tools/call",
		object{"name": "recall", "arguments": object{"query": "tea", "identity": "ana"}},
		IdentityHeader, "ben", "Mcp-Protocol-Version", "2025-11-25")
	if !strings.Contains(body, `has no argument \"identity\"`) || len(s.called) > 0 {
		t.Errorf("a bound key as another identity: %s, %q", body, s.called)
	}
	_, _, body = s.post(auth.MCPPath, apitest.ProjectKey, "tools/call",
		object{"name": "recall", "arguments": object{"query": "tea"}}, IdentityHeader, "ben", "Mcp-Protocol-Version", "2025-11-25")
	if strings.Contains(body, `"isError"`) || !strings.Contains(string(s.body), `"identity":"ben"`) {
		t.Errorf("a bound key: %s, sends %s", body, s.body)
	}
}

// A person is shown the tools that the token has the scope for and the role allows, and is refused the others: what the
// token lacks with the scope to ask for, what the role lacks in words.
func TestServe_Scopes(t *testing.T) {
	s := serve(t)
	project := apitest.Principal.Project.ID
	owner := access.Membership{Role: organization.Owner, Prepared: true}
	reader := access.Membership{
		Role: organization.Member, Prepared: true, Access: map[uuid.UUID]organization.Access{project: organization.ReadAccess},
	}
	reading := []string{"get_ingestion", "read", "recall"}
	all := []string{"forget", "get_ingestion", "read", "recall", "remember"}
	for name, c := range map[string]struct {
		of     access.Membership
		scopes []auth.Scope
		tools  []string
		status int
		says   string
	}{
		"reads":               {owner, []auth.Scope{auth.Read}, reading, 403, fault.CodeInsufficientScope},
		"writes":              {owner, []auth.Scope{auth.Read, auth.Write}, all, 200, "Stored as n"},
		"whose role reads":    {reader, []auth.Scope{auth.Read, auth.Write}, reading, 200, "unknown tool"},
		"whose project is no": {access.Membership{Role: organization.Member, Prepared: true}, []auth.Scope{auth.Read}, reading, 403, ""},
	} {
		token := s.token(c.of, auth.MCPPath, c.scopes...)
		got := s.toolsOf(auth.MCPPath, token)
		slices.Sort(got)
		if !slices.Equal(got, c.tools) {
			t.Errorf("who %s is shown %q", name, got)
		}
		status, header, body := s.post(auth.MCPPath, token, "tools/call",
			object{"name": "remember", "arguments": object{"content": "x", "id": "n"}}, "Mcp-Protocol-Version", "2025-11-25")
		challenge := `Bearer error="insufficient_scope", scope="memory:write", `
		if status != c.status || !strings.Contains(body, c.says) ||
			strings.HasPrefix(header.Get("WWW-Authenticate"), challenge) != (status == 403) {
			t.Errorf("who %s remembers: %d %v %s", name, status, header, body)
		}
	}
	for _, c := range []struct {
		of     access.Membership
		scopes []auth.Scope
		status int
	}{
		{owner, []auth.Scope{auth.Read, auth.Operate}, 200},
		{owner, []auth.Scope{auth.Read}, 403},
		{reader, []auth.Scope{auth.Read, auth.Operate}, 403}, // who may name no other identity
		{access.Membership{Role: organization.Owner}, []auth.Scope{auth.Operate}, 503},
	} {
		status, header, body := s.post(auth.MCPOperatorPath, s.token(c.of, auth.MCPOperatorPath, c.scopes...), "initialize",
			initialize("2025-11-25"))
		if status != c.status || (header.Get("Retry-After") == "2") != (status == 503) {
			t.Errorf("%s with %v at the path of operators: %d %s", c.of.Role, c.scopes, status, body)
		}
	}
}

// A call is in the project that it names, or in the only one; what the person may not read does not exist.
func TestCaller_In(t *testing.T) {
	mine, archived := apitest.Principal.Project, auth.Project{ID: uuid.New(), Slug: "old"}
	other := auth.Project{ID: uuid.New(), Slug: "other"}
	key := &caller{principal: apitest.Principal, scopes: []auth.Scope{auth.Read, auth.Write}}
	person := func(of ...access.Project) *caller {
		return &caller{
			principal: auth.Principal{Kind: auth.Person}, scopes: []auth.Scope{auth.Read, auth.Write}, projects: of,
			membership: access.Membership{Role: organization.Member, Access: map[uuid.UUID]organization.Access{
				mine.ID: organization.WriteAccess, other.ID: organization.ReadAccess, archived.ID: organization.WriteAccess,
			}},
		}
	}
	old := access.Project{Project: archived, Archived: true}
	all := person(access.Project{Project: mine}, access.Project{Project: other}, old)
	for name, c := range map[string]struct {
		caller *caller
		slug   string
		scope  auth.Scope
		in     string
		code   string
	}{
		"a key":                   {key, "", auth.Write, "default", ""},
		"a key that names its":    {key, "default", auth.Write, "default", ""},
		"a key that names other":  {key, "other", auth.Read, "", fault.CodeProjectMismatch},
		"named":                   {all, "default", auth.Write, "default", ""},
		"named, only read":        {all, "other", auth.Write, "", fault.CodeInsufficientScope},
		"named, read":             {all, "other", auth.Read, "other", ""},
		"archived":                {all, "old", auth.Read, "", fault.CodeProjectArchived},
		"of several":              {all, "", auth.Read, "", fault.CodeProjectRequired},
		"unknown":                 {all, "theirs", auth.Read, "", codeProjectNotFound},
		"the only one":            {person(access.Project{Project: mine}), "", auth.Write, "default", ""},
		"the only live one":       {person(old, access.Project{Project: mine}), "", auth.Read, "default", ""},
		"none":                    {person(), "", auth.Read, "", codeProjectNotFound},
		"the only one, of others": {person(), "default", auth.Read, "", codeProjectNotFound},
	} {
		p, err := c.caller.in(c.slug, c.scope)
		in := c.code == "" && err == nil && p.Project.Slug == c.in
		if refused := err != nil && httpx.Fault(err).Code == c.code; !in && !refused {
			t.Errorf("%s: %q, %v", name, p.Project.Slug, err)
		}
	}
	want := map[string]auth.Scope{"default": auth.Write, "other": auth.Read, "old": auth.Write}
	if got := fmt.Sprint(all.slugs()); got != fmt.Sprint(want) {
		t.Errorf("projects of the person are %s", got)
	}
}
