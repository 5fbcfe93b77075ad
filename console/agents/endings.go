package agents

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/console/authserver"
	"github.com/annals-project/annals/domain/fault"
)

// EndAll ends all agents of a person in a transaction: what is open of their claims, and their refresh tokens. An
// access token works on until it expires. RecordEndings writes that to the log.
func (s *Service) EndAll(ctx context.Context, tx pgx.Tx, person uuid.UUID) error {
	_, err := tx.Exec(ctx, `with ended as (delete from ops.agent_registrations where person_id = $1 and not denied
			returning id, person_id, organization_id)
		insert into ops.agent_endings (id, person_id, organization_id) select id, person_id, organization_id from ended
		on conflict do nothing`, person)
	if err != nil {
		return fmt.Errorf("end the agents of a person: %w", err)
	}
	return nil
}

// RecordEndings writes the ends of the agents of a person to the log. It may be repeated.
func (s *Service) RecordEndings(ctx context.Context, person uuid.UUID) error {
	return s.record(ctx, `select id, organization_id from ops.agent_endings
		where person_id = $2 and id > $1 order by id limit $3`, person)
}

// recordEndings is RecordEndings for all people.
func (s *Service) recordEndings(ctx context.Context) error {
	return s.record(ctx, `select id, organization_id from ops.agent_endings
		where $2::uuid = $2 and id > $1 order by id limit $3`, uuid.Nil)
}

func (s *Service) record(ctx context.Context, page string, person uuid.UUID) error {
	type ending struct{ ID, Organization uuid.UUID }
	for after := uuid.Nil; ; {
		rows, err := s.DB.Query(ctx, page, after, person, tidied)
		if err != nil {
			return fmt.Errorf("list ended agents: %w", err)
		}
		list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[ending])
		if err != nil {
			return fmt.Errorf("list ended agents: %w", err)
		}
		if len(list) == 0 {
			return nil
		}
		for _, e := range list {
			err := s.Commands.RevokeAgent(ctx, s.callOf(e.ID), e.Organization, e.ID, uuid.Nil)
			if f, is := errors.AsType[*fault.Error](err); is && f.Kind == fault.NotFound { // it was not approved
				err = nil
			}
			if err == nil {
				_, err = s.DB.Exec(ctx, `delete from ops.agent_endings where id = $1`, e.ID)
			}
			if err != nil {
				return fmt.Errorf("record the end of an agent: %w", err)
			}
		}
		after = list[len(list)-1].ID
	}
}

// allowed reports whether an agent may get another token: it has not ended with all of its person and, if the
// organization requires a second factor, it was approved with one.
func (s *Service) allowed(ctx context.Context, id uuid.UUID) (bool, error) {
	var ended, second bool
	err := s.DB.QueryRow(ctx, `select exists (select from ops.agent_endings where id = $1),
		exists (select from ops.agent_registrations where id = $1 and second_factor)`, id).Scan(&ended, &second)
	if err != nil || ended || second {
		return !ended, err
	}
	h, ok, err := s.Access.Agent(ctx, id)
	if err != nil || !ok {
		return false, err
	}
	p, _, err := s.Access.Memberships(ctx, h.Person)
	return !authserver.RequiresFactor(p, h.Organization), err
}
