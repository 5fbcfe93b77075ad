package datapoints

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
)

// CountAuthored counts the live data points of a project with a revision of an author: those whose newest revision is
// the author's, and those of which only earlier ones are.
func (q Queries) CountAuthored(ctx context.Context, project uuid.UUID, author string) (newest, earlier int, err error) {
	err = q.DB.QueryRow(ctx, `select count(*) filter (where newest), count(*) filter (where not newest) from (
			select bool_or(r.number = d.revision) as newest from datapoints.data_points d
			join datapoints.revisions r on r.data_point = d.id
			where d.project_id = $1 and r.project_id = $1 and r.author = $2 group by d.id
		) found`, project, author).Scan(&newest, &earlier)
	if err != nil {
		return 0, 0, fmt.Errorf("count the data points of an author: %w", err)
	}
	return newest, earlier, nil
}

// CountOfOthers counts those of some data points of a project that are live and whose newest revision an author did not
// write.
func (q Queries) CountOfOthers(
	ctx context.Context, project uuid.UUID, ids []uuid.UUID, author string,
) (n int, err error) {
	err = q.DB.QueryRow(ctx, `select count(*) from datapoints.data_points d
		join datapoints.revisions r on r.data_point = d.id and r.number = d.revision
		where d.project_id = $1 and d.id = any($2) and r.author is distinct from $3`, project, ids, author).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count the data points of others: %w", err)
	}
	return n, nil
}

// ListAuthored returns the source ids of some live data points with a revision of an author.
func (q Queries) ListAuthored(ctx context.Context, project uuid.UUID, author string, limit int) ([]string, error) {
	rows, err := q.DB.Query(ctx, `select d.source_id from datapoints.data_points d
		where d.project_id = $1 and d.id in (select data_point from datapoints.revisions where project_id = $1 and author = $2)
		limit $3`, project, author, limit)
	if err != nil {
		return nil, fmt.Errorf("list the data points of an author: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("list the data points of an author: %w", err)
	}
	return ids, nil
}

// Authors returns the authors of the newest revisions of live data points, by their source ids.
func (q Queries) Authors(ctx context.Context, project auth.Project, sources []string) (map[string]string, error) {
	ids := make([]uuid.UUID, len(sources))
	for i, source := range sources {
		ids[i] = stream.DataPointID(project.Namespace, source)
	}
	rows, err := q.DB.Query(ctx, `select source_id, author from datapoints.data_points
		where id = any($2::uuid[]) and project_id = $1 and author is not null`, project.ID, ids)
	if err != nil {
		return nil, fmt.Errorf("find authors: %w", err)
	}
	authors := make(map[string]string, len(sources))
	var source, author string
	if _, err = pgx.ForEachRow(rows, []any{&source, &author}, func() error {
		authors[source] = author
		return nil
	}); err != nil {
		return nil, fmt.Errorf("find authors: %w", err)
	}
	return authors, nil
}

// CountUncleaned counts the deletions of a project up to a position that are not recorded as cleaned.
func (q Queries) CountUncleaned(ctx context.Context, project uuid.UUID, to eventstore.Position) (n int, err error) {
	err = q.DB.QueryRow(ctx, `select count(*) from datapoints.deletions
		where project_id = $1 and not cleaned and position <= $2`, project, int64(to)).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count deletions: %w", err)
	}
	return n, nil
}
