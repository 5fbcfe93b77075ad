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
	"github.com/annals-project/annals/internal/todo"
)

// Standing is how far the streams of records of a project were applied, also of those that were removed, with what stands there. What
// has no events yet is not in the answer. Of a record with an open bulk write it tells that write's effect. The fault is
// service-unavailable while the projection is stopped.
func (q *Queries) Standing(ctx context.Context, project auth.Project, ids []uuid.UUID) (map[uuid.UUID]todo.Standing, error) {
	if err := q.running(ctx); err != nil {
		return nil, err
	}
	rows, err := q.db.Query(ctx, `select h.id, h.revision, i.id is not null, i.identity, i.origin, i.created_at, i.updated_at
		from directory.heads h left join directory.identities i on i.id = h.id
		where h.id = any($2::uuid[]) and h.project_id = $1 and h.revision >= 0`, [16]byte(project.ID), idsOf(ids))
	if err != nil {
		return nil, fmt.Errorf("read what stands of identities: %w", err)
	}
	standing := make(map[uuid.UUID]todo.Standing, len(ids))
	var (
		id                   [16]byte
		revision             int64
		there                bool
		name, origin         *string
		createdAt, updatedAt *time.Time
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &revision, &there, &name, &origin, &createdAt, &updatedAt}, func() error {
		s := todo.Standing{Revision: eventstore.Revision(revision), Hidden: there && name == nil}
		if name != nil {
			s.Record = &identity.Record{Identity: *name, Origin: identity.Origin(*origin), CreatedAt: createdAt.UTC(), UpdatedAt: updatedAt.UTC()}
		}
		standing[id] = s
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read what stands of identities: %w", err)
	}
	return standing, nil
}
