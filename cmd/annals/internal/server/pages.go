package server

import (
	"github.com/annals-project/annals/console/pages/directory"
	"github.com/annals-project/annals/console/pages/projects"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/projections/explain"
)

// areas are the pages of the console.
func (s *Server) areas() []web.Area {
	return []web.Area{
		projects.Area(projects.Deps{Access: s.read.access}),
		directory.Area(directory.Deps{
			Directory: s.read.directory, Commands: s.write.service, Points: s.read.dataPoints,
			Access: explain.Access{Points: s.read.dataPoints, Directory: s.read.directory, Now: s.cfg.now},
		}),
	}
}
