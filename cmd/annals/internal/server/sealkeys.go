package server

import (
	"context"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/internal/secret"
)

// buildSealKeys has the start seal everything with the first seal key. It comes after what restores sealed values.
func buildSealKeys(_ context.Context, s *Server) (adds, error) {
	return adds{steps: []step{{"seal with the first seal key", s.reseal}}}, nil
}

// reseal seals all values with the first seal key, the check value last, so that the others can be retired.
func (s *Server) reseal(ctx context.Context) error {
	sealer, logger := s.write.vault.Sealer, s.cfg.Logger
	for _, t := range datafolder.SealedTables() {
		done, unopened, err := t.Reseal(ctx, s.storage.db, sealer)
		if err != nil {
			return err
		}
		if done > 0 {
			logger.InfoContext(ctx, "values sealed with the first seal key", "values", t.Values, "sealed", done)
		}
		if unopened > 0 {
			logger.WarnContext(ctx, "values cannot be opened: their seal key is not in ANNALS_SEAL_KEY", "values", t.Values,
				"unopened", unopened)
		}
	}
	return secret.WriteCheck(ctx, s.storage.db, sealer)
}
