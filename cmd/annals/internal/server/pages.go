package server

import (
	"github.com/annals-project/annals/console/pages/account"
	"github.com/annals-project/annals/console/pages/datapoints"
	"github.com/annals-project/annals/console/pages/directory"
	healthpages "github.com/annals-project/annals/console/pages/health"
	historypages "github.com/annals-project/annals/console/pages/history"
	"github.com/annals-project/annals/console/pages/projects"
	readpages "github.com/annals-project/annals/console/pages/reads"
	"github.com/annals-project/annals/console/pages/recall"
	"github.com/annals-project/annals/console/pages/trace"
	"github.com/annals-project/annals/console/pages/usage"
	"github.com/annals-project/annals/console/pages/webhooks"
	"github.com/annals-project/annals/console/web"
	domainrecall "github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/projections/access"
	points "github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/history"
	"github.com/annals-project/annals/projections/reads"
	"github.com/annals-project/annals/projections/why"
)

// areas are the pages of the console.
func (s *Server) areas() []web.Area {
	return []web.Area{
		healthpages.Area(healthpages.Deps{
			Conditions: s.health.conditions, Projections: s.health.projections, Details: newMemo(s.details).get,
			Readiness: s.read.dataPoints, Tenancy: access.Tenancy{Queries: s.read.access, Head: s.head()},
		}),
		projects.Area(projects.Deps{
			APIURL: s.urls.API, Snippets: s.snippets, Accounts: s.accounts(), Access: s.read.access, Log: s.requestLog(),
			Sends: s.read.dataPoints,
			Calls: s.calls(), History: s.history(), Projections: s.health.projections, Commands: s.write.service,
		}),
		trace.Area(trace.Deps{Calls: s.calls(), Explain: s.explain(), Trace: s.trace(), Names: s.read.access}),
		webhooks.Area(webhooks.Deps{
			Commands: s.write.service, Access: s.read.access, URLs: access.Webhooks{Vault: s.write.vault, URLs: s.urls},
			Audiences: s.read.directory, Calls: s.calls(), History: s.history(), API: s.inner, Plans: s.cfg.PlanTerms,
		}),
		recall.Area(recall.Deps{
			API: s.inner, Explain: s.explainer(), Plans: s.cfg.PlanTerms, APIURL: s.urls.API, Words: domainrecall.Shared(),
			Calls: s.calls(), Logger: s.cfg.Logger,
		}),
		usage.Area(usage.Deps{Accounts: s.accounts(), Log: s.requestLog()}),
		account.Area(account.Deps{
			SignIn: s.signin, Commands: s.write.service, OffersTo: s.offersTo, Mail: s.cfg.SignIn.Mail, URL: s.urls.Console,
			SignUp: s.cfg.SignIn.SignUp, Logger: s.cfg.Logger,
		}),
		s.pointPages(),
		readpages.Area(readpages.Deps{
			Reads: reads.Queries{DB: s.storage.db}, Access: s.read.access, Accounts: s.accounts(), History: s.history(),
			Commands: s.write.service, AppendTime: s.reads.AppendTime, Shown: s.shown(),
		}),
		directory.Area(directory.Deps{
			Directory: s.read.directory, Commands: s.write.service, Points: s.read.dataPoints,
			Access: s.accessOf(), History: s.history(), Calls: s.requestLog(),
		}),
		s.organizationPages(), historypages.Area(historypages.Deps{
			Access: s.read.access, History: s.history(), Log: s.requestLog(),
		}),
		s.auditReads.pages(), s.authServer.Area(), s.agents.Area(),
	}
}

// history is who did what, by the events of the log.
func (s *Server) history() history.Reader {
	return history.Reader{
		DB: s.storage.db, Log: s.storage.store, Blobs: s.storage.journal(), Names: s.read.access, Head: s.head(),
	}
}

// pointPages are the pages of data points.
func (s *Server) pointPages() web.Area {
	read := s.read
	deps := datapoints.Deps{
		Commands: s.write.service, Points: read.dataPoints, Trace: s.trace(), Explain: s.explain(),
		Find:    why.Finder{DB: s.storage.db, Head: s.head(), Calls: s.requestLog()},
		Stopped: points.StoppedSends{Queries: read.dataPoints, Projects: read.access},
		Rooms:   s.accounts(), Export: s.export(), History: s.history(), Log: s.requestLog(),
		People: s.personCopies(),
	}
	return datapoints.Area(deps)
}
