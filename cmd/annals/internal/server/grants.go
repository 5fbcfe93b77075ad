package server

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

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
