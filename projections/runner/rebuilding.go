package runner

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pg"
)

// Rebuilding is a projection that is built in a shadow, or was until its rebuild was interrupted.
type Rebuilding struct {
	Projection string
	Position   eventstore.Position
	// IsRunning is false for a rebuild that was interrupted and can be continued.
	IsRunning bool
}

// Rebuilds returns the rebuilds of all processes that use a log, as their shadows show them.
func Rebuilds(
	ctx context.Context, db *pgxpool.Pool, logID func(context.Context) (uuid.UUID, error),
) ([]Rebuilding, error) {
	schemas, err := leftovers(ctx, db, logID)
	if err != nil {
		return nil, err
	}
	prefix := pg.SchemaPrefixOf(db)
	var list []Rebuilding
	for _, schema := range schemas {
		name, isShadow := strings.CutSuffix(schema, shadowSuffix)
		if !isShadow {
			continue
		}
		r := Rebuilding{Projection: strings.TrimPrefix(name, string(prefix))}
		err := db.QueryRow(ctx, `select position, until > clock_timestamp() from `+pgx.Identifier{schema}.Sanitize()+
			`.checkpoint`).Scan(&r.Position, &r.IsRunning)
		dropped, is := errors.AsType[*pgconn.PgError](err)
		if errors.Is(err, pgx.ErrNoRows) || is && dropped.Code == "42P01" {
			continue // it ended meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("read the rebuild of %s: %w", name, err)
		}
		list = append(list, r)
	}
	return list, nil
}
