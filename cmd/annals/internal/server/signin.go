package server

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/console/signin"
	"github.com/annals-project/annals/internal/secret"
)

// tidyEvery is how often what has expired of sign-ins is deleted.
const tidyEvery = 5 * time.Minute

// buildSignIn makes what signs people in.
func buildSignIn(_ context.Context, s *Server) (adds, error) {
	sealer, err := secret.NewSealer(s.write.sealKeys...)
	if err != nil {
		return adds{}, err
	}
	s.signin = signin.New(signin.Config{
		DB: s.storage.db, People: s.write.service, Sealer: sealer, HashKey: s.hashKey, Now: s.cfg.Clock,
		Issuer: "Annals " + s.cfg.Instance.Name,
		IsMember: func(ctx context.Context, id uuid.UUID) (bool, error) {
			p, ok, err := s.read.access.Memberships(ctx, id)
			return ok && len(p.Memberships) > 0, err
		},
	})
	return adds{work: []task{{"sign-in", s.tidySignIn}}}, nil
}

func (s *Server) tidySignIn(ctx context.Context) error {
	for sleep(ctx, tidyEvery) {
		if err := s.signin.Tidy(ctx); err != nil && ctx.Err() == nil {
			s.cfg.Logger.WarnContext(ctx, "expired sign-ins are not deleted, will retry", "err", err)
		}
	}
	return nil
}
