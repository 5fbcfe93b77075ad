package signin

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// State is how a person signs in.
type State struct {
	Person uuid.UUID
	// Password is whether there is one, Generated whether the first start made it.
	Password, Generated bool
	SecondFactor        bool
	// RecoveryCodes and Accounts count those that are left, and those at a provider.
	RecoveryCodes, Accounts int
	Zone                    string
	proofs                  [][]byte
}

// States returns how people sign in. Those who never could are missing.
func (s *Service) States(ctx context.Context, people ...uuid.UUID) (map[uuid.UUID]State, error) {
	list, err := all(ctx, s.DB, func(row pgx.CollectableRow) (st State, err error) {
		err = row.Scan(&st.Person, &st.Password, &st.Generated, &st.SecondFactor, &st.RecoveryCodes, &st.Accounts, &st.Zone,
			&st.proofs)
		return st, err
	}, `select person_id, password is not null, generated, totp is not null,
			(select count(*) from ops.signin_recovery_codes c where c.person_id = p.person_id),
			(select count(*) from ops.signin_accounts a where a.person_id = p.person_id), zone, `+proofsOf+`
		from ops.signin_people p where person_id = any($1)`, people)
	states := make(map[uuid.UUID]State, len(people))
	for _, st := range list {
		states[st.Person] = st
	}
	return states, err
}

// LastSeen returns when people last signed in, or used a session that shows an organization, or none yet. It knows what
// open sessions and known browsers show.
func (s *Service) LastSeen(
	ctx context.Context, organization uuid.UUID, people []uuid.UUID,
) (map[uuid.UUID]time.Time, error) {
	type use struct {
		Person uuid.UUID
		At     time.Time
	}
	list, err := all(ctx, s.DB, pgx.RowToStructByPos[use], `select person_id, max(used_at) from (
			select person_id, used_at from ops.signin_sessions where person_id = any($1) and not pending
				and (organization_id is null or organization_id = $2)
			union all select person_id, used_at from ops.signin_browsers where person_id = any($1)) u
		group by person_id`, people, organization)
	uses := make(map[uuid.UUID]time.Time, len(list))
	for _, u := range list {
		uses[u.Person] = u.At.UTC()
	}
	return uses, err
}

// SetZone sets the time zone of a person; "" is none. known is false for a name that is no time zone.
func (s *Service) SetZone(ctx context.Context, id uuid.UUID, zone string) (known bool, err error) {
	if _, err := time.LoadLocation(zone); err != nil || zone == "Local" {
		return false, nil
	}
	_, err = exec(ctx, s.DB, `insert into ops.signin_people (person_id, zone) values ($1, $2)
		on conflict (person_id) do update set zone = excluded.zone`, id, zone)
	return err == nil, err
}
