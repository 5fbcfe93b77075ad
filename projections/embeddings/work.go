package embeddings

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/internal/work"
)

// Queries reads the tables of this projection.
type Queries struct{ DB *pgxpool.Pool }

const selectUnembedded = `select project_id, id, revision from embeddings.points
	where captured = revision and model = '' and id <> all($1::uuid[]) limit $2`

// Unembedded lists at most limit captured revisions without vectors, in any order, except those of the data points in
// but.
func (q Queries) Unembedded(ctx context.Context, but []uuid.UUID, limit int) ([]work.Embedding, error) {
	return q.list(ctx, selectUnembedded, exceptions(but), limit)
}

// Search between the empty name and that of the model, and above it: an index serves both, but not "<>".
const selectOfOthers = `select project_id, id, revision from (
		select * from (select project_id, id, revision from embeddings.points where captured = revision and model > ''
			and model < $1 and id <> all($2::uuid[]) limit $3) a
		union all
		select * from (select project_id, id, revision from embeddings.points where captured = revision and model > $1
			and id <> all($2::uuid[]) limit $3) b
	) due limit $3`

// EmbeddedByOthers lists at most limit captured revisions whose last vectors another model made, in any order, except
// those of the data points in but.
func (q Queries) EmbeddedByOthers(
	ctx context.Context, model string, but []uuid.UUID, limit int,
) ([]work.Embedding, error) {
	return q.list(ctx, selectOfOthers, model, exceptions(but), limit)
}

func exceptions(but []uuid.UUID) []uuid.UUID {
	return pgarray.IDs(but, func(id uuid.UUID) uuid.UUID { return id })
}

func (q Queries) list(ctx context.Context, query string, args ...any) ([]work.Embedding, error) {
	rows, err := q.DB.Query(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("list pending embeddings: %w", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e work.Embedding, err error) {
		err = row.Scan(&e.ProjectID, &e.DataPoint, &e.Revision)
		return e, err
	})
	if err != nil {
		return nil, fmt.Errorf("list pending embeddings: %w", err)
	}
	return list, nil
}
