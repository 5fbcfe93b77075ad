package server

import (
	"github.com/annals-project/annals/console/pages/projects"
	"github.com/annals-project/annals/console/pages/trace"
	"github.com/annals-project/annals/console/pages/usage"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/internal/requestlog"
)

// areas are the pages of the console.
func (s *Server) areas() []web.Area {
	reads := s.readRoutes()
	return []web.Area{
		projects.Area(projects.Deps{Access: s.read.access}),
		trace.Area(trace.Deps{Calls: reads.Requests, Explain: reads.Explain, Trace: reads.Trace}),
		usage.Area(usage.Deps{Accounts: reads.Usage, Costs: &requestlog.Log{DB: s.storage.db}}),
	}
}
