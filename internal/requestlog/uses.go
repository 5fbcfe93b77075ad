package requestlog

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// maxUses is the most kinds of calls whose last call LastUses looks for.
const maxUses = 5000

// LastUses returns when each key of a project was used last, within the retention. Keys of one name whose values also
// begin alike are one. Refused calls count: who has the key tries it.
func (l *Log) LastUses(ctx context.Context, project uuid.UUID) (map[Key]time.Time, error) {
	rows, err := l.DB.Query(ctx, `select k.key_name, k.key_prefix, max(r.received_at)
		from (select kind, key_name, key_prefix from ops.request_kinds where project_id = $1 and key_prefix <> ''
			order by kind desc limit $2) k
		cross join lateral (select received_at from ops.requests where kind = k.kind order by received_at desc limit 1) r
		group by 1, 2`, project, maxUses)
	if err != nil {
		return nil, fmt.Errorf("read last uses of keys: %w", err)
	}
	uses := map[Key]time.Time{}
	var key Key
	var at time.Time
	_, err = pgx.ForEachRow(rows, []any{&key.Name, &key.Prefix, &at}, func() error {
		uses[key] = at.UTC()
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read last uses of keys: %w", err)
	}
	return uses, nil
}
