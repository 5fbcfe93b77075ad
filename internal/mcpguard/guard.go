// Package mcpguard keeps what callers of a server of the Model Context Protocol send from harming the process.
package mcpguard

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// New returns the middleware that every server needs. It turns a panic into an error, http.ErrAbortHandler too: the SDK
// handles requests in goroutines of its own, where net/http recovers nothing. It refuses cursors, which the SDK would
// decode: the lists of our servers have one page. For a caller that has left nothing is done.
func New(logger *slog.Logger) mcp.Middleware {
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, r mcp.Request) (result mcp.Result, err error) {
			defer func() {
				if v := recover(); v != nil {
					logger.ErrorContext(ctx, "panic while serving a request", "method", method, "panic", fmt.Sprint(v),
						"stack", string(debug.Stack()))
					result, err = nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the request failed"}
				}
			}()
			if err := ctx.Err(); err != nil {
				return nil, err // the caller has left
			}
			if cursorOf(r) != "" {
				return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "this list has no other page"}
			}
			return next(ctx, method, r)
		}
	}
}

func cursorOf(r mcp.Request) string {
	switch p := r.GetParams().(type) {
	case *mcp.ListToolsParams:
		if p != nil {
			return p.Cursor
		}
	case *mcp.ListResourcesParams:
		if p != nil {
			return p.Cursor
		}
	case *mcp.ListResourceTemplatesParams:
		if p != nil {
			return p.Cursor
		}
	case *mcp.ListPromptsParams:
		if p != nil {
			return p.Cursor
		}
	}
	return ""
}
