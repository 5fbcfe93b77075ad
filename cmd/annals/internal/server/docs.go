package server

import (
	"github.com/annals-project/annals"
	"github.com/annals-project/annals/console/docs"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/internal/authmd"
	"github.com/annals-project/annals/readapi"
)

// snippets configure clients of MCP with a key.
func (s *Server) snippets(key string) ([]docs.Snippet, error) {
	return docs.Snippets(annals.Pages, s.urls.Console, key)
}

// docsPages are the documentation.
func (s *Server) docsPages() web.Area {
	more := func() ([]docs.Page, error) {
		text, err := authmd.Render(s.urls)
		return []docs.Page{{
			ID: "auth", Title: "Register as an agent", Group: "For agents", Summary: "how an agent gets a token of its own",
			Text: string(text), File: "auth.md",
		}}, err
	}
	return docs.Area(docs.Config{
		Files: annals.Pages, OpenAPI: readapi.OpenAPI, More: more, URLs: s.urls, Logger: s.cfg.Logger,
		Now: s.cfg.now,
	})
}
