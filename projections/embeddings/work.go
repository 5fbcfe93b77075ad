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

// Search below and above the name of the model: an index serves both, but not "<>".
const selectPending = `select project_id, id, revision from (
		select * from (select project_id, id, revision from embeddings.points where captured = revision and model < $1
			and id <> all($2::uuid[]) limit $3) a
		union all
		select * from (select project_id, id, revision from embeddings.points where captured = revision and model > $1
			and id <> all($2::uuid[]) limit $3) b
	) due limit $3`

// PendingEmbeddings lists at most limit captured revisions without vectors of a model, in any
// order, except those of the data points in but.
func (q Queries) PendingEmbeddings(
	ctx context.Context, model string, but []uuid.UUID, limit int,
) ([]work.Embedding, error) {
	except := pgarray.IDs(but, func(id uuid.UUID) uuid.UUID { return id })
	rows, err := q.DB.Query(ctx, selectPending, model, except, limit)
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
