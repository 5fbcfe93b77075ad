package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals"
	"github.com/annals-project/annals/console/authserver"
	"github.com/annals-project/annals/console/docs"
	"github.com/annals-project/annals/console/mcp"
	"github.com/annals-project/annals/console/pages/account"
	"github.com/annals-project/annals/console/pages/datapoints"
	"github.com/annals-project/annals/console/pages/directory"
	healthpages "github.com/annals-project/annals/console/pages/health"
	historypages "github.com/annals-project/annals/console/pages/history"
	"github.com/annals-project/annals/console/pages/organization"
	"github.com/annals-project/annals/console/pages/projects"
	readpages "github.com/annals-project/annals/console/pages/reads"
	"github.com/annals-project/annals/console/pages/recall"
	"github.com/annals-project/annals/console/pages/trace"
	"github.com/annals-project/annals/console/pages/usage"
	"github.com/annals-project/annals/console/pages/webhooks"
	"github.com/annals-project/annals/console/signin"
	"github.com/annals-project/annals/console/web"
	domainrecall "github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/internal/authmd"
	"github.com/annals-project/annals/internal/build"
	"github.com/annals-project/annals/internal/erasures"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/projections/access"
	points "github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/history"
	"github.com/annals-project/annals/projections/reads"
	"github.com/annals-project/annals/projections/runner"
	"github.com/annals-project/annals/projections/why"
	"github.com/annals-project/annals/readapi"
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

// buildPages makes the pages of the console.
func buildPages(ctx context.Context, s *Server) (adds, error) {
	log, err := runner.LogIDOf(s.storage.store, s.storage.codec)(ctx)
	if err != nil {
		return adds{}, err
	}
	if s.tools, err = s.newMCP(); err != nil {
		return adds{}, err
	}
	s.site, err = web.New(web.Config{
		URL: s.urls.Console, Sessions: s.signin, Access: s.read.access,
		Cookies: web.NewCookies(s.urls.Console, log), Instance: s.cfg.Instance, Proxies: s.cfg.Proxies,
		Forms: s.forms(), Answers: s.inner.Answers, Reads: s.reads, Admit: s.health.admission.admit,
		Visited: s.visits.Add, Logger: s.cfg.Logger, Now: s.cfg.now,
	}, append(s.areas(), s.docsPages(), s.tools.Area()))
	return adds{}, err
}

// buildConsole serves the console's address: the pages of the parts before it, and the events of webhooks.
func buildConsole(_ context.Context, s *Server) (adds, error) {
	console := httpx.NewConsole(httpx.Config{Log: s.cfg.Logger, URLs: s.urls})
	for _, a := range s.added {
		for path, page := range a.pages {
			console.Handle(path, page)
		}
	}
	console.HandleSite(s.site.Serve)
	serve := s.web.serve(s.listeners.console, withWebhooks(s.api, console))
	return adds{edge: []task{{"console", serve}}}, nil
}

// snippets configure clients of MCP with a key.
func (s *Server) snippets(key string) ([]docs.Snippet, error) {
	return docs.Snippets(annals.Pages, s.urls.Console, key)
}

// docsPages are the documentation.
func (s *Server) docsPages() web.Area {
	more := func() ([]docs.Page, error) {
		text, err := authmd.Render(s.urls)
		return []docs.Page{{
			ID: "auth", Title: "Register as an agent", Group: "For agents", Summary: "how an agent gets a token of its own",
			Text: string(text), File: "auth.md",
		}}, err
	}
	return docs.Area(docs.Config{
		Files: annals.Pages, OpenAPI: readapi.OpenAPI, More: more, URLs: s.urls, Logger: s.cfg.Logger,
		Now: s.cfg.now,
	})
}

// organizationPages are the pages of an organization.
func (s *Server) organizationPages() web.Area {
	people := peopleOf(s)
	if s.background != nil {
		people = s.background.finisher.People // knows why a step failed
	}
	return organization.Area(organization.Deps{
		Access: s.read.access, Commands: s.write.service, Links: s.memberLinks(), OfferLife: s.signin.InviteLife,
		History: s.history(),
		Takes: why.Takes{
			Log: s.requestLog(), Trace: s.trace(), Points: s.read.dataPoints, Directory: s.read.directory,
			Access: s.read.access, Logger: s.cfg.Logger,
		},
		Erasures: people, Names: erasures.Names{DB: s.storage.work}, PlanTerms: s.cfg.PlanTerms,
		People: s.signin,
	})
}

func (s *Server) memberLinks() memberLinks {
	return memberLinks{s.signin, s.urls.Console, s.cfg.SignIn.Mail, s.cfg.Logger}
}

// memberLinks lets people in who were invited or forgot a password (organization.Links).
type memberLinks struct {
	signIn  *signin.Service
	console string
	mail    Mailer
	log     *slog.Logger
}

// Invite implements organization.Links. The mail has no link of the offer: who comes by it proves the address. Nor has
// it a word of the organization, which may be anybody's.
func (l memberLinks) Invite(
	ctx context.Context, offer signin.Link,
) (address string, expires time.Time, mailed bool, err error) {
	token, err := l.signIn.NewLink(ctx, offer)
	if err != nil {
		return "", time.Time{}, false, err
	}
	address, expires = l.console+"/link/"+token, l.signIn.Now().Add(l.signIn.InviteLife)
	if !l.mail.Set() {
		return address, expires, false, nil
	}
	if err = l.signIn.LimitReceiver(ctx, offer.Email); err == nil {
		err = l.mail.Send(ctx, offer.Email, "An offer at Annals", fmt.Sprintf(
			"An organization offers you a membership at %[1]s.\n\nSign in there, and accept or decline it: %[1]s/offers\n"+
				"If you have no password there, or forgot it: %[1]s/sign-in/forgotten\n\n"+
				"If you expect none, ignore this mail: the offer ends by itself.", l.console))
	}
	if err != nil { // the link does without
		l.log.WarnContext(ctx, "the mail of an offer was not sent", "offer", offer.Offer, "err", err)
	}
	return address, expires, err == nil, nil
}

// Reset implements organization.Links.
func (l memberLinks) Reset(
	ctx context.Context, of, person uuid.UUID, email string,
) (address string, expires time.Time, err error) {
	if err := l.Revoke(ctx, of, person); err != nil {
		return "", time.Time{}, err
	}
	token, err := l.signIn.NewLink(ctx, signin.Link{Purpose: signin.Reset, Person: person, Email: email, Organization: of})
	return l.console + "/link/" + token, l.signIn.Now().Add(l.signIn.LinkLife), err
}

// Revoke implements organization.Links.
func (l memberLinks) Revoke(ctx context.Context, of, person uuid.UUID) error {
	return l.signIn.EndLinks(ctx, person, of)
}

// ResetSecondFactor implements organization.Links.
func (l memberLinks) ResetSecondFactor(ctx context.Context, person uuid.UUID) error {
	return l.signIn.ResetSecondFactor(ctx, person)
}

// CountSecondFactors implements organization.Links.
func (l memberLinks) CountSecondFactors(ctx context.Context, people []uuid.UUID) (n int, err error) {
	states, err := l.signIn.States(ctx, people...)
	for _, s := range states {
		if s.SecondFactor {
			n++
		}
	}
	return n, err
}

// End implements organization.Links.
func (l memberLinks) End(ctx context.Context, person uuid.UUID) error {
	return l.signIn.EndPerson(ctx, person)
}

// newMCP makes the server of the Model Context Protocol.
func (s *Server) newMCP() (*mcp.Service, error) {
	origins, err := mcp.ParseOrigins(s.cfg.MCPOrigins)
	if err != nil {
		return nil, err
	}
	return mcp.New(mcp.Config{
		URLs: s.urls, Origins: origins, Version: build.Version, Document: readapi.OpenAPI, API: s.inner,
		Keys:   s.read.keys,
		Tokens: s.grantOf, Access: s.read.access, Identities: s.write.service, DataPoints: s.read.dataPoints,
		Texts: s.recall.recall, Reads: s.reads, Reaches: s.read.directory.Belongs,
		Readers: s.read.directory.Readers, HashKey: s.hashKey, Logger: s.cfg.Logger,
	})
}

// grantOf finds the grant of a token of a person.
func (s *Server) grantOf(ctx context.Context, token string) (mcp.Grant, bool, error) {
	g, err := s.authServer.Authenticate(ctx, token)
	if errors.Is(err, authserver.ErrToken) {
		return mcp.Grant{}, false, nil
	}
	return mcp.Grant{
		Person: g.Person, Organization: g.Organization, Project: g.Project, ClientName: g.ClientName,
		Resource: g.Resource, Scopes: g.Scopes,
	}, err == nil, err
}
