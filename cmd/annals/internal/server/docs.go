package server

import (
	"github.com/annals-project/annals"
	"github.com/annals-project/annals/console/docs"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/readapi"
)

// docsPages are the documentation.
func (s *Server) docsPages() web.Area {
	return docs.Area(docs.Config{Files: annals.Pages, OpenAPI: readapi.OpenAPI, URLs: s.urls, Now: s.cfg.now})
}
