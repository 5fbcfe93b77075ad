package server

import (
	"context"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/projections/runner"
)

// buildPages makes the pages of the console. Its areas are in pages.go.
func buildPages(ctx context.Context, s *Server) (adds, error) {
	log, err := runner.LogIDOf(s.storage.store, s.storage.codec)(ctx)
	if err != nil {
		return adds{}, err
	}
	if s.tools, err = s.newMCP(); err != nil {
		return adds{}, err
	}
	s.site, err = web.New(web.Config{
		URL: s.urls.Console, Sessions: s.signin, Access: s.read.access,
		Cookies: web.NewCookies(s.urls.Console, log), Instance: s.cfg.Instance, Proxies: s.cfg.Proxies,
		Forms: s.forms(), Answers: s.inner.Answers, Reads: s.reads, Admit: s.health.admission.admit,
		Visited: s.visits.Add, Logger: s.cfg.Logger, Now: s.cfg.now,
	}, append(s.areas(), s.docsPages(), s.tools.Area()))
	return adds{}, err
}

// buildConsole serves the console's address: the pages of the parts before it, and the events of webhooks.
func buildConsole(_ context.Context, s *Server) (adds, error) {
	console := httpx.NewConsole(httpx.Config{Log: s.cfg.Logger, URLs: s.urls})
	for _, a := range s.added {
		for path, page := range a.pages {
			console.Handle(path, page)
		}
	}
	console.HandleSite(s.site.Serve)
	serve := s.web.serve(s.listeners.console, withWebhooks(s.api, console))
	return adds{edge: []task{{"console", serve}}}, nil
}
