package directory

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/internal/auth"
)

// LastSeen is when a record that was made at a time last wrote a data point or recalled since then, nil where it did not.
func (q *Queries) LastSeen(ctx context.Context, project auth.Project, id uuid.UUID, createdAt time.Time) (*time.Time, error) {
	one := Identity{id: id, CreatedAt: createdAt}
	err := q.lastSeen(ctx, project, []*Identity{&one})
	return one.LastSeenAt, err
}

// lastSeen says when identities were seen, by the log and by what it does not say yet. What was before a record was made was of an
// earlier one of the same name.
//
// What is pending is read first: it is let go only once the tables have it, so that one of the two looks finds it.
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
	rows, err := q.db.Query(ctx, `select id, at from directory.seen where id = any($2::uuid[]) and project_id = $1`, [16]byte(project.ID), idsOf(ids))
	if err != nil {
		return fmt.Errorf("look when identities were seen: %w", err)
	}
	logged := make(map[uuid.UUID]time.Time, len(list))
	var (
		id [16]byte
		at time.Time
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &at}, func() error {
		logged[id] = at
		return nil
	})
	if err != nil {
		return fmt.Errorf("look when identities were seen: %w", err)
	}
	for _, i := range list {
		if at := later(seen[i.id], logged[i.id]).UTC(); !at.IsZero() && !at.Before(i.CreatedAt) {
			i.LastSeenAt = &at
		}
	}
	return nil
}
