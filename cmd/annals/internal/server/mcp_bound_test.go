package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/annals-project/annals/internal/runtest"
)

// neighbours makes two identities with an audience each, of them alone.
func (h *harness) neighbours(key string, names ...string) {
	h.t.Helper()
	for _, name := range names {
		h.must(key, http.MethodPut, api+"/identities/"+name, map[string]any{"traits": map[string]string{}}, nil)
		h.must(key, http.MethodPut, api+"/audiences/of-"+name,
			map[string]any{"kind": "fixed", "identities": []string{name}}, nil)
	}
}

// A connection that is bound to an identity acts as that one alone: the argument is gone, and what another wrote for
// herself is as if it were not there.
func TestMCP_Bound(t *testing.T) {
	t.Parallel()
	h := newTenant(t)
	key, _ := h.keys()
	h.neighbours(key, "ana", "ben")
	ana, ben := h.boundAgent("/mcp", key, "ana"), h.boundAgent("/mcp", key, "ben")
	type args = map[string]any
	var receipt struct{ IngestionID, SourceID string }
	budget := args{"content": "The budget is 40,000 euros.", "id": "budget", "audience": "me"}
	if text := ana.must("remember", budget, &receipt); !strings.Contains(text, "you alone; members with Read see it in the console") {
		t.Errorf("ana remembers: %s", text)
	}
	h.await(key, receipt.IngestionID, "completed")
	if text := ana.must("recall", args{"query": "budget"}, nil); !strings.Contains(text, "ana: The budget is 40,000 euros. [budget]") {
		t.Errorf("ana recalls %s", text)
	}
	if text := ana.must("read", args{"sourceId": "budget"}, nil); !strings.Contains(text, "> The budget is 40,000 euros.") {
		t.Errorf("ana reads %s", text)
	}
	h.unboundArguments(ben)
	h.hidden(ben, receipt.IngestionID)
	h.keepsAudience(key, ana, ben)
	// The other paths, and headers that bind nobody.
	for _, c := range []struct {
		path, identity string
		status         int
	}{
		{"/mcp/operator", "ben", 403},
		{"/mcp", "", 400},
		{"/mcp", " ", 400},
		{"/mcp", strings.Repeat("b", 2000), 400},
		{"/mcp", "\xff", 400},
		{"/mcp/read", "ben", 200},
	} {
		status, _, body := h.postTo(c.path, key, initialize("2025-11-25"), "X-Service-Identity", c.identity)
		if status != c.status || status == 403 && !strings.Contains(body, `"identity-bound"`) {
			t.Errorf("%s as %.10q: %d %s", c.path, c.identity, status, body)
		}
	}
	if names := h.boundAgent("/mcp/read", key, "ben").tools(); len(names) != 2 {
		t.Errorf("/mcp/read lists %q", names)
	}
}

// unboundArguments checks that no tool of a bound connection has the argument identity.
func (h *harness) unboundArguments(a agent) {
	h.t.Helper()
	for tool, err := range a.Tools(h.t.Context(), nil) {
		runtest.Must(h.t, err)
		if _, has := tool.InputSchema.(map[string]any)["properties"].(map[string]any)["identity"]; has {
			h.t.Errorf("%s has the argument identity", tool.Name)
		}
	}
	for tool, args := range map[string]map[string]any{
		"recall": {"query": "budget"}, "read": {"sourceId": "budget"}, "remember": {"content": "x"},
	} {
		args["identity"] = "ana"
		if _, refusal := a.use(tool, args, nil); !strings.Contains(refusal, `has no argument "identity"`) {
			h.t.Errorf("%s as another: %q", tool, refusal)
		}
	}
	for _, tool := range []string{"whoami", "get_node", "search_memory_trace", "list_audiences"} {
		_, err := a.CallTool(h.t.Context(), &sdk.CallToolParams{Name: tool, Arguments: map[string]any{}})
		if err == nil || !strings.Contains(err.Error(), "unknown tool") {
			h.t.Errorf("%s: %v", tool, err)
		}
	}
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

// keepsAudience checks that a text that is sent again without an audience stays where it is.
func (h *harness) keepsAudience(key string, ana, ben agent) {
	h.t.Helper()
	type args = map[string]any
	var receipt struct{ IngestionID string }
	ana.must("remember", args{"content": "The budget is 50,000 euros.", "id": "budget"}, &receipt)
	h.await(key, receipt.IngestionID, "completed")
	if text := ana.must("recall", args{"query": "budget"}, nil); !strings.Contains(text, "50,000") {
		h.t.Errorf("ana recalls %s", text)
	}
	if text := ben.must("recall", args{"query": "budget"}, nil); strings.Contains(text, "000 euros") {
		h.t.Errorf("a text that was sent again is published: %s", text)
	}
	ana.must("forget", args{"sourceId": "budget"}, nil)
	_, deleted := ben.use("remember", args{"content": "Mine.", "id": "budget"}, nil)
	if !strings.HasPrefix(deleted, "id-taken: ") {
		h.t.Errorf("ben sends an id that was deleted: %q", deleted)
	}
}

// What a model remembers without an id gets a short one, which a repeat and nobody else finds; forget reports what it
// ended and what not.
func TestMCP_RememberAndForget(t *testing.T) {
	t.Parallel()
	h := newTenant(t)
	key, _ := h.keys()
	ana, ben := h.boundAgent("/mcp", key, "ana"), h.boundAgent("/mcp", key, "ben")
	type args = map[string]any
	type receipt struct {
		IngestionID, SourceID string
		Unchanged             *bool
	}
	remember := func(a agent, args args) (r receipt) {
		a.must("remember", args, &r)
		h.await(key, r.IngestionID, "completed")
		return r
	}
	tea := args{"content": "The tea is in the blue tin."}
	first, again, other := remember(ana, tea), remember(ana, tea), remember(ben, tea)
	if n := len(first.SourceID); n == 0 || n > 12 || again.SourceID != first.SourceID || again.Unchanged == nil ||
		other.SourceID == first.SourceID {
		t.Errorf("ana %+v, again %+v, ben %+v", first, again, other)
	}
	want := fmt.Sprintf("deleted 0 of 1: %s was brought by another send", first.SourceID)
	if text := ana.must("forget", args{"ingestionId": again.IngestionID}, nil); !strings.HasPrefix(text, want) {
		t.Errorf("forget of what changed nothing: %s", text)
	}
	if text := ana.must("read", args{"sourceId": first.SourceID}, nil); !strings.Contains(text, "blue tin") {
		t.Errorf("it is gone: %s", text)
	}
	var ended struct{ Deleted []string }
	ana.must("forget", args{"ingestionId": first.IngestionID}, &ended)
	if len(ended.Deleted) != 1 || ended.Deleted[0] != first.SourceID {
		t.Errorf("%+v", ended)
	}
	if _, refusal := ana.use("read", args{"sourceId": first.SourceID}, nil); !strings.HasPrefix(refusal, "data-point-not-found") {
		t.Errorf("a forgotten text: %q", refusal)
	}
	if back := remember(ana, tea); back.SourceID == first.SourceID {
		t.Errorf("a deleted id is used again: %+v", back)
	}
	if text := ben.must("forget", args{"sourceId": other.SourceID}, nil); !strings.HasPrefix(text, "deleted 1 of 1: ") {
		t.Errorf("%s", text)
	}
	if text := h.boundAgent("/mcp/read", key, "cyd").must("recall", args{"query": " * "}, nil); !strings.Contains(text, "newest") ||
		!strings.Contains(text, "blue tin") {
		t.Errorf("the newest: %s", text)
	}
	for _, c := range []args{{}, {"sourceId": "a", "ingestionId": first.IngestionID}, {"ingestionId": "note-1"}} {
		if _, refusal := ana.use("forget", c, nil); refusal == "" {
			t.Errorf("%v is forgotten", c)
		}
	}
}
