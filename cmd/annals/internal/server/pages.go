package server

import (
	"github.com/annals-project/annals/console/pages/datapoints"
	"github.com/annals-project/annals/console/pages/projects"
	"github.com/annals-project/annals/console/web"
	points "github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/find"
)

// areas are the pages of the console.
func (s *Server) areas() []web.Area {
	return []web.Area{
		projects.Area(projects.Deps{
			APIURL: s.urls.API, Accounts: s.accounts(), Keys: s.read.access, Uses: s.requestLog(), Sends: s.read.dataPoints,
			Calls: s.calls(), Projections: s.health.projections, Commands: s.write.service, Sessions: s.signin,
		}),
		s.pointPages(),
	}
}

// pointPages are the pages of data points.
func (s *Server) pointPages() web.Area {
	read := s.read
	deps := datapoints.Deps{
		Commands: s.write.service, Points: read.dataPoints, Trace: s.trace(), Explain: s.explain(),
		Find:    find.Queries{DB: s.storage.db, Head: s.head(), Calls: s.requestLog()},
		Stopped: points.StoppedSends{Queries: read.dataPoints, Projects: read.access},
		Rooms:   s.accounts(), Export: s.export(),
	}
	return datapoints.Area(deps)
}
