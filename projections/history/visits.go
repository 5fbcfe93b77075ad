package history

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/visit"
)

// LastSignIns returns when people last signed in, by the visits that an organization keeps.
func LastSignIns(ctx context.Context, db *pgxpool.Pool, organization uuid.UUID) (map[uuid.UUID]time.Time, error) {
	rows, err := db.Query(ctx, `select principal, max(at) from history.entries
		where organization_id = $1 and type = $2 and not of_thing group by principal`,
		organization, visit.SignedIn{}.EventType())
	if err != nil {
		return nil, fmt.Errorf("find last sign-ins: %w", err)
	}
	last := map[uuid.UUID]time.Time{}
	var principal string
	var at time.Time
	_, err = pgx.ForEachRow(rows, []any{&principal, &at}, func() error {
		if id, err := uuid.Parse(strings.TrimPrefix(principal, byPeople)); err == nil {
			last[id] = at.UTC()
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("find last sign-ins: %w", err)
	}
	return last, nil
}
