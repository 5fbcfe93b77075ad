package mcp

import (
	"net/http"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/runtest"
)

// An id leads to the route of its tool or nowhere, whatever it is, and an id that may be reaches its route unchanged.
func TestIDs(t *testing.T) {
	got := ""
	var parameter string
	f := newFixed(t, func(c echo.Context) (err error) {
		if parameter != "" {
			got, err = httpx.PathParam(c, parameter)
			runtest.Must(t, err)
		}
		return c.Blob(http.StatusOK, "application/json", []byte(`{}`))
	})
	const id = "01890a5d-ac96-774b-bcce-b302099a8057"
	words := []string{
		"", ".", "..", "/", "%2f", "%2F..", "../projects", "a/../b", "..%2f", "?x=1", "a?project=other", "#", "a b", "\\", "é",
		"a\x00b", strings.Repeat("x", maxID), strings.Repeat("x", maxID+1), id, strings.ToUpper(id), "{" + id + "}",
		strings.ReplaceAll(id, "-", ""), id + "/retry", "01890a5d-ac96-774b-bcce-b302099a805/",
	}
	for _, r := range auth.Routes() { // the words of all routes
		words = append(words, strings.Split(strings.TrimPrefix(r.Path, "/"), "/")...)
	}
	tested := 0
	for name, tool := range f.tools[auth.MCPOperatorPath] {
		if tool.route == "" || tool.own != nil || tool.act != nil {
			continue
		}
		op, err := f.contract.operation(tool.route)
		runtest.Must(t, err)
		args := map[string]any{"identity": "ana"}
		var path argument
		for _, a := range tool.args {
			if a.required {
				args[a.name] = map[string]any{}
			}
			if op.fields[a.field()].in == inPath {
				path = a
			}
		}
		if path.name == "" {
			continue
		}
		if !strings.HasPrefix(name, "get_id") && !strings.HasPrefix(name, "set_id") {
			delete(args, "identity")
		}
		tested++
		parameter = path.field()
		for _, word := range words {
			f.called, got, args[path.name] = nil, "", word
			r, done := f.call(t.Context(), name, args)
			done()
			isUUID := len(word) == len(id) && strings.EqualFold(word, id)
			free := parameter == "identity"
			may := isUUID || free && word != "" && !strings.Contains(word, "\x00") && len(word) <= maxID
			text := r.Content[0].(*sdk.TextContent).Text
			switch {
			case may && (r.IsError || got != word || len(f.called) != 1 || f.called[0] != op.method+" "+op.route()):
				t.Errorf("%s of %.60q: %s reached %q with %q", name, word, text, f.called, got)
			case !may && (!r.IsError || len(f.called) > 0):
				t.Errorf("%s of %.60q: %s reached %q", name, word, text, f.called)
			}
		}
	}
	if tested < 9 {
		t.Errorf("%d tools with an id in a path", tested)
	}
}
