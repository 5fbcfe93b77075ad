package server

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/annals-project/annals/internal/runtest"
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
	if err != nil {
		h.t.Fatal(err)
	}
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

// An agent with the key of a project remembers and recalls, and its calls are in the request log.
func TestMCP_Key(t *testing.T) {
	t.Parallel()
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
	for path, method := range map[string]string{"/mcp#remember": "MCP", "/mcp#recall": "MCP"} {
		// The reads of this test are logged too, and on a slow machine they are more than a page.
		logged := api + "/requests?" + url.Values{"endpoint": {method + " " + path}}.Encode()
		runtest.Await(t, path+" is logged", func() bool {
			var list struct {
				Requests []struct{ Method, Path, Outcome string }
			}
			h.must(own, http.MethodGet, logged, nil, &list)
			for _, r := range list.Requests {
				if r.Path == path && r.Method == method && r.Outcome == "Accepted" {
					return true
				}
			}
			return false
		})
	}
	if _, refusal := a.use("recall", map[string]any{"query": "tea"}, nil); !strings.HasPrefix(refusal, "identity-required: ") {
		t.Errorf("without an identity: %q", refusal)
	}
}
