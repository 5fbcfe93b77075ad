package server

import (
	"context"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/internal/tokens"
)

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
