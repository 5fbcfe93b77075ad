package mcpguard_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/annals-project/annals/internal/mcpguard"
	"github.com/annals-project/annals/internal/runtest"
)

// A tool that panics fails its call alone, and no cursor reaches the SDK. Without the guard a panic ends the process.
func TestNew_APanicFailsItsCallAlone(t *testing.T) {
	t.Parallel()
	var logged strings.Builder
	server := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	server.AddReceivingMiddleware(mcpguard.New(slog.New(slog.NewTextHandler(&logged, nil))))
	for name, value := range map[string]any{"panics": "out of range", "aborts": http.ErrAbortHandler} {
		mcp.AddTool(server, &mcp.Tool{Name: name},
			func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) { panic(value) })
	}
	ours, theirs := mcp.NewInMemoryTransports()
	serving, err := server.Connect(t.Context(), ours, nil)
	runtest.Must(t, err)
	session, err := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1"}, nil).Connect(t.Context(), theirs, nil)
	runtest.Must(t, err)
	for _, name := range []string{"panics", "aborts"} {
		_, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: name})
		if err == nil || !strings.Contains(err.Error(), "the request failed") || strings.Contains(err.Error(), "range") {
			t.Errorf("%s is answered %v", name, err)
		}
	}
	if _, err := session.ListTools(t.Context(), &mcp.ListToolsParams{Cursor: "AAAA"}); err == nil ||
		!strings.Contains(err.Error(), "no other page") {
		t.Errorf("a cursor is answered %v", err)
	}
	if list, err := session.ListTools(t.Context(), nil); err != nil || len(list.Tools) != 2 {
		t.Errorf("after that: %v, %v", list, err)
	}
	runtest.Must(t, session.Close())
	_ = serving.Wait() // the client ended it
	if !strings.Contains(logged.String(), "out of range") || !strings.Contains(logged.String(), "guard_test.go") {
		t.Errorf("the panic is not logged with its stack: %s", logged.String())
	}
}

// Nothing is done for a caller that has left.
func TestNew_CallerLeft(t *testing.T) {
	t.Parallel()
	ctx, leave := context.WithCancel(t.Context())
	calls := 0
	guarded := mcpguard.New(runtest.Warnings(t))(func(context.Context, string, mcp.Request) (mcp.Result, error) {
		calls++
		return &mcp.CallToolResult{}, nil
	})
	call := &mcp.ServerRequest[*mcp.CallToolParamsRaw]{Params: &mcp.CallToolParamsRaw{}}
	_, here := guarded(ctx, "tools/call", call)
	leave()
	_, left := guarded(ctx, "tools/call", call)
	if here != nil || !errors.Is(left, context.Canceled) || calls != 1 {
		t.Errorf("%v, then %v after %d calls", here, left, calls)
	}
}

// Messages that a server cannot take are answered as JSON-RPC 2.0 has it, in each era; the others reach the server.
func TestHandler(t *testing.T) {
	const passed = "passed on"
	h := mcpguard.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(passed))
	}))
	call := func(id, method string) string { return `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `"}` }
	for _, c := range []struct {
		name, body string
		status     int
		want       string
	}{
		{"a method that there is", call("1", "tools/list"), 200, passed},
		{"a text as id", call(`"x"`, "ping"), 200, passed},
		{"the largest id", call("9007199254740991", "ping"), 200, passed},
		{"the least id", call("-9007199254740991", "ping"), 200, passed},
		{"a notification that there is", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, 200, passed},
		{"an answer of the client", `{"jsonrpc":"2.0","id":1,"result":{}}`, 200, passed},
		{"an unknown method", call("7", "no/such"), 200, `{"jsonrpc":"2.0","id":7,"error":{"code":-32601,`},
		{"a method of the other side", call(`"r"`, "roots/list"), 200, `{"jsonrpc":"2.0","id":"r","error":{"code":-32601,`},
		{"a method of later", call("3", "tasks/list"), 200, `{"jsonrpc":"2.0","id":3,"error":{"code":-32601,`},
		{"an unknown notification", `{"jsonrpc":"2.0","method":"notifications/tea"}`, 202, ""},
		{"a call without an id", `{"jsonrpc":"2.0","method":"tools/list"}`, 202, ""},
		{"a fraction as id", call("1.5", "ping"), 400, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,`},
		{"an exponent as id", call("1e3", "ping"), 400, `"code":-32600`},
		{"null as id", call("null", "ping"), 400, `"code":-32600`},
		{"true as id", call("true", "no/such"), 400, `"code":-32600`},
		{"an object as id", call("{}", "ping"), 400, `"code":-32600`},
		{"2^53 as id", call("9007199254740992", "ping"), 400, `"code":-32600`},
		{"minus 2^53 as id", call("-9007199254740992", "ping"), 400, `"code":-32600`},
		{"a huge id", call("1"+strings.Repeat("0", 400), "ping"), 400, `"code":-32600`},
		{"another version of JSON-RPC", `{"jsonrpc":"1.0","id":1,"method":"ping"}`, 400, `"code":-32600`},
		{"no method", `{"jsonrpc":"2.0","id":1}`, 400, `"id":1,"error":{"code":-32600`},
		{"a number as method", `{"jsonrpc":"2.0","id":1,"method":5}`, 400, `"code":-32600`},
		{"a list", `[` + call("1", "ping") + `]`, 400, `"code":-32600`},
		{"no JSON", `{"jsonrpc":`, 400, `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,`},
		{"nothing", ``, 400, `"code":-32700`},
		{"no parameters", call("1", "tools/call"), 200, `"code":-32602`},
		{"a list of parameters", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":[]}`, 200, `"code":-32602`},
	} {
		for _, version := range []string{"", "2025-06-18", "2025-11-25", "2026-07-28"} {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", strings.NewReader(c.body))
			r.Header.Set("MCP-Protocol-Version", version)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			status := c.status
			if version == "2026-07-28" && strings.Contains(c.want, "-32601") {
				status = http.StatusNotFound
			}
			if w.Code != status || !strings.Contains(w.Body.String(), c.want) || c.want == "" && w.Body.Len() > 0 {
				t.Errorf("%s in %q: %d %s", c.name, version, w.Code, w.Body)
			}
			if w.Body.Len() > 0 && w.Body.String() != passed && w.Header().Get("Content-Type") != "application/json" {
				t.Errorf("%s: %v", c.name, w.Header())
			}
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/mcp", nil))
	if w.Body.String() != passed {
		t.Errorf("a GET: %s", w.Body)
	}
}
