package server

import (
	"github.com/annals-project/annals/console/pages/projects"
	"github.com/annals-project/annals/console/pages/trace"
	"github.com/annals-project/annals/console/pages/usage"
	"github.com/annals-project/annals/console/web"
)

// areas are the pages of the console.
func (s *Server) areas() []web.Area {
	reads := s.readRoutes()
	return []web.Area{
		projects.Area(projects.Deps{
			APIURL: s.urls.API, Accounts: s.accounts(), Keys: s.read.access, Uses: s.requestLog(), Sends: s.read.dataPoints,
			Calls: s.calls(), Projections: s.health.projections, Commands: s.write.service, Sessions: s.signin,
		}),
		trace.Area(trace.Deps{Calls: s.calls(), Explain: reads.Explain, Trace: reads.Trace}),
		usage.Area(usage.Deps{Accounts: s.accounts(), Costs: s.requestLog()}),
	}
}
