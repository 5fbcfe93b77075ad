package signin

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Grants are what a person lets programs do: clients and agents, in all organizations.
type Grants interface {
	// End ends all of a person in a transaction that ended the sessions before, so that a crash leaves none alive.
	End(ctx context.Context, tx pgx.Tx, person uuid.UUID) error
	// Record writes to the log what End ended. It logs what fails, which is repeated later.
	Record(ctx context.Context, person uuid.UUID)
}

// Hold keeps a session until a transaction ends, which lets a program in. live is false for a session that has ended:
// End did not see what the transaction makes.
func (s *Service) Hold(ctx context.Context, tx pgx.Tx, session uuid.UUID) (live bool, err error) {
	_, live, err = one(ctx, tx, pgx.RowTo[uuid.UUID], `select id from ops.signin_sessions where id = $1 for share`, session)
	return live, err
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
