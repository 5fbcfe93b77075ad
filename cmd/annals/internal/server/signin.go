package server

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/console/agents"
	"github.com/annals-project/annals/console/authserver"
	"github.com/annals-project/annals/console/forms"
	"github.com/annals-project/annals/console/signin"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/secret"
	"github.com/annals-project/annals/internal/tokens"
	"github.com/annals-project/annals/projections/access"
)

// tidyEvery is how often what has expired of sign-ins is deleted.
const tidyEvery = 5 * time.Minute

// SignIn is how people sign in.
type SignIn struct {
	// OwnerEmail is the address of the person who becomes the owner of organizations without one; "" for nobody.
	OwnerEmail string
	// Provider is the OpenID Connect provider, without the address to which it sends people back; zero for none.
	Provider signin.Provider
	// Documents are the clients that are read from their address.
	Documents authserver.Documents
	// Registrations are those of clients that a network address may make in an hour, 0 for the default.
	Registrations int
	// SignUp lets strangers with a verified address create an organization.
	SignUp bool
	// Mail sends links that verify addresses; nil for none.
	Mail Mailer
	// HashMemory is that of signin.Config.
	HashMemory uint32
	// ShowLink shows the link by which a person takes over the account of the owner, at a terminal alone. It is nil where
	// there is none.
	ShowLink func(link string)
}

// Mailer sends texts to people, if it is set.
type Mailer interface {
	Set() bool
	Send(ctx context.Context, to, subject, text string) error
}

// buildSignIn makes what signs people in.
func buildSignIn(_ context.Context, s *Server) (adds, error) {
	provider := s.cfg.SignIn.Provider
	refusals := newRefusals(s.cfg.Logger)
	s.registry.MustRegister(refusals.count)
	provider.Redirect = s.urls.Console + "/sign-in/oidc/callback"
	s.signin = signin.New(signin.Config{
		DB: s.storage.db, People: signingIn{s}, Sealer: s.write.vault.Sealer, HashKey: s.hashKey, Now: s.cfg.Clock,
		HashMemory: s.cfg.SignIn.HashMemory, Issuer: issuerOf(s.cfg.Instance.Name), OIDC: provider, Removed: s.removedPeople,
		Grants: grantsOf{s}, Refused: refusals.refused,
		IsMember: func(ctx context.Context, id uuid.UUID) (bool, error) {
			return s.memberElsewhere(ctx, id, uuid.Nil)
		},
		MemberElsewhere: s.memberElsewhere,
		Offered: func(ctx context.Context, email string) (bool, error) {
			offers, err := s.offersTo(ctx, email)
			return len(offers) > 0, err
		},
	})
	o := owners{
		service: s.write.service, signIn: s.signin, cfg: s.cfg, console: s.urls.Console,
		tenancy: access.Tenancy{Queries: s.read.access, Head: s.head()},
	}
	return adds{
		work:     []task{{"sign-in", s.tidySignIn}},
		steps:    []step{{"restore sign-ins", s.restoreSignIns}, {"find owners", o.ensure}},
		operator: []operatorapi.Route{operatorapi.LinkPerson.ServeAs(s.cfg.now, o.link)},
	}, nil
}

// memberElsewhere reports whether a person is a member of another organization than one.
func (s *Server) memberElsewhere(ctx context.Context, id, organization uuid.UUID) (bool, error) {
	p, _, err := s.read.access.Memberships(ctx, id)
	return slices.ContainsFunc(p.Memberships, func(m access.Membership) bool {
		return m.Organization != organization
	}), err
}

// offersTo are the open offers to an address.
func (s *Server) offersTo(ctx context.Context, email string) ([]access.Offer, error) {
	name, err := s.write.service.AddressName(email)
	if err != nil {
		return nil, err
	}
	return s.read.access.OffersTo(ctx, name, s.cfg.now())
}

// signingIn finds and registers people who sign in.
type signingIn struct{ s *Server }

// FindPerson implements signin.Config.
func (p signingIn) FindPerson(ctx context.Context, email string) (id uuid.UUID, found bool, err error) {
	return p.s.write.service.FindPerson(ctx, email)
}

// Register implements signin.Config.
func (p signingIn) Register(ctx context.Context, email string) (uuid.UUID, error) {
	return p.s.write.service.RegisterPerson(ctx, engine.Call{
		Principal: auth.Principal{Kind: "sign-in"}, RequestID: uuid.New(), ReceivedAt: p.s.cfg.now(),
	}, email)
}

// AddressOf implements signin.Config.
func (p signingIn) AddressOf(ctx context.Context, id uuid.UUID) (email string, found bool, err error) {
	person, found, err := p.s.read.access.Memberships(ctx, id)
	return person.Email, found, err
}

// issuerOf is the name of an instance in an authenticator app.
func issuerOf(instance string) string {
	if instance == "" {
		return "Annals"
	}
	return "Annals " + instance
}

// dumpSignIns writes how people and agents sign in for a backup.
func (s *Server) dumpSignIns(ctx context.Context, to io.Writer) error {
	return datafolder.DumpSignIns(ctx, s.storage.db, s.write.vault.Sealer, to)
}

// restoreSignIns takes how people and agents sign in out of the data folder, where annals restore put it.
func (s *Server) restoreSignIns(ctx context.Context) error {
	return s.cfg.Data.TakeSignIns(func(from io.Reader) error {
		return datafolder.LoadSignIns(ctx, s.storage.db, s.signin.Sealer, from)
	})
}

// forms keep what forms of the console leave.
func (s *Server) forms() forms.Store {
	return forms.Store{DB: s.storage.db, Sealer: s.write.vault.Sealer, Now: s.cfg.now}
}

func (s *Server) tidySignIn(ctx context.Context) error {
	for sleep(ctx, tidyEvery) {
		err := errors.Join(s.signin.Tidy(ctx), s.forms().Tidy(ctx))
		if err != nil && ctx.Err() == nil {
			s.cfg.Logger.WarnContext(ctx, "expired sign-ins are not deleted, will retry", "err", err)
		}
	}
	return nil
}

// removedPeople returns those of some people who are removed in the log. The table alone may lag.
func (s *Server) removedPeople(ctx context.Context, people []uuid.UUID) (removed []uuid.UUID, err error) {
	live, err := s.read.access.LivePeople(ctx, people)
	if err != nil {
		return nil, err
	}
	for _, id := range people {
		if live[id] {
			continue
		}
		lives, err := s.write.service.PersonLives(ctx, id)
		if err != nil {
			return nil, err
		}
		if !lives {
			removed = append(removed, id)
		}
	}
	return removed, nil
}

// buildAuthServer makes the authorization server of the people of this service.
func buildAuthServer(_ context.Context, s *Server) (adds, error) {
	exchange, err := s.newAgents()
	if err != nil {
		return adds{}, err
	}
	s.authServer = authserver.New(authserver.Config{
		Exchange: exchange,
		DB:       s.storage.db, Sealer: s.write.vault.Sealer, URLs: s.urls, Keys: s.tokens, Access: s.read.access,
		HashKey:  s.hashKey,
		Commands: s.write.service, Removed: s.removedPeople, Documents: s.cfg.SignIn.Documents, Logger: s.cfg.Logger,
		Registrations: s.cfg.SignIn.Registrations,
		Now:           s.cfg.Clock, Hold: s.signin.Hold,
	})
	s.agents, exchange.Connections = exchange, s.authServer
	return adds{work: []task{{"authorization server", s.tidyAuthServer}}}, nil
}

func (s *Server) tidyAuthServer(ctx context.Context) error {
	for sleep(ctx, tidyEvery) {
		err := errors.Join(s.authServer.Tidy(ctx), s.agents.Tidy(ctx))
		if err != nil && ctx.Err() == nil {
			s.cfg.Logger.WarnContext(ctx, "what has ended of OAuth is not deleted, will retry", "err", err)
		}
	}
	return nil
}

// newAgents makes what registers agents.
func (s *Server) newAgents() (*agents.Service, error) {
	sealer, err := secret.NewSealer(s.write.sealKeys...)
	if err != nil {
		return nil, err
	}
	return agents.New(agents.Config{
		DB: s.storage.db, Sealer: sealer, HashKey: s.hashKey, URLs: s.urls, Keys: s.tokens, Access: s.read.access,
		Commands: s.write.service, Logger: s.cfg.Logger, Now: s.cfg.now, Hold: s.signin.Hold,
		Verified: func(ctx context.Context, person uuid.UUID, email string) (bool, error) {
			states, err := s.signin.States(ctx, person)
			return err == nil && s.signin.Verified(states[person], email), err
		},
	}), nil
}

// tokenKeys verify tokens of agents, nil where no role of the process takes calls.
func (s *Server) tokenKeys() auth.TokenKeys {
	if s.tokens == nil {
		return nil
	}
	return s.tokens
}

// grantsOf are the clients and the agents that people let in. It implements signin.Grants.
type grantsOf struct{ *Server }

// End implements signin.Grants.
func (g grantsOf) End(ctx context.Context, tx pgx.Tx, person uuid.UUID) error {
	if err := g.authServer.EndAll(ctx, tx, person); err != nil {
		return err
	}
	return g.agents.EndAll(ctx, tx, person)
}

// Record implements signin.Grants. What it does not record, tidyAuthServer does.
func (g grantsOf) Record(ctx context.Context, person uuid.UUID) {
	err := errors.Join(g.authServer.RecordEndings(ctx, person), g.agents.RecordEndings(ctx, person))
	if err != nil {
		g.cfg.Logger.WarnContext(ctx, "ended connections are not in the log yet, will retry", "err", err)
	}
}

// buildSigningKeys makes the keys that sign tokens. A process without the seal keys of the commands only verifies.
func buildSigningKeys(_ context.Context, s *Server) (a adds, err error) {
	cfg := tokens.Config{DB: s.storage.db, Now: s.cfg.Clock}
	if s.write != nil {
		cfg.Sealer = s.write.vault.Sealer
	}
	s.tokens = tokens.New(cfg)
	if s.write != nil {
		a.operator = []operatorapi.Route{operatorapi.RotateSigningKeys.Serve(
			func(ctx context.Context, _ operatorapi.None) ([]tokens.Key, error) { return s.tokens.Rotate(ctx) })}
	}
	return a, nil
}
