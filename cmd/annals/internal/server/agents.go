package server

import (
	"context"

	"github.com/google/uuid"

	"github.com/annals-project/annals/console/agents"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/secret"
)

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
