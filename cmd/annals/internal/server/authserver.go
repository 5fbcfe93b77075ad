package server

import (
	"context"
	"errors"

	"github.com/annals-project/annals/console/authserver"
)

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
