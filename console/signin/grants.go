package signin

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Grants are what a person lets programs do: clients and agents, in all organizations.
type Grants interface {
	// End ends all of a person in a transaction, so that a crash leaves none alive.
	End(ctx context.Context, tx pgx.Tx, person uuid.UUID) error
	// Record writes to the log what End ended. It logs what fails, which is repeated later.
	Record(ctx context.Context, person uuid.UUID)
}

// NoGrants are those of a service that lets no programs in.
type NoGrants struct{}

// End implements Grants.
func (NoGrants) End(context.Context, pgx.Tx, uuid.UUID) error { return nil }

// Record implements Grants.
func (NoGrants) Record(context.Context, uuid.UUID) {}

// SignOutEverywhere ends all sessions of a person, and what is known of the browsers. programs ends what the person
// lets programs do too.
func (s *Service) SignOutEverywhere(ctx context.Context, person uuid.UUID, programs bool) error {
	err := pgx.BeginFunc(ctx, s.DB, func(tx pgx.Tx) error {
		err := forget(ctx, tx, person, "ops.signin_sessions", "ops.signin_browsers")
		if err == nil && programs {
			err = s.Grants.End(ctx, tx, person)
		}
		return err
	})
	if err == nil && programs {
		s.Grants.Record(ctx, person)
	}
	return err
}
