package mcpguard_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
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
