package projectiontest

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/projection"
)

// errDone rolls back a transaction after its rows were read.
var errDone = errors.New("seen")

// Rows applies pages to empty tables, returns the dump, and rolls everything back.
func Rows(
	ctx context.Context, db *pgxpool.Pool, p Projector, pages [][]eventstore.DecodedEvent, without ...string,
) (dump map[string][]string, err error) {
	err = Inspect(ctx, db, p, pages, func(tx pgx.Tx) (err error) {
		dump, err = Dump(ctx, tx, p, without...)
		return err
	})
	return dump, err
}

// Inspect applies pages to empty tables, calls look with them and rolls everything back.
func Inspect(
	ctx context.Context, db *pgxpool.Pool, p Projector, pages [][]eventstore.DecodedEvent, inspect func(pgx.Tx) error,
) error {
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if err := Enter(ctx, tx, p); err != nil {
			return err
		}
		for n, page := range pages {
			own := Own(p, page)
			if len(own) == 0 {
				continue
			}
			if err := p.Apply(ctx, tx, own); err != nil {
				return fmt.Errorf("page %d: %w", n, err)
			}
			if err := followUp(ctx, tx, p, n%3); err != nil {
				return fmt.Errorf("follow-ups of page %d: %w", n, err)
			}
		}
		if err := followUp(ctx, tx, p, maxSlices); err != nil {
			return err
		}
		if err := inspect(tx); err != nil {
			return err
		}
		return errDone
	})
	if errors.Is(err, errDone) {
		return nil
	}
	return err
}

// maxSlices is more than the follow-ups of any test take.
const maxSlices = 1 << 20

// followUp does at most some slices of the follow-ups of a projector, if it has any. Projects take turns.
func followUp(ctx context.Context, tx pgx.Tx, p Projector, slices int) error {
	following, follows := p.(projection.Slicer)
	last := uuid.Nil
	for n := 0; follows && n < slices; n++ {
		work, found, _, err := projection.DoSlice(ctx, tx, following, last)
		if err != nil || !found {
			return err
		}
		last = work.Project
	}
	return nil
}

// FollowUp does all follow-ups of a projector.
func FollowUp(ctx context.Context, db *pgxpool.Pool, p Projector) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		return errors.Join(Enter(ctx, tx, p), followUp(ctx, tx, p, maxSlices))
	})
}
