package directory

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/annals-project/annals/domain/audience"
)

// querier is a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// selectRules is for the projector, whose search_path is the schema that it builds;
// selectRulesQualified is for queries.
const (
	selectRules = `select id, compiled from audiences where project_id = $1 and compiled is not null
		order by id`
	selectRulesQualified = `select id, compiled from directory.audiences
		where project_id = $1 and compiled is not null order by id`
)

// readRules reads the rules that a statement selects.
func readRules(ctx context.Context, db querier, sql string, args ...any) (*audience.Matcher, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("read rules: %w", err)
	}
	var (
		m        audience.Matcher
		id       uuid.UUID
		compiled pgtype.DriverBytes
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &compiled}, func() error { return m.Add(id, compiled) })
	if err != nil {
		return nil, fmt.Errorf("read rules: %w", err)
	}
	return &m, nil
}
