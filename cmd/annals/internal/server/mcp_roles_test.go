package server

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/google/uuid"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/annals-project/annals/console/mcp"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/runtest"
)

// postMCP sends a message as clients before 2026-07-28 do.
func (h *harness) postMCP(path, token, method, params string) (status int, header http.Header, body string) {
	h.t.Helper()
	r, err := http.NewRequestWithContext(h.t.Context(), http.MethodPost, h.urls.Console+path,
		strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`))
	runtest.Must(h.t, err)
	r.Header = http.Header{
		"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Authorization": {"Bearer " + token},
	}
	res, err := http.DefaultClient.Do(r)
	runtest.Must(h.t, err)
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(res.Body)
	runtest.Must(h.t, err)
	return res.StatusCode, res.Header, string(answer)
}

// tokensByID finds the grants of tokens that name a person, an organization, scopes, and the project of the consent,
// and those that are there.
func tokensByID(
	s *Server, stored func(context.Context, string) (mcp.Grant, bool, error),
) func(context.Context, string) (mcp.Grant, bool, error) {
	return func(ctx context.Context, token string) (g mcp.Grant, ok bool, err error) {
		parts := strings.Split(strings.TrimPrefix(token, mcp.TokenPrefix), "/")
		if len(parts) != 4 {
			return stored(ctx, token)
		}
		if g.Person, err = uuid.Parse(parts[0]); err != nil {
			return g, false, err
		}
		if g.Organization, err = uuid.Parse(parts[1]); err != nil {
			return g, false, err
		}
		g.Project, g.ClientName, g.Resource = parts[3], "Desk <b>", s.urls.Console+"/mcp"
		if strings.Contains(parts[2], operateScope) {
			g.Resource += "/operator"
		}
		for scope := range strings.SplitSeq(parts[2], ",") {
			g.Scopes = append(g.Scopes, auth.Scope(scope))
		}
		return g, true, nil
	}
}

// Scopes of tokens.
const (
	bothScopes = "memory:read,memory:write"
	readScope  = "memory:read"
	writeScope = "memory:write"

	operateScope = "memory:operate"
	allScopes    = bothScopes + "," + operateScope
)

// idToken is a token of somebody with a role, see tokensByID.
func (h *consoleHarness) idToken(role, scopes, project string) string {
	of := h.home()
	if role == "foreign" {
		of = h.theirs
	}
	return mcp.TokenPrefix + strings.Join([]string{h.ids[role].String(), of.String(), scopes, project}, "/")
}

// writing are the tools that need the scope memory:write.
var writing = []string{"remember", "retry_ingestion", "forget", "set_identity_traits"}

// toolArguments are arguments with which each tool works on the first project.
func (h *consoleHarness) toolArguments() map[string]map[string]any {
	values := h.parameters()
	type args = map[string]any
	return map[string]args{
		"whoami": {}, "list_projects": {}, "list_identities": {"limit": 2}, "list_audiences": {}, "get_usage": {},
		"recall": {"query": "zebra"}, "remember": {"content": "The zebra came at noon.", "id": "noon"},
		"get_ingestion": {"ingestionId": values["{send}"]}, "explain_ingestion": {"ingestionId": values["{send}"]},
		"retry_ingestion": {"ingestionId": values["{send}"]}, "forget": {"ingestionId": values["{send}"]}, "read": {"sourceId": "noon-admin"},
		"search_memory_trace": {"first": 3}, "get_node": {"id": values["{node}"]}, "get_lineage": {"id": values["{node}"]},
		"get_timeline": {"id": values["{node}"]}, "get_identity": {"identity": "plain"},
		"set_identity_traits": {"identity": "plain", "traits": args{"desk": "3"}},
		"list_requests":       {"first": 3}, "get_request": {"requestId": values["{request}"]},
	}
}

// everyday are the tools of /mcp.
var everyday = []string{"recall", "read", "remember", "forget", "get_ingestion"}

// Every tool × every role × every scope: what is listed, what is refused and why. No answer holds a key, and each has
// the shape that its tool promises.
func TestMCP_EveryToolForEveryRoleAndScope(t *testing.T) {
	h := newConsole(t)
	tools := h.toolArguments()
	for _, role := range roles[1:] {
		for _, scopes := range []string{bothScopes, readScope, writeScope} {
			a := h.agent(h.idToken(role, scopes, ""))
			schemas := a.schemas()
			for _, name := range everyday {
				h.listed(a, role, scopes, name, schemas)
				if scope := scopeOf(name); !strings.Contains(scopes, scope) {
					h.stepUp("/mcp", h.idToken(role, scopes, ""), name, scope)
				} else if schema, ok := schemas[name]; ok {
					h.used(a, role, name, tools[name], schema)
				}
			}
			if len(schemas) > len(everyday) {
				t.Errorf("%s with %s is listed %d tools", role, scopes, len(schemas))
			}
		}
		if admin := slices.Contains([]string{"admin", "owner", "foreign"}, role); !admin {
			h.stepUp("/mcp/operator", h.idToken(role, allScopes, ""), "whoami", operateScope)
			continue
		}
		a := h.operator(h.idToken(role, allScopes, ""))
		schemas := a.schemas()
		for name, args := range tools {
			h.listed(a, role, allScopes, name, schemas)
			if schema, ok := schemas[name]; ok {
				h.used(a, role, name, args, schema)
			}
		}
	}
}

// scopeOf is the scope that a tool needs.
func scopeOf(tool string) string {
	if slices.Contains(writing, tool) {
		return writeScope
	}
	return readScope
}

// listed checks that a tool is listed to those who may use it. Of another organization, the owner may write in her own
// project.
func (h *consoleHarness) listed(a agent, role, scopes, name string, schemas map[string]*jsonschema.Resolved) {
	h.t.Helper()
	writer := slices.Contains([]string{"write", "admin", "owner", "foreign"}, role)
	_, listed := schemas[name]
	if want := strings.Contains(scopes, scopeOf(name)) && (writer || scopeOf(name) == readScope); listed != want {
		h.t.Errorf("%s with %s is listed %s: %t", role, scopes, name, listed)
	}
	if _, err := a.CallTool(h.t.Context(), &sdk.CallToolParams{Name: name + "x"}); err == nil {
		h.t.Error("a tool that there is not is called")
	}
}

// schemas are the schemas of the answers of the listed tools.
func (a agent) schemas() map[string]*jsonschema.Resolved {
	a.t.Helper()
	schemas := map[string]*jsonschema.Resolved{}
	for tool, err := range a.Tools(a.t.Context(), nil) {
		runtest.Must(a.t, err)
		text, err := json.Marshal(tool.OutputSchema)
		runtest.Must(a.t, err)
		var schema jsonschema.Schema
		runtest.Must(a.t, json.Unmarshal(text, &schema))
		schemas[tool.Name], err = schema.Resolve(nil)
		runtest.Must(a.t, err)
		if h := tool.Annotations; h.ReadOnlyHint == slices.Contains(writing, tool.Name) || *h.OpenWorldHint {
			a.t.Errorf("%s: hints %+v", tool.Name, h)
		}
	}
	return schemas
}

// used calls a listed tool on the first project.
func (h *consoleHarness) used(a agent, role, name string, args map[string]any, schema *jsonschema.Resolved) {
	h.t.Helper()
	inProject := name != "whoami" && name != "list_projects"
	sent := map[string]any{}
	for arg, v := range args {
		sent[arg] = v
	}
	if id, ok := sent["id"]; ok && name == "remember" {
		sent["id"] = id.(string) + "-" + role
	}
	if inProject {
		sent["project"] = "default"
	}
	var answer any
	text, refusal := a.use(name, sent, &answer)
	switch {
	case inProject && (role == "foreign" || role == "member"):
		if !strings.HasPrefix(refusal, "project-not-found: ") || strings.Contains(refusal, "default") {
			h.t.Errorf("%s uses %s of a project that is not theirs: %q %q", role, name, text, refusal)
		}
		return
	case (role == "read" || role == "write") && (name == "forget" || name == "get_ingestion"): // of others
		if !strings.HasPrefix(refusal, "not-found: ") {
			h.t.Errorf("%s uses %s of what another sent: %q %q", role, name, text, refusal)
		}
		return
	case name == "read" && strings.HasPrefix(refusal, "data-point-not-found: "): // not remembered yet
		return
	case name == "retry_ingestion" && (strings.HasPrefix(refusal, "ingestion-not-stopped: ") ||
		strings.HasPrefix(refusal, "data-point-deleted: ")): // forget takes the same send
		return
	case refusal != "":
		h.t.Errorf("%s uses %s: %s", role, name, refusal)
		return
	}
	if err := schema.Validate(answer); err != nil {
		h.t.Errorf("the answer of %s has another shape: %v", name, err)
	}
	body, err := json.Marshal(answer)
	runtest.Must(h.t, err)
	project, management := h.keys()
	for _, key := range []string{project, management} {
		if strings.Contains(text+string(body), key) {
			h.t.Errorf("%s reveals a key", name)
		}
	}
	if slug := map[bool]string{true: "theirs", false: "default"}[role == "foreign"]; name == "list_projects" &&
		(role == "member") == strings.Contains(text, slug) {
		h.t.Errorf("%s sees projects %s", role, text)
	}
	if role == "foreign" && strings.Contains(text, "zebra") {
		h.t.Errorf("foreign sees data by %s", name)
	}
}

// stepUp checks that a token without a scope learns which one a tool needs.
func (h *consoleHarness) stepUp(path, token, tool, scope string) {
	h.t.Helper()
	status, header, body := h.postMCP(path, token, "tools/call", `{"name":"`+tool+`","arguments":{}}`)
	want := `Bearer error="insufficient_scope", scope="` + scope + `", resource_metadata="` + h.urls.Console +
		`/.well-known/oauth-protected-resource` + path + `"`
	if status != http.StatusForbidden || header.Get("WWW-Authenticate") != want {
		h.t.Errorf("%s without %s: %d %v %s", tool, scope, status, header, body)
	}
}

// A person acts under her address, whose record has the origin of a sign-in. A consent may be for one project alone.
func TestMCP_Person(t *testing.T) {
	h := newStaff(t)
	own, management := h.keys()
	a := h.agent(h.idToken("write", bothScopes, ""))
	a.must("recall", map[string]any{"query": "zebra"}, nil)
	var who struct{ Origin string }
	h.must(own, http.MethodGet, api+"/identities/"+h.mail("write"), nil, &who)
	if who.Origin != "login" {
		t.Errorf("origin %q", who.Origin)
	}
	var receipt struct{ IngestionID string }
	green := map[string]any{"content": "The lamp is green.", "id": "lamp"}
	if text := a.must("remember", green, &receipt); !strings.Contains(text, "Readers: you alone;") {
		t.Errorf("%s", text)
	}
	h.await(own, receipt.IngestionID, "completed")
	ben := h.boundAgent("/mcp", own, "ben")
	if text := ben.must("recall", map[string]any{"query": "lamp"}, nil); strings.Contains(text, "green") {
		t.Errorf("what a person remembers without an audience is found by another: %s", text)
	}
	if text := a.must("recall", map[string]any{"query": "lamp"}, nil); !strings.Contains(text, ", "+h.mail("write")+": The lamp is green. [") {
		t.Errorf("%s", text)
	}
	h.awaitTool(own, "/mcp#remember", "mcp:Desk <b>") // the name of the client
	h.must(management, http.MethodPost, api+"/projects", map[string]any{"name": "Second"}, nil)
	pinned := h.operator(h.idToken("owner", allScopes, "second"))
	if text := pinned.must("get_usage", nil, nil); !strings.Contains(text, "slug: second") {
		t.Errorf("%s", text)
	}
	if _, refusal := pinned.use("get_usage", map[string]any{"project": "default"}, nil); !strings.HasPrefix(refusal, "project-not-found") {
		t.Errorf("a project outside of the consent: %q", refusal)
	}
}

// neighbours makes two identities with an audience each, of them alone.
func (h *harness) neighbours(key string, names ...string) {
	h.t.Helper()
	for _, name := range names {
		h.must(key, http.MethodPut, api+"/identities/"+name, map[string]any{"traits": map[string]string{}}, nil)
		h.must(key, http.MethodPut, api+"/audiences/of-"+name,
			map[string]any{"kind": "fixed", "identities": []string{name}}, nil)
	}
}

// To a connection that is bound to an identity, what another wrote for herself is as if it were not there.
func TestMCP_Bound(t *testing.T) {
	h := newTenant(t)
	key, _ := h.keys()
	h.neighbours(key, "ana", "ben")
	ana, ben := h.boundAgent("/mcp", key, "ana"), h.boundAgent("/mcp", key, "ben")
	type args = map[string]any
	var receipt struct{ IngestionID, SourceID string }
	ana.must("remember", args{"content": "The budget is 40,000 euros.", "id": "budget", "audience": "me"}, &receipt)
	h.await(key, receipt.IngestionID, "completed")
	if text := ana.must("recall", args{"query": "budget"}, nil); !strings.Contains(text, "ana: The budget is 40,000 euros. [budget]") {
		t.Errorf("ana recalls %s", text)
	}
	h.hidden(ben, receipt.IngestionID)
}

// hidden checks that what ana wrote for herself is answered to ben as what is not there: only that the id is taken
// shows.
func (h *harness) hidden(ben agent, send string) {
	h.t.Helper()
	type args = map[string]any
	const none = "00000000-0000-7000-8000-000000000000"
	for _, c := range []struct {
		tool         string
		theirs, made args
	}{
		{"read", args{"sourceId": "budget"}, args{"sourceId": "nothing"}},
		{"forget", args{"sourceId": "budget"}, args{"sourceId": "nothing"}},
		{"forget", args{"ingestionId": send}, args{"ingestionId": none}},
		{"get_ingestion", args{"ingestionId": send}, args{"ingestionId": none}},
		{"recall", args{"query": "budget euros"}, args{"query": "giraffe colour"}},
	} {
		theirs, refused := ben.use(c.tool, c.theirs, nil)
		made, unknown := ben.use(c.tool, c.made, nil)
		if theirs != made || refused != unknown || theirs+refused == "" {
			h.t.Errorf("%s: %q %q, but of what there is not %q %q", c.tool, theirs, refused, made, unknown)
		}
	}
	_, theirs := ben.use("remember", args{"content": "x", "audience": "of-ana"}, nil)
	_, made := ben.use("remember", args{"content": "x", "audience": "of-eve"}, nil)
	if strings.ReplaceAll(theirs, "of-ana", "of-eve") != made || !strings.HasPrefix(made, "audience-unknown: ") {
		h.t.Errorf("an audience of another: %q, but one that there is not: %q", theirs, made)
	}
	for _, content := range []string{"The budget is 40,000 euros.", "Mine."} {
		_, refusal := ben.use("remember", args{"content": content, "id": "budget"}, nil)
		if !strings.HasPrefix(refusal, "id-taken: ") || !strings.Contains(refusal, "take another id") {
			h.t.Errorf("ben sends the id of ana: %q", refusal)
		}
	}
	for _, uri := range []string{"memory://default/sources/budget", "memory://default/memories/" + none} {
		if _, err := ben.ReadResource(h.t.Context(), &sdk.ReadResourceParams{URI: uri}); err == nil {
			h.t.Errorf("%s is read", uri)
		}
	}
}
