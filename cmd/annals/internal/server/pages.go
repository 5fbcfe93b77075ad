package server

import (
	"github.com/annals-project/annals/console/pages/projects"
	"github.com/annals-project/annals/console/pages/webhooks"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/internal/requestlog"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/calls"
	"github.com/annals-project/annals/projections/datapoints"
)

// areas are the pages of the console.
func (s *Server) areas() []web.Area {
	cfg, read := s.cfg, s.read
	logged := calls.Queries{
		Log: &requestlog.Log{DB: s.storage.db, FailedSends: datapoints.FailedSendIDs}, Sends: read.dataPoints,
		PlanTerms: cfg.PlanTerms,
	}
	return []web.Area{
		webhooks.Area(webhooks.Deps{
			Commands: s.write.service, Webhooks: read.access, URLs: access.Webhooks{Vault: s.write.vault, URLs: s.urls},
			Audiences: read.directory, Calls: logged, API: s.inner, Plans: cfg.PlanTerms,
		}),
		projects.Area(projects.Deps{Access: s.read.access}),
	}
}
