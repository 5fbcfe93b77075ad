package docs_test

import (
	"strings"
	"testing"

	annals "github.com/annals-project/annals"
	"github.com/annals-project/annals/console/docs"
	"github.com/annals-project/annals/internal/runtest"
)

// Each client has a snippet with the address and the key of a deployment, bound to an identity.
func TestSnippets(t *testing.T) {
	const console, key = "https://memory.example", "svc_sk_0123456789"
	list, err := docs.Snippets(annals.Pages, console, key)
	runtest.Must(t, err)
	var names []string
	for _, s := range list {
		names = append(names, s.Client)
		if !strings.Contains(s.Text, key) || !strings.Contains(s.Text, console) || !strings.Contains(s.Text, "ana") ||
			strings.Contains(s.Text, "127.0.0.1") || strings.Contains(s.Text, "…") {
			t.Errorf("%s: %s", s.Client, s.Text)
		}
	}
	want := "Claude Code, Claude Desktop, Cursor, VS Code, Codex, LangGraph, openai-agents, pydantic-ai"
	if got := strings.Join(names, ", "); got != want {
		t.Errorf("%s", got)
	}
}
