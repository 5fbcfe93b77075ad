package signin

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/internal/visits"
)

// tidySlice is how many rows a statement of Tidy deletes.
const tidySlice = 1000

// Tidy deletes what has expired, and all of people who are removed, in slices. The service runs it every few minutes.
func (s *Service) Tidy(ctx context.Context) error {
	for _, ended := range []struct {
		table, key, column string
		before             time.Time
	}{
		{"ops.signin_sessions", "id", "expires_at", s.now()},
		{"ops.signin_sessions", "id", "used_at", s.now().Add(-s.Idle)},
		{"ops.signin_browsers", "token", "used_at", s.now().Add(-KnownLife)},
		{"ops.signin_links", "token", "expires_at", s.now()},
		{"ops.signin_attempts", "id", "expires_at", s.now()},
		{"ops.signin_failures", "who", "until", s.now()},
	} {
		for done := int64(tidySlice); done == tidySlice; {
			var err error
			if done, err = exec(ctx, s.DB, `delete from `+ended.table+` where `+ended.key+` in (select `+ended.key+` from `+
				ended.table+` where `+ended.column+` <= $1 limit $2)`, ended.before, tidySlice); err != nil {
				return err
			}
		}
	}
	return s.endRemoved(ctx)
}

func (s *Service) endRemoved(ctx context.Context) error {
	for after := uuid.Nil; ; {
		people, err := all(ctx, s.DB, pgx.RowTo[uuid.UUID], `select person_id from ops.signin_people where person_id > $1
			union select person_id from ops.signin_links where person_id > $1 order by 1 limit $2`, after, tidySlice)
		if err != nil || len(people) == 0 {
			return err
		}
		removed, err := s.Removed(ctx, people)
		for _, id := range removed {
			err = errors.Join(err, s.EndPerson(ctx, id))
		}
		if err != nil {
			return err
		}
		after = people[len(people)-1]
	}
}

// EndPerson deletes all of a person: the sessions at once. It may be repeated.
func (s *Service) EndPerson(ctx context.Context, person uuid.UUID) error {
	err := forget(ctx, s.DB, person, "ops.signin_sessions", "ops.signin_browsers", "ops.signin_links",
		"ops.signin_recovery_codes", "ops.signin_accounts", "ops.signin_proofs", "ops.signin_people")
	return errors.Join(err, visits.Queue{DB: s.DB}.Forget(ctx, person))
}
