package server

import (
	"context"

	"github.com/annals-project/annals/console/authserver"
)

// buildAuthServer makes the authorization server of the people of this service.
func buildAuthServer(_ context.Context, s *Server) (adds, error) {
	s.authServer = authserver.New(authserver.Config{
		DB: s.storage.db, Sealer: s.write.vault.Sealer, URLs: s.urls, Keys: s.tokens, Access: s.read.access,
		Commands: s.write.service, Removed: s.removedPeople, Documents: s.cfg.SignIn.Documents, Logger: s.cfg.Logger,
		Now: s.cfg.Clock,
	})
	return adds{work: []task{{"authorization server", s.tidyAuthServer}}}, nil
}

func (s *Server) tidyAuthServer(ctx context.Context) error {
	for sleep(ctx, tidyEvery) {
		if err := s.authServer.Tidy(ctx); err != nil && ctx.Err() == nil {
			s.cfg.Logger.WarnContext(ctx, "what has ended of OAuth is not deleted, will retry", "err", err)
		}
	}
	return nil
}
