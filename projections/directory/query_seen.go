package directory

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/internal/auth"
)

// LastSeen returns when the identity of a record created at a time last wrote a data point or
// recalled since, nil if never.
func (q *Queries) LastSeen(
	ctx context.Context, project auth.Project, id uuid.UUID, createdAt time.Time,
) (*time.Time, error) {
	one := Identity{id: id, CreatedAt: createdAt}
	err := q.lastSeen(ctx, project, []*Identity{&one})
	return one.LastSeenAt, err
}

// lastSeen sets when identities were last seen, from the log and from recalls that are not in the
// log yet. A time before the creation of the record belongs to an earlier record of the same name.
//
// It reads pending recalls first: they are dropped only once the tables hold them, so that one of
// the two reads finds each.
func (q *Queries) lastSeen(ctx context.Context, project auth.Project, list []*Identity) error {
	if len(list) == 0 {
		return nil
	}
	ids := make([]uuid.UUID, len(list))
	for n, i := range list {
		ids[n] = i.id
	}
	seen, err := q.pending.PendingSeen(ctx, project, ids)
	if err != nil {
		return err
	}
	rows, err := q.db.Query(ctx, `select id, at from directory.seen where id = any($2::uuid[])
		and project_id = $1`, project.ID, ids)
	if err != nil {
		return fmt.Errorf("read when identities were seen: %w", err)
	}
	logged := make(map[uuid.UUID]time.Time, len(list))
	var (
		id uuid.UUID
		at time.Time
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &at}, func() error {
		logged[id] = at
		return nil
	})
	if err != nil {
		return fmt.Errorf("read when identities were seen: %w", err)
	}
	for _, i := range list {
		if at := later(seen[i.id], logged[i.id]).UTC(); !at.IsZero() && !at.Before(i.CreatedAt) {
			i.LastSeenAt = &at
		}
	}
	return nil
}
