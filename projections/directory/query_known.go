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
	records := make([]Record, len(ids))
	for n, id := range ids {
		records[n] = Record{project.ID, id}
	}
	found, err := q.KnownRecords(ctx, records)
	if err != nil {
		return nil, err
	}
	known := make(map[uuid.UUID]struct{}, len(found))
	for record := range found {
		known[record.ID] = struct{}{}
	}
	return known, nil
}

// Record names the record of an identity.
type Record struct{ ProjectID, ID uuid.UUID }

// KnownRecords returns which of some records of any projects exist, as Known does.
func (q *Queries) KnownRecords(ctx context.Context, records []Record) (map[Record]struct{}, error) {
	if err := q.requireRunning(ctx); err != nil {
		return nil, err
	}
	projects, ids := make([]uuid.UUID, len(records)), make([]uuid.UUID, len(records))
	for n, record := range records {
		projects[n], ids[n] = record.ProjectID, record.ID
	}
	rows, err := q.db.Query(ctx, `select i.project_id, i.id from directory.identities i
		join unnest($1::uuid[], $2::uuid[]) as asked (project_id, id) on i.id = asked.id and i.project_id = asked.project_id`,
		projects, ids)
	if err != nil {
		return nil, fmt.Errorf("find identity records: %w", err)
	}
	known := make(map[Record]struct{}, len(records))
	var record Record
	_, err = pgx.ForEachRow(rows, []any{&record.ProjectID, &record.ID}, func() error {
		known[record] = struct{}{}
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
