package directory

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/auth"
)

// Known returns which of the ids have a record in a project, at the position of the projection. A
// removal waits for the projection before it is acknowledged, so a removed record is absent. The
// fault is service-unavailable while the projection is stopped.
func (q *Queries) Known(ctx context.Context, project auth.Project, ids []uuid.UUID) (map[uuid.UUID]struct{}, error) {
	if err := q.requireRunning(ctx); err != nil {
		return nil, err
	}
	rows, err := q.db.Query(ctx, `select id from directory.identities where id = any($2::uuid[])
		and project_id = $1`, project.ID, ids)
	if err != nil {
		return nil, fmt.Errorf("find identity records: %w", err)
	}
	known := make(map[uuid.UUID]struct{}, len(ids))
	var id uuid.UUID
	_, err = pgx.ForEachRow(rows, []any{&id}, func() error {
		known[id] = struct{}{}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("find identity records: %w", err)
	}
	return known, nil
}

// Unknown counts which of some names have no record, as Known finds them.
func (q *Queries) Unknown(ctx context.Context, project auth.Project, names []string) (int, error) {
	ids := make([]uuid.UUID, len(names))
	for n, name := range names {
		ids[n] = stream.IdentityID(project.Namespace, name)
	}
	known, err := q.Known(ctx, project, ids)
	return len(names) - len(known), err
}

// KnownAudiences returns which of some slugs are audiences of a project, at the position of the projection.
func (q *Queries) KnownAudiences(ctx context.Context, project auth.Project, slugs []string) (map[string]bool, error) {
	rows, err := q.db.Query(ctx, `select slug from directory.audiences where project_id = $1 and slug = any($2::text[])`,
		project.ID, slugs)
	if err != nil {
		return nil, fmt.Errorf("find audiences: %w", err)
	}
	known := make(map[string]bool, len(slugs))
	var slug string
	if _, err := pgx.ForEachRow(rows, []any{&slug}, func() error { known[slug] = true; return nil }); err != nil {
		return nil, fmt.Errorf("find audiences: %w", err)
	}
	return known, nil
}
