package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/internal/pg"
)

// openPool opens a pool once the server answers and has a free connection.
func (st *storage) openPool(
	ctx context.Context, url string, logger *slog.Logger, configure ...func(*pgxpool.Config),
) (pool *pgxpool.Pool, err error) {
	err = awaitServer(ctx, logger, "postgres", func() (err error) {
		pool, err = pg.OpenPool(ctx, url, configure...)
		return err
	}, pg.IsRefusal)
	if st.postgres == nil {
		err = pg.Explained(err, "ANNALS_POSTGRES")
	}
	if refused, is := errors.AsType[*pgconn.PgError](err); is && refused.Code == tooManyConnections {
		err = fmt.Errorf("%w (the server or the role of ANNALS_POSTGRES allows too few connections: this process opens up "+
			"to %d, or what pool_max_conns in ANNALS_POSTGRES allows)", err, callConnections+workConnections+checkConnections)
	}
	return pool, err
}

// shares divides what pool_max_conns allows a process among its pools; 0 is no bound.
func shares(most int32) (calls, work int32, err error) {
	switch {
	case most == 0:
		return callConnections, workConnections, nil
	case most < leastConnections:
		return 0, 0, fmt.Errorf("pool_max_conns in ANNALS_POSTGRES is %d and must be at least %d", most, leastConnections)
	}
	rest := most - checkConnections
	calls = min(rest*callConnections/(callConnections+workConnections), callConnections)
	return calls, min(rest-calls, workConnections), nil
}

// The SQLSTATEs of a start that an operator of Postgres ends.
const (
	tooManyConnections = "53300"
	missingRight       = "42501"
	readOnly           = "25006"
)

// withCure adds to a missing right the statement that grants it, and to a read-only session what makes it so.
func withCure(db *pgxpool.Pool, err error) error {
	refused, is := errors.AsType[*pgconn.PgError](err)
	if is && refused.Code == readOnly {
		return fmt.Errorf("the database that ANNALS_POSTGRES names is read-only: %w (it is a standby, or "+
			"default_transaction_read_only is on, or was when a pooler opened the session: RECONNECT there)", err)
	}
	if !is || refused.Code != missingRight {
		return err
	}
	of := db.Config().ConnConfig
	return fmt.Errorf("the role that ANNALS_POSTGRES names lacks a right: %w (it must own its schemas and may make them: "+
		"GRANT CREATE ON DATABASE %s TO %s)", err,
		pgx.Identifier{of.Database}.Sanitize(), pgx.Identifier{of.User}.Sanitize())
}
