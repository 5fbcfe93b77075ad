package server

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/webtest"
)

// bearer sends a token with each request, and what else a client is configured with.
type bearer struct {
	token  string
	header http.Header
}

// RoundTrip implements http.RoundTripper.
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	maps.Copy(r.Header, b.header)
	return http.DefaultTransport.RoundTrip(r)
}

// agent is a client of the Model Context Protocol.
type agent struct {
	*mcp.ClientSession
	t testing.TB
}

// agent connects a client to /mcp with a key or a token.
func (h *harness) agent(token string) agent { return h.agentAt("/mcp", token, nil) }

// operator connects a client to the path that has all tools.
func (h *harness) operator(token string) agent { return h.agentAt("/mcp/operator", token, nil) }

// boundAgent connects a client with a key that is bound to an identity.
func (h *harness) boundAgent(path, key, identity string) agent {
	return h.agentAt(path, key, http.Header{"X-Service-Identity": {identity}})
}

func (h *harness) agentAt(path, token string, header http.Header) agent {
	h.t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(h.t.Context(), &mcp.StreamableClientTransport{
		Endpoint: h.urls.Console + path, HTTPClient: &http.Client{Transport: bearer{token, header}}, DisableStandaloneSSE: true,
	}, nil)
	runtest.Must(h.t, err)
	h.t.Cleanup(func() { _ = session.Close() })
	return agent{session, h.t}
}

// tools are the names of the listed tools.
func (a agent) tools() (names []string) {
	a.t.Helper()
	for tool, err := range a.Tools(a.t.Context(), nil) {
		runtest.Must(a.t, err)
		names = append(names, tool.Name)
	}
	return names
}

// use calls a tool. refusal is the text of a call that was refused.
func (a agent) use(name string, args map[string]any, out any) (text, refusal string) {
	a.t.Helper()
	res, err := a.CallTool(a.t.Context(), &mcp.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		a.t.Fatalf("%s: %v", name, err)
	}
	if len(res.Content) != 1 {
		a.t.Fatalf("%s: %d contents", name, len(res.Content))
	}
	text = res.Content[0].(*mcp.TextContent).Text
	if res.IsError {
		return "", text
	}
	if out != nil {
		body, err := json.Marshal(res.StructuredContent)
		runtest.Must(a.t, err)
		runtest.Must(a.t, json.Unmarshal(body, out))
	}
	return text, ""
}

// must calls a tool that has to succeed.
func (a agent) must(name string, args map[string]any, out any) string {
	a.t.Helper()
	text, refusal := a.use(name, args, out)
	if refusal != "" {
		a.t.Fatalf("%s %v: %s", name, args, refusal)
	}
	return text
}

// awaitTool waits until the request log has an accepted call of a tool, by a key whose name begins so.
func (h *harness) awaitTool(key, path, by string) {
	h.t.Helper()
	// The reads of a test are logged too, and on a slow machine they are more than a page.
	logged := api + "/requests?" + url.Values{"endpoint": {"MCP " + path}}.Encode()
	runtest.Await(h.t, path+" is logged", func() bool {
		var list client.RequestList
		h.must(key, http.MethodGet, logged, nil, &list)
		return slices.ContainsFunc(list.Requests, func(r client.RequestEntry) bool {
			return r.Path == path && r.Method == "MCP" && r.Outcome == "Accepted" && strings.HasPrefix(r.Key.Name, by)
		})
	})
}

// An agent with the key of a project remembers and recalls, and its calls are in the request log.
func TestMCP_Key(t *testing.T) {
	h := newTenant(t)
	own, _ := h.keys()
	a := h.agent(own)
	if names := a.tools(); !slices.Equal(names, []string{"forget", "get_ingestion", "read", "recall", "remember"}) {
		t.Errorf("%q", names)
	}
	if names := h.operator(own).tools(); len(names) != 20 {
		t.Errorf("%d tools: %q", len(names), names)
	}
	if names := h.agentAt("/mcp/read", own, nil).tools(); !slices.Equal(names, []string{"read", "recall"}) {
		t.Errorf("%q", names)
	}
	var receipt struct{ IngestionID, SourceID, Status string }
	a.must("remember", map[string]any{"content": "The tea is in the blue tin.", "id": "tea", "identity": "ana"}, &receipt)
	h.await(own, receipt.IngestionID, "completed")
	var found struct {
		Results []struct{ Content string }
	}
	text := a.must("recall", map[string]any{"query": "where is the tea?", "identity": "ben"}, &found)
	if len(found.Results) == 0 ||
		!strings.Contains(text, ", ana: The tea is in the blue tin. [tea]") || strings.Count(text, "blue tin") != 1 {
		t.Errorf("%+v\n%s", found, text)
	}
	h.awaitTool(own, "/mcp#remember", "")
	h.awaitTool(own, "/mcp#recall", "")
	if _, refusal := a.use("recall", map[string]any{"query": "tea"}, nil); !strings.HasPrefix(refusal, "identity-required: ") {
		t.Errorf("without an identity: %q", refusal)
	}
}

// What a key must not reach: another project, its ids, and sizes beyond the limits.
func TestMCP_HostileArguments(t *testing.T) {
	unraced(t)
	h := newTenant(t)
	own, management := h.keys()
	h.must(management, http.MethodPost, api+"/projects", map[string]any{"name": "Other"}, nil)
	var key client.ProjectKey
	h.must(management, http.MethodPost, api+"/projects/other/keys", map[string]any{"name": "k"}, &key)
	send := h.send(key.Key, "/ingest", "completed", point{"id": "theirs", "content": "The vault is in the cellar."})
	var roots client.Roots
	h.must(key.Key, http.MethodGet, api+"/trace/roots", nil, &roots)
	node := roots.Sources.Nodes[0].ID
	a := h.operator(own)
	type args = map[string]any
	for _, c := range []struct {
		tool, code string
		args       args
	}{
		{"recall", "project-mismatch", args{"query": "vault", "identity": "ana", "project": "other"}},
		{"recall", "invalid-request", args{"query": "vault", "identity": "ana", "project": 7}},
		{"get_ingestion", "not-found", args{"ingestionId": send}},
		{"forget", "not-found", args{"ingestionId": send}},
		{"forget", "data-point-not-found", args{"sourceId": "theirs"}},
		{"read", "data-point-not-found", args{"sourceId": "theirs", "identity": "ana"}},
		{"explain_ingestion", "not-found", args{"ingestionId": send}},
		{"retry_ingestion", "not-found", args{"ingestionId": send}},
		{"get_node", "not-found", args{"id": node}},
		{"get_lineage", "not-found", args{"id": node}},
		{"get_timeline", "not-found", args{"id": node}},
		{"get_identity", "not-found", args{"identity": "../requests?project=other"}},
		{"remember", "content-too-large", args{"content": strings.Repeat("x", 1<<20+1)}},
	} {
		if text, refusal := a.use(c.tool, c.args, nil); !strings.HasPrefix(refusal, c.code+": ") {
			t.Errorf("%s %.80v: %q %.200q, want %s", c.tool, c.args, refusal, text, c.code)
		}
	}
	h.resources(a, node)
}

// resources reads resources of one's own project and of another one.
func (h *harness) resources(a agent, theirs string) {
	h.t.Helper()
	own, _ := h.keys()
	h.send(own, "/ingest", "completed", point{"id": "a/b c", "content": "My favourite editor is Helix.", "identity": "ana"})
	var roots client.Roots
	h.must(own, http.MethodGet, api+"/trace/roots", nil, &roots)
	read := func(uri string) string {
		res, err := a.ReadResource(h.t.Context(), &mcp.ReadResourceParams{URI: uri})
		if err != nil {
			return "error: " + err.Error()
		}
		return res.Contents[0].Text
	}
	memory := roots.Memories.Nodes[0].ID
	if text := read("memory://default/sources/a%2Fb%20c"); !strings.Contains(text, "Helix") {
		h.t.Errorf("a source: %s", text)
	}
	if text := read("memory://default/memories/" + memory); !strings.Contains(text, memory) {
		h.t.Errorf("a memory: %s", text)
	}
	for _, uri := range []string{
		"memory://default/memories/" + theirs, "memory://other/sources/theirs", "memory://default/sources/theirs",
		"memory://default/memories/" + roots.Sources.Nodes[0].ID, "memory://default/keys/x", "file:///etc/passwd",
	} {
		if text := read(uri); !strings.HasPrefix(text, "error: ") {
			h.t.Errorf("%s: %s", uri, text)
		}
	}
}

// A recall of documents with 1 MiB of metadata each returns their texts, and counts what it left out, at /mcp and on
// the page. The call was refused, and ended with the documents that 16 MiB have.
func TestMCP_LongMetadata(t *testing.T) {
	h := newStaff(t)
	key, _ := h.keys()
	const documents = 18
	send := ""
	for i := range documents {
		element := []string{"1,", "[],", "{},"}[i%3]
		metadata := json.RawMessage(`{"a":[` + strings.Repeat(element, (1<<20-64)/len(element)) + `0]}`)
		var receipt struct{ IngestionID string }
		h.must(key, http.MethodPost, api+"/ingest", point{
			"id": fmt.Sprintf("ledger-%d", i), "content": fmt.Sprintf("Entry %d of the harbour ledger.", i), "metadata": metadata,
		}, &receipt)
		send = receipt.IngestionID
	}
	h.await(key, send, "completed")
	var found struct {
		Results []struct{ Content string }
		Omitted struct{ Counts map[string]int }
	}
	args := map[string]any{"query": "harbour ledger", "identity": "ana", "limit": 200, "level": "extra-high"}
	text := h.agent(key).must("recall", args, &found)
	reader := h.as("read")
	reader.Open("/p/default/recall?query=harbour+ledger&identity=ana&limit=200&level=extra-high")
	page := reader.Submit("Recall", nil)
	for i := range documents {
		if want := fmt.Sprintf("Entry %d of the harbour ledger.", i); !strings.Contains(text, want) ||
			!strings.Contains(webtest.Plain(page.Find("article").Text()), want) {
			t.Errorf("%q is missing", want)
		}
	}
	if found.Omitted.Counts["metadata"] < documents || !strings.Contains(page.Text(), "Left out, since the answer is long") {
		t.Errorf("left out %v; %d %.300s", found.Omitted, page.Status, page.Text())
	}
}
