package directory

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/auth"
)

// copiedTraits is how many rows of traits are read at once.
const copiedTraits = 50

// DatedTraits are the traits of an identity from a time on, as a JSON object of strings.
type DatedTraits struct {
	From   time.Time
	Traits json.RawMessage
}

// EachTraits calls do with all that the traits of an identity were, the earliest first and the present ones last.
func (q *Queries) EachTraits(ctx context.Context, project auth.Project, name string, do func(DatedTraits) error) error {
	id, after := stream.IdentityID(project.Namespace, name), time.Unix(0, 0).AddDate(-2000, 0, 0)
	for {
		rows, err := q.db.Query(ctx, `select from_at, traits from directory.past_traits p where identity_id = $1
			and from_at > $2 and exists (select from directory.identities i where i.id = $1 and i.project_id = $3)
			order by from_at limit $4`, id, after, project.ID, copiedTraits)
		if err != nil {
			return fmt.Errorf("read the traits of an identity: %w", err)
		}
		page, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (t DatedTraits, err error) {
			var text string
			err = row.Scan(&t.From, &text)
			t.From, t.Traits = t.From.UTC(), json.RawMessage(text)
			return t, err
		})
		if err != nil {
			return fmt.Errorf("read the traits of an identity: %w", err)
		}
		for _, t := range page {
			if err := do(t); err != nil {
				return err
			}
			after = t.From
		}
		if len(page) < copiedTraits {
			return nil
		}
	}
}

// EachMembership calls do with all audiences that an identity belongs to.
func (q *Queries) EachMembership(
	ctx context.Context, project auth.Project, name string, do func(Judgement) error,
) error {
	reach, err := q.Reach(ctx, project, name)
	if err != nil {
		return err
	}
	for some := range slices.Chunk(reach.Audiences, maxMemberships) {
		var list []Judgement
		err := q.judging(ctx, func(ctx context.Context, tx pgx.Tx) (err error) {
			list, _, err = judge(ctx, tx, project, name, shortRule, some...)
			return err
		})
		if err != nil {
			return err
		}
		for _, j := range list {
			if j.IsMember {
				if err := do(j); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
