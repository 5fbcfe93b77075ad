package datapoints

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/auth"
)

// Placement is what decides who reads a data point: its audience, and the time of its newest revision.
type Placement struct {
	// Deleted is true if it was deleted: all else is zero then.
	Deleted  bool `json:"isDeleted"`
	Revision int  `json:"revision,omitempty"`
	// Captured is the newest revision whose memories are derived, 0 for none.
	Captured int `json:"captured"`
	// Audience is zero for what is project-visible.
	Audience   uuid.UUID `json:"audienceId"`
	OccurredAt time.Time `json:"occurredAt"`
}

// The items of a data point outlive it, and a deletion is there at once.
const selectPlacement = `select d.id is null, coalesce(d.revision, 0), coalesce(d.captured, 0),
		coalesce(d.audience, '00000000-0000-0000-0000-000000000000'), coalesce(d.occurred_at, 'epoch')
	from (select) one left join datapoints.data_points d on d.id = $2 and d.project_id = $1
	where d.id is not null
		or exists (select from datapoints.items i where i.data_point = $2 and i.project_id = $1
			and i.outcome not in ('unchanged', 'moved'))
		or exists (select from datapoints.erasures e where e.data_point = $2 and e.project_id = $1)`

// Placement finds a data point of a project, as the projection is once it has passed the head of the log. ok is false
// if none was sent.
func (q Queries) Placement(ctx context.Context, project auth.Project, id uuid.UUID) (p Placement, ok bool, err error) {
	if err := q.CatchUp(ctx); err != nil {
		return p, false, err
	}
	rows, err := q.DB.Query(ctx, selectPlacement, project.ID, id)
	if err != nil {
		return p, false, fmt.Errorf("find the audience of a data point: %w", err)
	}
	defer rows.Close()
	if ok = rows.Next(); ok {
		err = rows.Scan(&p.Deleted, &p.Revision, &p.Captured, &p.Audience, &p.OccurredAt)
		p.OccurredAt = p.OccurredAt.UTC()
	}
	if rows.Close(); err == nil {
		err = rows.Err()
	}
	if err != nil {
		return p, false, fmt.Errorf("find the audience of a data point: %w", err)
	}
	return p, ok, nil
}
