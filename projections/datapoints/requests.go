package datapoints

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/internal/auth"
)

// FailedSendIDs is a query of the ids of the failed sends of project $1 whose failure still counts.
const FailedSendIDs = `select id from datapoints.sends where failure_open and project_id = $1`

// SendPhase is the phase of a send, as the request log shows it.
type SendPhase struct {
	Phase string
	// Failed is true if the send failed, and neither a newer revision nor a deletion overtook that.
	Failed bool
}

// Phases reads the phases of sends at the position of the projection. A send that the project does
// not have up to there is not in the map.
func (q Queries) Phases(
	ctx context.Context, project auth.Project, sends []uuid.UUID,
) (map[uuid.UUID]SendPhase, error) {
	phases := make(map[uuid.UUID]SendPhase, len(sends))
	if len(sends) == 0 {
		return phases, nil
	}
	rows, err := q.DB.Query(ctx, `select s.id,
			case when `+endedByDeletion+` then 'indexed' else s.phase end, s.failure_open and not `+endedByDeletion+`
		from datapoints.sends s`+waitingItems+`where s.id = any($2::uuid[]) and s.project_id = $1`, project.ID, sends)
	if err != nil {
		return nil, fmt.Errorf("read phases of sends: %w", err)
	}
	var id uuid.UUID
	var p SendPhase
	_, err = pgx.ForEachRow(rows, []any{&id, &p.Phase, &p.Failed}, func() error { phases[id] = p; return nil })
	if err != nil {
		return nil, fmt.Errorf("read phases of sends: %w", err)
	}
	return phases, nil
}

// Deleted returns which of some data points of the project are deleted, at the position of the projection.
func (q Queries) Deleted(
	ctx context.Context, project auth.Project, dataPoints []uuid.UUID,
) (map[uuid.UUID]bool, error) {
	if len(dataPoints) == 0 {
		return map[uuid.UUID]bool{}, nil
	}
	rows, err := q.DB.Query(ctx, `select distinct data_point from datapoints.items
		where data_point = any($2::uuid[]) and outcome not in ('unchanged', 'moved') and project_id = $1
			and deleted_at is not null`, project.ID, dataPoints)
	if err != nil {
		return nil, fmt.Errorf("look for deleted data points: %w", err)
	}
	deleted := map[uuid.UUID]bool{}
	var id uuid.UUID
	if _, err := pgx.ForEachRow(rows, []any{&id}, func() error { deleted[id] = true; return nil }); err != nil {
		return nil, fmt.Errorf("look for deleted data points: %w", err)
	}
	return deleted, nil
}

// SourceIDs returns the source ids of those of some data points of the project that are live, at the position of the
// projection.
func (q Queries) SourceIDs(
	ctx context.Context, project auth.Project, dataPoints []uuid.UUID,
) (map[uuid.UUID]string, error) {
	ids := map[uuid.UUID]string{}
	if len(dataPoints) == 0 {
		return ids, nil
	}
	rows, err := q.DB.Query(ctx, `select id, source_id from datapoints.data_points
		where id = any($2::uuid[]) and project_id = $1`, project.ID, dataPoints)
	if err != nil {
		return nil, fmt.Errorf("read source ids: %w", err)
	}
	var id uuid.UUID
	var source string
	if _, err := pgx.ForEachRow(rows, []any{&id, &source}, func() error { ids[id] = source; return nil }); err != nil {
		return nil, fmt.Errorf("read source ids: %w", err)
	}
	return ids, nil
}

// AnyDeleted reports whether one of some data points of the project is deleted, at the position of the
// projection.
func (q Queries) AnyDeleted(
	ctx context.Context, project auth.Project, dataPoints []uuid.UUID,
) (deleted bool, err error) {
	if len(dataPoints) == 0 {
		return false, nil
	}
	err = q.DB.QueryRow(ctx, `select exists (select from datapoints.items
		where data_point = any($2::uuid[]) and outcome not in ('unchanged', 'moved') and project_id = $1
			and deleted_at is not null)
		or exists (select from datapoints.follow_ups where kind in ('delete', 'text') and key = any($2::uuid[])
			and project_id = $1)`, project.ID, dataPoints).Scan(&deleted)
	if err != nil {
		return false, fmt.Errorf("look for deleted data points: %w", err)
	}
	return deleted, nil
}
