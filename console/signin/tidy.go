package signin

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// tidySlice is how many rows a statement of Tidy deletes.
const tidySlice = 1000

// Tidy deletes what has expired, and all of people who are removed, in slices. The service runs it every few minutes.
func (s *Service) Tidy(ctx context.Context) error {
	now := s.now()
	for _, list := range []struct {
		sql  string
		from any
	}{
		{`delete from ops.signin_sessions where id in (select id from ops.signin_sessions where expires_at <= $1 limit $2)`, now},
		{
			`delete from ops.signin_sessions where id in (select id from ops.signin_sessions where used_at <= $1 limit $2)`,
			now.Add(-s.Idle),
		},
		{`delete from ops.signin_links where token in (select token from ops.signin_links where expires_at <= $1 limit $2)`, now},
		{`delete from ops.signin_attempts where id in (select id from ops.signin_attempts where expires_at <= $1 limit $2)`, now},
		{`delete from ops.signin_failures where who in (select who from ops.signin_failures where until <= $1 limit $2)`, now},
	} {
		for {
			done, err := s.exec(ctx, "delete what has expired", list.sql, list.from, tidySlice)
			if err != nil {
				return err
			}
			if done < tidySlice {
				break
			}
		}
	}
	return s.endRemoved(ctx)
}

func (s *Service) endRemoved(ctx context.Context) error {
	for after := uuid.Nil; ; {
		rows, err := s.DB.Query(ctx, `select person_id from ops.signin_people where person_id > $1
			union select person_id from ops.signin_links where person_id > $1 order by 1 limit $2`, after, tidySlice)
		if err != nil {
			return wrap("list people", err)
		}
		people, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
		if err != nil || len(people) == 0 {
			return wrap("list people", err)
		}
		removed, err := s.Removed(ctx, people)
		if err != nil {
			return err
		}
		for _, id := range removed {
			if err := s.EndPerson(ctx, id); err != nil {
				return err
			}
		}
		after = people[len(people)-1]
	}
}

// EndPerson deletes all of a person: the sessions at once. It may be repeated.
func (s *Service) EndPerson(ctx context.Context, person uuid.UUID) error {
	b := &pgx.Batch{}
	for _, table := range []string{
		"ops.signin_sessions", "ops.signin_links", "ops.signin_recovery_codes", "ops.signin_accounts", "ops.signin_people",
	} {
		b.Queue(`delete from `+table+` where person_id = $1`, person)
	}
	return wrap("delete how a person signs in", s.DB.SendBatch(ctx, b).Close())
}
