package server

import (
	"github.com/annals-project/annals/console/pages/projects"
	"github.com/annals-project/annals/console/pages/recall"
	"github.com/annals-project/annals/console/pages/webhooks"
	"github.com/annals-project/annals/console/web"
	domainrecall "github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/projections/access"
)

// areas are the pages of the console.
func (s *Server) areas() []web.Area {
	return []web.Area{
		projects.Area(projects.Deps{
			APIURL: s.urls.API, Accounts: s.accounts(), Keys: s.read.access, Uses: s.requestLog(), Sends: s.read.dataPoints,
			Calls: s.calls(), Projections: s.health.projections, Commands: s.write.service, Sessions: s.signin,
		}),
		webhooks.Area(webhooks.Deps{
			Commands: s.write.service, Webhooks: s.read.access, URLs: access.Webhooks{Vault: s.write.vault, URLs: s.urls},
			Audiences: s.read.directory, Calls: s.calls(), API: s.inner, Plans: s.cfg.PlanTerms,
		}),
		recall.Area(recall.Deps{
			API: s.inner, Explain: s.explainer(), Plans: s.cfg.PlanTerms, APIURL: s.urls.API, Words: domainrecall.NewAnalyzer(),
		}),
	}
}
