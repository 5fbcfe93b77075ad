// Package mcpguard keeps what callers of a server of the Model Context Protocol send from harming the process.
package mcpguard

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"

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

// stateless is the first version in which an unknown method is a 404.
const stateless = "2026-07-28"

// calls are the methods that the SDK serves, and notifications those without an answer. What is not in them the SDK
// refuses with a text, which clients take for a server that is broken.
var (
	calls = []string{
		"initialize", "ping", "server/discover", "subscriptions/listen", "tools/list", "tools/call", "prompts/list",
		"prompts/get", "resources/list", "resources/templates/list", "resources/read", "resources/subscribe",
		"resources/unsubscribe", "completion/complete", "logging/setLevel",
	}
	notifications = []string{
		"notifications/initialized", "notifications/cancelled", "notifications/progress", "notifications/roots/list_changed",
	}
	// parametrised are the calls that mean nothing without parameters.
	parametrised = []string{
		"initialize", "tools/call", "prompts/get", "resources/read", "resources/subscribe", "resources/unsubscribe",
		"completion/complete", "logging/setLevel",
	}
)

// Handler answers the messages that a server cannot take as JSON-RPC 2.0 wants it, and leaves the others to next. The
// body of a request is bounded by the caller.
func Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			next.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, "the body cannot be read", http.StatusBadRequest)
			return
		}
		if refused := Check(body, r.Header.Get("MCP-Protocol-Version")); refused != nil {
			refused.write(w)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}

// Refusal is the answer to a message that cannot be taken.
type Refusal struct {
	// Status is that of HTTP. Without a Code the message is a notification, which has no answer.
	Status, Code int
	Message      string
	// ID is that of the message, null if it has none that can be repeated.
	ID json.RawMessage
}

// Body is the answer in JSON, without an end of line; nil for a notification.
func (r Refusal) Body() []byte {
	if r.Code == 0 {
		return nil
	}
	id := "null"
	if r.ID != nil {
		id = string(r.ID)
	}
	return []byte(`{"jsonrpc":"2.0","id":` + id + `,"error":{"code":` + strconv.Itoa(r.Code) + `,"message":` +
		strconv.Quote(r.Message) + `}}`)
}

func (r Refusal) write(w http.ResponseWriter) {
	body := r.Body()
	if body != nil {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(r.Status)
	_, _ = w.Write(body) // a client that left reads no more
}

// id is what identifies a call: a text, or an integer below 2^53, which every client reads.
var id = regexp.MustCompile(`^(0|-?[1-9][0-9]{0,15})$`)

func isID(v json.RawMessage) bool {
	if bytes.HasPrefix(v, []byte(`"`)) {
		return true
	}
	n, err := strconv.ParseInt(string(v), 10, 64)
	const exact = 1 << 53
	return id.Match(v) && err == nil && n > -exact && n < exact
}

// Check returns the answer to a message that a server cannot take, nil for one that it can.
func Check(body []byte, version string) *Refusal {
	var m map[string]json.RawMessage
	switch body = bytes.TrimSpace(body); {
	case !json.Valid(body):
		return &Refusal{http.StatusBadRequest, jsonrpc.CodeParseError, "the message is no JSON", nil}
	case json.Unmarshal(body, &m) != nil || m == nil:
		return &Refusal{http.StatusBadRequest, jsonrpc.CodeInvalidRequest, "send one message at a time, an object", nil}
	}
	named, isCall := m["id"]
	_, result := m["result"]
	_, failed := m["error"]
	var method string
	switch {
	case isCall && !isID(named):
		return &Refusal{
			http.StatusBadRequest, jsonrpc.CodeInvalidRequest, "id is a text, or an integer below 2^53", nil,
		}
	case string(m["jsonrpc"]) != `"2.0"`:
		return &Refusal{http.StatusBadRequest, jsonrpc.CodeInvalidRequest, "jsonrpc is \"2.0\"", named}
	case m["method"] == nil && (result || failed):
		return nil // an answer of the client
	case json.Unmarshal(m["method"], &method) != nil || method == "":
		return &Refusal{http.StatusBadRequest, jsonrpc.CodeInvalidRequest, "method is a text", named}
	case !isCall && !slices.Contains(notifications, method):
		return &Refusal{Status: http.StatusAccepted}
	case isCall && !slices.Contains(calls, method):
		status := http.StatusOK
		if version >= stateless {
			status = http.StatusNotFound
		}
		return &Refusal{status, jsonrpc.CodeMethodNotFound, "there is no such method", named}
	case isCall:
		return checkParams(m["params"], method, named)
	}
	return nil
}

// checkParams returns the answer to a call whose parameters are missing or no object.
func checkParams(params json.RawMessage, method string, id json.RawMessage) *Refusal {
	missing := params == nil || string(params) == "null"
	if missing && slices.Contains(parametrised, method) || !missing && !bytes.HasPrefix(params, []byte("{")) {
		return &Refusal{http.StatusOK, jsonrpc.CodeInvalidParams, "params is an object", id}
	}
	return nil
}
