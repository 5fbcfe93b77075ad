package projectiontest

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/eventstore"
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
