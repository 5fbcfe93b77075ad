package docs

import (
	"slices"
	"strings"
	"testing"

	annals "github.com/annals-project/annals"
	"github.com/annals-project/annals/internal/runtest"
)

// Questions as people and models ask them find a page that answers them among the first three results.
func TestIndex_Questions(t *testing.T) {
	t.Parallel()
	l, err := newLibrary(annals.Pages, "https://memory.example")
	runtest.Must(t, err)
	for question, pages := range map[string]string{
		"delete a text": "concepts api mcp", "forget what a user said": "api mcp concepts", "change the port": "settings",
		"prometheus scrape config":     "metrics start runbook#alerts",
		"how do I connect Claude Code": "mcp-clients", "cursor mcp json": "mcp-clients", "bind an identity": "mcp",
		"which tools does an assistant get": "mcp", "private texts for one person": "concepts", "how to back up": "runbook",
		"restore a backup": "stores runbook", "upgrade to a new version": "runbook", "rate limit": "settings limits",
		"erase all data of a person": "erase-a-person", "429 too many requests": "integrate", "rotate a key": "oauth",
		"import slack messages": "estimate", "import whatsapp chat": "estimate", "webhook from github": "webhooks",
		"webhook signature": "webhooks", "semantic search with embeddings": "embeddings",
		"use my own embedding endpoint": "embeddings", "why is a text not found": "how-recall-ranks",
		"explain a recall": "debugging", "how are results ranked": "how-recall-ranks", "run on kubernetes": "deploy",
		"docker compose": "deploy", "postgres permissions": "stores", "behind a reverse proxy": "console",
		"single sign-on oidc": "settings console", "second factor": "console", "invite a member": "console",
		"list of metrics": "metrics", "alert runbook": "runbook", "export a project": "import-export", "oauth scopes": "oauth",
		"register an agent": "agents", "exit codes of commands": "scripts commands", "idempotency key": "integrate",
		"what is an audience": "concepts",
	} {
		var found []string
		for _, f := range l.index().search(question, 3) {
			found = append(found, f.id())
		}
		if !slices.ContainsFunc(strings.Fields(pages), func(page string) bool {
			return slices.ContainsFunc(found, func(id string) bool {
				return id == page || strings.HasPrefix(id, page+"#")
			})
		}) {
			t.Errorf("%q finds %q, none of %s", question, found, pages)
		}
	}
}
