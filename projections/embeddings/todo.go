package embeddings

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/internal/todo"
	"github.com/annals-project/annals/internal/unnest"
)

// Queries answers from schema embeddings.
type Queries struct{ DB *pgxpool.Pool }

// What has no vectors of the model has those of a name before it or behind it: the index leads to both.
const selectUnembedded = `select project_id, id, revision from (
		select * from (select project_id, id, revision from embeddings.points where captured = revision and model < $1 and id <> all($2::uuid[]) limit $3) a
		union all
		select * from (select project_id, id, revision from embeddings.points where captured = revision and model > $1 and id <> all($2::uuid[]) limit $3) b
	) due limit $3`

// Unembedded are captured revisions without vectors of a model, in no promised order, but for some data points.
func (q Queries) Unembedded(ctx context.Context, model string, but []uuid.UUID, limit int) ([]todo.Embedding, error) {
	rows, err := q.DB.Query(ctx, selectUnembedded, model, unnest.IDs(but, func(id uuid.UUID) uuid.UUID { return id }), limit)
	if err != nil {
		return nil, fmt.Errorf("read what has no vectors: %w", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e todo.Embedding, err error) {
		err = row.Scan(&e.ProjectID, &e.DataPoint, &e.Revision)
		return e, err
	})
	if err != nil {
		return nil, fmt.Errorf("read what has no vectors: %w", err)
	}
	return list, nil
}
