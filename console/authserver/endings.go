package authserver

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/projections/access"
)

// EndAll ends all grants of a person and their tokens in a transaction. RecordEndings writes that to the log.
func (s *Service) EndAll(ctx context.Context, tx pgx.Tx, person uuid.UUID) error {
	_, err := tx.Exec(ctx, `with ended as (delete from ops.oauth_grants where person_id = $1
			returning id, person_id, organization_id)
		insert into ops.oauth_endings (id, person_id, organization_id) select id, person_id, organization_id from ended
		on conflict do nothing`, person)
	return wrap("end the grants of a person", err)
}

// RecordEndings writes the ends of the grants of a person to the log. It may be repeated.
func (s *Service) RecordEndings(ctx context.Context, person uuid.UUID) error {
	return s.record(ctx, `select id, person_id, organization_id from ops.oauth_endings
		where person_id = $2 and id > $1 order by id limit $3`, person)
}

// recordEndings is RecordEndings for all people.
func (s *Service) recordEndings(ctx context.Context) error {
	return s.record(ctx, `select id, person_id, organization_id from ops.oauth_endings
		where $2::uuid = $2 and id > $1 order by id limit $3`, uuid.Nil)
}

func (s *Service) record(ctx context.Context, page string, person uuid.UUID) error {
	type ending struct{ ID, Person, Organization uuid.UUID }
	for after := uuid.Nil; ; {
		rows, err := s.DB.Query(ctx, page, after, person, tidySlice)
		if err != nil {
			return fmt.Errorf("list ended grants: %w", err)
		}
		list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[ending])
		if err != nil || len(list) == 0 {
			return wrap("list ended grants", err)
		}
		for _, e := range list {
			call := commands.Call{Principal: auth.Principal{Kind: auth.Person, KeyID: e.Person}, ReceivedAt: s.now()}
			err := s.Commands.RevokeGrant(ctx, call, organization.GrantRevoked{
				OrganizationID: e.Organization, MemberID: e.Person, GrantID: e.ID,
			})
			if f, is := errors.AsType[*fault.Error](err); is && f.Kind == fault.NotFound { // with its organization
				err = nil
			}
			if err == nil {
				_, err = s.DB.Exec(ctx, `delete from ops.oauth_endings where id = $1`, e.ID)
			}
			if err != nil {
				return fmt.Errorf("record the end of a grant: %w", err)
			}
		}
		after = list[len(list)-1].ID
	}
}

// lacksFactor reports whether a grant was made without the second factor that its organization requires now.
func (s *Service) lacksFactor(ctx context.Context, grant uuid.UUID) (bool, error) {
	var person, of uuid.UUID
	err := s.DB.QueryRow(ctx, `select person_id, organization_id from ops.oauth_grants
		where id = $1 and second_factor is not true`, grant).Scan(&person, &of)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("find a grant: %w", err)
	}
	p, _, err := s.Access.Memberships(ctx, person)
	return RequiresFactor(p, of), err
}

// RequiresFactor reports whether an organization of a person requires a second factor.
func RequiresFactor(p access.Person, of uuid.UUID) bool {
	return slices.ContainsFunc(p.Memberships, func(m access.Membership) bool {
		return m.Organization == of && m.SecondFactor
	})
}
