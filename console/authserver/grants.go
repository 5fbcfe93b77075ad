package authserver

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/statement"
	"github.com/annals-project/annals/projections/access"
)

// ErrToken reports an access token that is not known, was revoked, has expired, whose person is a member no more, or
// that lacks the second factor that the organization requires.
var ErrToken = errors.New("the access token is invalid or has expired")

// Grant is what a client may do for a person now.
type Grant struct {
	ID, Person, Organization uuid.UUID
	// Project is the slug of the one project, "" for all that the person may see.
	Project              string
	ClientID, ClientName string
	// Resource is what the token is for.
	Resource string
	Scopes   []auth.Scope
}

// useCounts is how precisely the last use of a grant is known.
const useCounts = time.Minute

// Authenticate finds what the bearer of an access token may do, at its resource alone. Membership and role are those of
// now: the scopes are those that the person may give in some project. A grant that was made without a second factor is
// refused while the organization requires one. The error is ErrToken, or that of the database.
func (s *Service) Authenticate(ctx context.Context, bearer string) (g Grant, err error) {
	if !strings.HasPrefix(bearer, accessPrefix) || len(bearer) != len(accessPrefix)+tokenLength {
		return Grant{}, ErrToken
	}
	now := s.now()
	var project uuid.UUID
	var scopes []string
	var second bool
	var used *time.Time
	err = s.DB.QueryRow(ctx, `select g.id, g.person_id, g.organization_id, g.project_id, g.client_id, g.client_name,
			t.resource, t.narrowed, coalesce(g.second_factor, false), g.used_at
		from ops.oauth_tokens t join ops.oauth_grants g on g.id = t.grant_id
		where t.access = $1 and t.access_until > $2`, hashOf(bearer), now).
		Scan(&g.ID, &g.Person, &g.Organization, &project, &g.ClientID, &g.ClientName, &g.Resource, &scopes, &second, &used)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && !s.serves(g.Resource) {
		return Grant{}, ErrToken
	}
	if err != nil {
		return Grant{}, fmt.Errorf("find a token: %w", err)
	}
	if live, err := s.Access.LiveGrants(ctx, []uuid.UUID{g.ID}); err != nil || len(live) == 0 {
		return Grant{}, cmp.Or(err, ErrToken)
	}
	person, _, err := s.Access.Memberships(ctx, g.Person)
	if err != nil {
		return Grant{}, err
	}
	member := false
	for _, m := range person.Memberships {
		if m.Organization == g.Organization && (second || !m.SecondFactor) {
			member, scopes = true, both(scopes, web.BestScopes(m))
		}
	}
	if !member {
		return Grant{}, ErrToken
	}
	for _, one := range scopes {
		g.Scopes = append(g.Scopes, auth.Scope(one))
	}
	if project != uuid.Nil {
		p, ok, err := s.Access.ProjectByID(ctx, project)
		if err != nil || !ok || p.OrganizationID != g.Organization {
			return Grant{}, errors.Join(err, ErrToken)
		}
		g.Project = p.Slug
	}
	if used == nil || now.Sub(*used) >= useCounts {
		_, err = s.DB.Exec(ctx, `update ops.oauth_grants set used_at = $2 where id = $1`, g.ID, now)
	}
	return g, wrap("record the use of a grant", err)
}

// Approved is a grant as its person sees it.
type Approved struct {
	ID, Organization uuid.UUID
	// Project is zero for all.
	Project                            uuid.UUID
	ClientID, ClientName, RedirectHost string
	Scopes                             []string
	ApprovedAt                         time.Time
	UsedAt                             *time.Time
}

// maxGrants bounds the grants that are listed.
const maxGrants = 500

// Grants lists the grants of a person, the newest first.
func (s *Service) Grants(ctx context.Context, person uuid.UUID) ([]Approved, error) {
	list, err := statement.All(ctx, s.DB, pgx.RowToStructByPos[Approved], `select id, organization_id, project_id, client_id,
		client_name, redirect_host, scopes, approved_at, used_at from ops.oauth_grants
		where person_id = $1 order by approved_at desc, id limit $2`, person, maxGrants)
	if err != nil {
		return nil, err
	}
	ids := make([]uuid.UUID, len(list))
	for i, a := range list {
		ids[i] = a.ID
	}
	live, err := s.Access.LiveGrants(ctx, ids)
	return slices.DeleteFunc(list, func(a Approved) bool { return !slices.Contains(live, a.ID) }), err
}

// RevokeGrant ends a grant of a person, and its tokens, at once. found is false if there is none.
func (s *Service) RevokeGrant(ctx context.Context, call engine.Call, person, id uuid.UUID) (found bool, err error) {
	var of uuid.UUID
	err = s.DB.QueryRow(ctx, `select organization_id from ops.oauth_grants where id = $1 and person_id = $2`, id, person).Scan(&of)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("find a grant: %w", err)
	}
	err = s.Commands.RevokeGrant(ctx, call, organization.GrantRevoked{OrganizationID: of, MemberID: person, GrantID: id})
	if err == nil {
		_, err = s.DB.Exec(ctx, `delete from ops.oauth_grants where id = $1`, id)
	}
	return err == nil, wrap("revoke a grant", err)
}

// revoke is the revocation endpoint (RFC 7009). Its answer does not tell whether the token was known.
func (s *Service) revoke(r *web.Request) (answer, error) {
	done := answer{status: http.StatusOK}
	if err := limited(r, s.calling, s.Calls); err != nil {
		return done, err
	}
	form, err := formOf(r)
	if err != nil {
		return done, err
	}
	token := form.get("token")
	if token == "" {
		return done, refuse(invalidRequest, "token is missing")
	}
	if !strings.HasPrefix(token, accessPrefix) && !strings.HasPrefix(token, refreshPrefix) {
		if s.Exchange != nil {
			_, err = s.Exchange.Revoke(r.Context(), token)
		}
		return done, err
	}
	var person, id uuid.UUID
	err = s.DB.QueryRow(r.Context(), `select g.person_id, g.id from ops.oauth_grants g
		join ops.oauth_tokens t on t.grant_id = g.id where (t.access = $1 or t.refresh = $1)
		and $2 in ('', g.client_id)`, hashOf(token), form.get("client_id")).Scan(&person, &id)
	if errors.Is(err, pgx.ErrNoRows) {
		return done, nil
	}
	if err != nil {
		return done, fmt.Errorf("find a token: %w", err)
	}
	call := r.Command()
	call.Principal = auth.Principal{Kind: "client"}
	_, err = s.RevokeGrant(r.Context(), call, person, id)
	return done, err
}

// tidySlice is how many rows a statement of Tidy deletes.
const tidySlice = 1000

// Tidy deletes what has ended, in slices: codes, tokens, clients that nobody uses, and the grants of people
// who are removed or left.
func (s *Service) Tidy(ctx context.Context) error {
	if err := errors.Join(s.RecordEndings(ctx, uuid.Nil), s.endRemoved(ctx), s.deleteEnded(ctx)); err != nil {
		return err
	}
	now := s.now()
	for _, list := range []struct {
		sql  string
		from time.Time
	}{
		{`delete from ops.oauth_codes where code in (select code from ops.oauth_codes where expires_at < $1 limit $2)`, now.Add(-noticed)},
		{`delete from ops.oauth_tokens where refresh in (select refresh from ops.oauth_tokens where refresh_until < $1 limit $2)`, now},
		{`delete from ops.oauth_requests where id in (select id from ops.oauth_requests where expires_at < $1 limit $2)`, now},
		{`update ops.oauth_clients set granted_at = $1 + interval '1 day' where id in (select id from ops.oauth_clients c
			where coalesce(granted_at <= $1, true) and exists
				(select from ops.oauth_grants g where g.client_key = sha256(convert_to(c.id, 'UTF8'))) limit $2)`, now.Add(-grantedCounts)},
		{`delete from ops.oauth_clients where id in (select id from ops.oauth_clients c
			where created_at < $1 and granted_at is null and not exists
				(select from ops.oauth_grants g where g.client_key = sha256(convert_to(c.id, 'UTF8'))) limit $2)`, now.Add(-newClient)},
		{`delete from ops.oauth_clients where id in (select id from ops.oauth_clients c where granted_at < $1 and not exists
			(select from ops.oauth_grants g where g.client_key = sha256(convert_to(c.id, 'UTF8'))) limit $2)`, now.Add(-unusedClient)},
	} {
		for {
			done, err := s.DB.Exec(ctx, list.sql, list.from, tidySlice)
			if err != nil {
				return fmt.Errorf("delete what has ended: %w", err)
			}
			if done.RowsAffected() < tidySlice {
				break
			}
		}
	}
	return nil
}

func (s *Service) endRemoved(ctx context.Context) error {
	return statement.EachPage(ctx, s.DB, tidySlice, `select distinct person_id from ops.oauth_grants where person_id > $1
		order by person_id limit $2`, func(people []uuid.UUID) error {
		removed, err := s.Removed(ctx, people)
		if err == nil {
			_, err = s.DB.Exec(ctx, `delete from ops.oauth_grants where person_id = any($1)`, removed)
		}
		return wrap("end the grants of removed people", err)
	})
}

// deleteEnded deletes the grants that the log ended, as by the end of a membership.
func (s *Service) deleteEnded(ctx context.Context) error {
	const page = `select id from ops.oauth_grants where id > $1 order by id limit $2`
	return statement.EachPage(ctx, s.DB, tidySlice, page, func(ids []uuid.UUID) error {
		ended, err := s.Access.EndedGrants(ctx, ids)
		if err == nil {
			_, err = s.DB.Exec(ctx, `delete from ops.oauth_grants where id = any($1)`, ended)
		}
		return wrap("delete ended grants", err)
	})
}

// tokenLength is the length of what newToken returns.
var tokenLength = base64.RawURLEncoding.EncodedLen(sha256.Size)

// newToken returns 32 random bytes as text.
func newToken() string {
	var b [sha256.Size]byte
	_, _ = rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// hashOf is what is stored of a token.
func hashOf(token string) []byte {
	sum := sha256.Sum256([]byte(token))
	return sum[:]
}

// wrap adds what failed to an error. It returns nil for no error.
func wrap(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// EndAll ends all grants of a person and their tokens in a transaction. RecordEndings writes that to the log.
func (s *Service) EndAll(ctx context.Context, tx pgx.Tx, person uuid.UUID) error {
	_, err := tx.Exec(ctx, `with ended as (delete from ops.oauth_grants where person_id = $1
			returning id, person_id, organization_id)
		insert into ops.oauth_endings (id, person_id, organization_id) select id, person_id, organization_id from ended
		on conflict do nothing`, person)
	return wrap("end the grants of a person", err)
}

// RecordEndings writes the ends of the grants of a person to the log, of all people for uuid.Nil. It may be repeated.
func (s *Service) RecordEndings(ctx context.Context, person uuid.UUID) error {
	return EachEnding(ctx, s.DB, "ops.oauth_endings", person, func(e Ending) error {
		call := engine.Call{Principal: auth.Principal{Kind: auth.Person, KeyID: e.Person}, ReceivedAt: s.now()}
		return s.Commands.RevokeGrant(ctx, call, organization.GrantRevoked{
			OrganizationID: e.Organization, MemberID: e.Person, GrantID: e.ID,
		})
	})
}

// Ending is the end of a grant or of an agent, which is in force and not in the log yet.
type Ending struct{ ID, Person, Organization uuid.UUID }

// EachEnding records the endings in a table, those of a person or, for uuid.Nil, of all people, and removes them. What
// is not found has nothing to end: an agent that was not approved, or a grant of an organization that is gone.
func EachEnding(
	ctx context.Context, db statement.Querier, table string, person uuid.UUID, record func(Ending) error,
) error {
	of := `$2::uuid = $2`
	if person != uuid.Nil {
		of = `person_id = $2`
	}
	for after := uuid.Nil; ; {
		list, err := statement.All(ctx, db, pgx.RowToStructByPos[Ending], `select id, person_id, organization_id from `+table+`
			where `+of+` and id > $1 order by id limit $3`, after, person, tidySlice)
		if err != nil || len(list) == 0 {
			return err
		}
		for _, e := range list {
			err := record(e)
			if f, is := errors.AsType[*fault.Error](err); is && f.Kind == fault.NotFound {
				err = nil
			}
			if err == nil {
				_, err = db.Exec(ctx, `delete from `+table+` where id = $1`, e.ID)
			}
			if err != nil {
				return fmt.Errorf("record an end of %s: %w", table, err)
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
