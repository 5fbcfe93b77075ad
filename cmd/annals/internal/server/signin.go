package server

import (
	"context"
	"io"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/console/authserver"
	"github.com/annals-project/annals/console/signin"
	"github.com/annals-project/annals/internal/mail"
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
	// SignUp lets strangers with a verified address create an organization.
	SignUp bool
	// Mail sends links that verify addresses; zero for none.
	Mail mail.Server
	// HashMemory is that of signin.Config.
	HashMemory uint32
	// ShowLink shows the link by which a person takes over the account of the owner, at a terminal alone. It is nil where
	// there is none.
	ShowLink func(link string)
}

// buildSignIn makes what signs people in.
func buildSignIn(_ context.Context, s *Server) (adds, error) {
	provider := s.cfg.SignIn.Provider
	provider.Redirect = s.urls.Console + "/sign-in/oidc/callback"
	s.signin = signin.New(signin.Config{
		DB: s.storage.db, People: s.write.service, Sealer: s.write.vault.Sealer, HashKey: s.hashKey, Now: s.cfg.Clock,
		HashMemory: s.cfg.SignIn.HashMemory, Issuer: issuerOf(s.cfg.Instance.Name), OIDC: provider, Removed: s.removedPeople,
		Grants: grantsOf{s},
		IsMember: func(ctx context.Context, id uuid.UUID) (bool, error) {
			p, ok, err := s.read.access.Memberships(ctx, id)
			return ok && len(p.Memberships) > 0, err
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

func (s *Server) tidySignIn(ctx context.Context) error {
	for sleep(ctx, tidyEvery) {
		if err := s.signin.Tidy(ctx); err != nil && ctx.Err() == nil {
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
