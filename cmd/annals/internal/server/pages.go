package server

import (
	"github.com/annals-project/annals/console/pages/projects"
	"github.com/annals-project/annals/console/web"
)

// areas are the pages of the console.
func (s *Server) areas() []web.Area {
	return []web.Area{
		projects.Area(projects.Deps{Access: s.read.access}),
	}
}
