package server

import (
	"github.com/annals-project/annals/console/pages/account"
	"github.com/annals-project/annals/console/pages/projects"
	"github.com/annals-project/annals/console/web"
)

// areas are the pages of the console.
func (s *Server) areas() []web.Area {
	return []web.Area{
		account.Area(account.Deps{
			SignIn: s.signin, Commands: s.write.service, Mail: s.cfg.SignIn.Mail, URL: s.urls.Console,
			SignUp: s.cfg.SignIn.SignUp, Logger: s.cfg.Logger,
		}),
		projects.Area(projects.Deps{Access: s.read.access}),
	}
}
