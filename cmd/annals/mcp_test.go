package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/runtest"
)

// A client that knows no HTTP remembers and recalls through the program.
func TestMCP_Bridge(t *testing.T) {
	dir, _ := startServe(t, "--postgres", pgtest.URL(t))
	bridge := program(t, "mcp", "--data-dir", dir)
	bridge.Stderr = os.Stderr
	client := mcp.NewClient(&mcp.Implementation{Name: "local", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &mcp.CommandTransport{Command: bridge}, nil)
	runtest.Must(t, err)
	if v := session.InitializeResult().ProtocolVersion; v != "2026-07-28" {
		t.Errorf("the client speaks %s", v)
	}
	tools, err := session.ListTools(t.Context(), nil)
	if err != nil || len(tools.Tools) != 5 {
		t.Errorf("%d tools, %v", len(tools.Tools), err)
	}
	remembered, err := session.CallTool(t.Context(), &mcp.CallToolParams{
		Name: "remember", Arguments: map[string]any{"content": "The tea is in the blue tin.", "identity": "ana"},
	})
	if err != nil || remembered.IsError {
		t.Fatalf("%+v, %v", remembered, err)
	}
	runtest.Await(t, "recall finds it", func() bool {
		found, err := session.CallTool(t.Context(), &mcp.CallToolParams{
			Name: "recall", Arguments: map[string]any{"query": "tea", "identity": "ana"},
		})
		runtest.Must(t, err)
		return strings.Contains(found.Content[0].(*mcp.TextContent).Text, ", ana: The tea is in the blue tin.")
	})
	runtest.Must(t, session.Close()) // the program ends when its input does
}

// Messages of a client before 2026-07-28 carry the version that was agreed on. What the service refuses, and one that
// is away, is an answer.
func TestMCP_BridgeOfAnOldClient(t *testing.T) {
	var versions []string
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			ID     any
			Method string
		}
		runtest.Must(t, json.NewDecoder(r.Body).Decode(&m))
		versions = append(versions, m.Method+" "+r.Header.Get("MCP-Protocol-Version"))
		switch {
		case r.Header.Get("Authorization") != "Bearer svc_sk_1":
			t.Errorf("header %v", r.Header)
		case m.ID == nil:
			w.WriteHeader(http.StatusAccepted)
		case m.Method == "initialize":
			_, _ = w.Write([]byte(`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25"}}`))
		default:
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write([]byte(`{"code":"unauthorized","status":401,"debugMessage":"the key is unknown","data":{}}`))
		}
	}))
	const initialized = `{"jsonrpc":"2.0","id":1,"method":"initialize"}` + "\n" +
		`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n\n"
	const list = `{"jsonrpc":"2.0","id":"two","method":"tools/list"}` + "\n"
	env := map[string]string{
		"ANNALS_CONSOLE_URL": service.URL, "ANNALS_PROJECT_KEY": "svc_sk_1", "ANNALS_DATA_DIR": t.TempDir(),
	}
	got := annals(context.WithoutCancel(t.Context()), env, initialized+list, "mcp")
	if got.code != exitOK || !strings.Contains(got.stdout, `"2025-11-25"`) || strings.Count(got.stdout, "\n") != 2 ||
		!strings.Contains(got.stdout, `"id":"two"`) || !strings.Contains(got.stdout, "unauthorized: the key is unknown") {
		t.Errorf("%+v", got)
	}
	want := "initialize ,notifications/initialized 2025-11-25,tools/list 2025-11-25"
	if got := strings.Join(versions, ","); got != want {
		t.Errorf("the service sees %s", got)
	}
	service.Close()
	annals(t.Context(), env, list, "mcp").wants(t, exitOK, "cannot be reached")
	if got := annals(t.Context(), env, list, "mcp", "--identity", " "); got.code == exitOK || got.stdout != "" {
		t.Errorf("bound to nobody: %+v", got)
	}
	if got := annals(t.Context(), map[string]string{"ANNALS_DATA_DIR": t.TempDir()}, "", "mcp"); got.code == exitOK {
		t.Errorf("without a key: %+v", got)
	}
}
