package directory

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/work"
)

// OpenBulks lists the committed bulk writes of a project with an open row for one of the
// identities, in the order of their commits. The fault is service-unavailable while the projection
// is stopped.
func (q *Queries) OpenBulks(ctx context.Context, project auth.Project, ids []uuid.UUID) ([]uuid.UUID, error) {
	if err := q.requireRunning(ctx); err != nil {
		return nil, err
	}
	rows, err := q.db.Query(ctx, `select bulk_id from directory.bulk_rows where identity_id = any($2::uuid[])
		and project_id = $1
		group by bulk_id, position order by position`, project.ID, ids)
	if err != nil {
		return nil, fmt.Errorf("list open bulk writes of identities: %w", err)
	}
	open, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, fmt.Errorf("list open bulk writes of identities: %w", err)
	}
	return open, nil
}

// Open counts the bulk writes that are not fanned out, and the removals that are not cleared.
func (q *Queries) Open(ctx context.Context) (bulks, removals int, err error) {
	err = q.db.QueryRow(ctx, `select (select count(*) from directory.bulks), (select count(*) from directory.removals)`).
		Scan(&bulks, &removals)
	if err != nil {
		return 0, 0, fmt.Errorf("count open work on identities: %w", err)
	}
	return bulks, removals, nil
}

// AbandonedBulks counts the bulk writes that were abandoned since their rows could not be read.
func AbandonedBulks(ctx context.Context, db *pgxpool.Pool) (n int, err error) {
	if err := db.QueryRow(ctx, `select count(*) from directory.lost_bulks`).Scan(&n); err != nil {
		return 0, fmt.Errorf("count abandoned bulk writes: %w", err)
	}
	return n, nil
}

// FindRecord reports whether a project has an identity record, and whether a removal of it is not cleared.
func (q *Queries) FindRecord(ctx context.Context, project, id uuid.UUID) (has, removing bool, err error) {
	err = q.db.QueryRow(ctx, `select exists (select from directory.identities where project_id = $1 and id = $2),
		exists (select from directory.removals where project_id = $1 and id = $2)`, project, id).Scan(&has, &removing)
	if err != nil {
		return false, false, fmt.Errorf("find an identity record: %w", err)
	}
	return has, removing, nil
}

// OpenRemovals lists at most limit removals of records that are not cleared, oldest first, after a
// removal (nil begins).
func (q *Queries) OpenRemovals(ctx context.Context, after *work.Removal, limit int) ([]work.Removal, error) {
	position := int64(0)
	if after != nil {
		position = int64(after.Position)
	}
	rows, err := q.db.Query(ctx, `select project_id, id, revision, removed_at, position from directory.removals
		where position > $1 order by position limit $2`, position, limit)
	if err != nil {
		return nil, fmt.Errorf("list open removals: %w", err)
	}
	removals, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r work.Removal, err error) {
		err = row.Scan(&r.ProjectID, &r.IdentityID, (*int64)(&r.Revision), &r.RemovedAt, (*uint64)(&r.Position))
		return r, err
	})
	if err != nil {
		return nil, fmt.Errorf("list open removals: %w", err)
	}
	return removals, nil
}

// PendingBulks lists at most limit committed bulk writes that are not fanned out, oldest first.
func (q *Queries) PendingBulks(ctx context.Context, limit int) ([]work.Bulk, error) {
	rows, err := q.db.Query(ctx, `select project_id, id, accepted_at, position from directory.bulks
		order by position limit $1`, limit)
	if err != nil {
		return nil, fmt.Errorf("list open bulk writes: %w", err)
	}
	bulks, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (b work.Bulk, err error) {
		err = row.Scan(&b.ProjectID, &b.ID, &b.AcceptedAt, (*uint64)(&b.Position))
		return b, err
	})
	if err != nil {
		return nil, fmt.Errorf("list open bulk writes: %w", err)
	}
	return bulks, nil
}
