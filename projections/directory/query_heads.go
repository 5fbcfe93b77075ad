package directory

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/work"
)

// RecordHeads returns, for records of a project, the stream revision up to which they are applied,
// and the current record; also for removed ones. Records without events are absent. A record with
// an open bulk write is as that write leaves it. The fault is service-unavailable while the
// projection is stopped.
func (q *Queries) RecordHeads(
	ctx context.Context, project auth.Project, ids []uuid.UUID,
) (map[uuid.UUID]work.RecordHead, error) {
	if err := q.requireRunning(ctx); err != nil {
		return nil, err
	}
	rows, err := q.db.Query(ctx, `select h.id, h.revision, i.id is not null, i.identity, i.origin, i.created_at,
		i.updated_at
		from directory.heads h left join directory.identities i on i.id = h.id
		where h.id = any($2::uuid[]) and h.project_id = $1 and h.revision >= 0`, project.ID, ids)
	if err != nil {
		return nil, fmt.Errorf("read heads of identity records: %w", err)
	}
	heads := make(map[uuid.UUID]work.RecordHead, len(ids))
	var (
		id                   uuid.UUID
		revision             int64
		there                bool
		name, origin         *string
		createdAt, updatedAt *time.Time
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &revision, &there, &name, &origin, &createdAt, &updatedAt}, func() error {
		s := work.RecordHead{Revision: eventstore.Revision(revision), Hidden: there && name == nil}
		if name != nil {
			s.Record = &identity.Record{
				Identity: *name, Origin: identity.Origin(*origin), CreatedAt: createdAt.UTC(), UpdatedAt: updatedAt.UTC(),
			}
		}
		heads[id] = s
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read heads of identity records: %w", err)
	}
	return heads, nil
}
