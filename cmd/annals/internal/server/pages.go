package server

import (
	"github.com/annals-project/annals/console/pages/account"
	"github.com/annals-project/annals/console/pages/projects"
	"github.com/annals-project/annals/console/web"
)

// areas are the pages of the console.
func (s *Server) areas() []web.Area {
	return []web.Area{
		projects.Area(projects.Deps{
			APIURL: s.urls.API, Accounts: s.accounts(), Keys: s.read.access, Uses: s.requestLog(), Sends: s.read.dataPoints,
			Calls: s.calls(), Projections: s.health.projections, Commands: s.write.service, Sessions: s.signin,
		}),
		account.Area(account.Deps{
			SignIn: s.signin, Commands: s.write.service, Mail: s.cfg.SignIn.Mail, URL: s.urls.Console,
			SignUp: s.cfg.SignIn.SignUp, Logger: s.cfg.Logger,
		}),
	}
}
