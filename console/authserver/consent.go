package authserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/internal/auth"
)

// codeLives is how long a code works.
const codeLives = time.Minute

// consented is what the page shows.
type consented struct {
	Client, Host     string
	Loopback, Writes bool
	// Operates reports that only an Owner or Admin can allow it.
	Operates bool
	Scopes   []string
	Offers   []web.Offer
}

// offers are where a person may let a client act now: where the person may do something. A resource that needs the
// scope memory:operate is offered to those alone who may give it.
func (s *Service) offers(r *web.Request, resource string) ([]web.Offer, error) {
	operates := resource == s.Resource(auth.MCPOperatorPath)
	offers, err := r.Offers(s.Access.Projects)
	return slices.DeleteFunc(offers, func(o web.Offer) bool {
		may := o.Places[0].Scopes
		return len(may) == 0 || operates && !slices.Contains(may, string(auth.Operate))
	}), err
}

// both are the scopes of two lists.
func both(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(one string) bool { return !slices.Contains(b, one) })
}

func (s *Service) consentPage(r *web.Request) error {
	q, err := s.request(r)
	if err != nil {
		return err
	}
	if err := s.complete(&q); err != nil {
		return q.faulty(r, err)
	}
	offers, err := s.offers(r, q.resource)
	if err != nil {
		return err
	}
	if q.get("prompt") != "consent" && q.remembers {
		if id, ok, err := s.remembered(r.Context(), r.Person.ID, r.Session.SecondFactor, q, offers); err != nil || ok {
			if err == nil {
				err = s.answer(r, q, id, q.scopes)
			}
			return err
		}
	}
	return r.Render("consent.html", shown(q, offers))
}

func shown(q request, offers []web.Offer) consented {
	return consented{
		Client: q.client.Name, Host: q.host, Loopback: q.loopback, Scopes: q.scopes, Offers: offers,
		Writes: slices.Contains(q.scopes, string(auth.Write)), Operates: strings.HasSuffix(q.resource, auth.MCPOperatorPath),
	}
}

// remembered finds the one grant that holds all that a client asks for, where the person may still give it. It was made
// in a session that had shown a second factor if and only if this one has: a code of it stands for that session.
func (s *Service) remembered(
	ctx context.Context, person uuid.UUID, second bool, q request, offers []web.Offer,
) (id uuid.UUID, ok bool, err error) {
	rows, err := s.DB.Query(ctx, `select id, organization_id, project_id from ops.oauth_grants
		where person_id = $1 and client_id = $2 and redirect_host = $3 and scopes @> $4
			and coalesce(second_factor, false) = $5 limit 2`, person, q.client.ID, q.host, q.scopes, second)
	if err != nil {
		return uuid.Nil, false, fmt.Errorf("find a grant: %w", err)
	}
	type row struct{ ID, Organization, Project uuid.UUID }
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
	if err != nil || len(list) != 1 {
		return uuid.Nil, false, wrap("find a grant", err)
	}
	if live, err := s.Access.LiveGrants(ctx, []uuid.UUID{list[0].ID}); err != nil || len(live) == 0 {
		return uuid.Nil, false, err
	}
	for _, o := range offers {
		for _, p := range o.Places {
			if p.Organization == list[0].Organization && p.Project == list[0].Project {
				return list[0].ID, len(both(q.scopes, p.Scopes)) == len(q.scopes), nil
			}
		}
	}
	return uuid.Nil, false, nil
}

// consent is the decision of the person.
func (s *Service) consent(r *web.Request) error {
	q, err := s.request(r)
	if err != nil {
		return err
	}
	if err := s.complete(&q); err != nil {
		return q.faulty(r, err)
	}
	switch r.Field("decision") {
	case "deny":
		return q.back(r, refuse(accessDenied, "the person refused").values())
	case "approve":
	default:
		return fault.New(fault.Invalid, fault.CodeInvalidRequest, "decision is approve or deny")
	}
	offers, err := s.offers(r, q.resource)
	if err != nil {
		return err
	}
	if p, ok := r.Chosen(offers); ok {
		return s.approve(r, q, p)
	}
	return r.Invalid(fault.New(fault.Invalid, fault.CodeInvalidRequest, "choose an organization or a project"),
		"consent.html", shown(q, offers))
}

// approve records the decision, and then makes the grant and a code of it. What is asked for and what the person may
// give there is granted.
func (s *Service) approve(r *web.Request, q request, p web.Place) error {
	scopes := both(q.scopes, p.Scopes)
	if len(scopes) == 0 {
		return q.back(r, refuse(invalidScope, "the person may give none of these scopes there").values())
	}
	ctx, id := r.Context(), uuid.New()
	err := s.DB.QueryRow(ctx, `select id from ops.oauth_grants where person_id = $1 and organization_id = $2
		and project_id = $3 and client_id = $4 and redirect_host = $5`,
		r.Person.ID, p.Organization, p.Project, q.client.ID, q.host).Scan(&id)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("find a grant: %w", err)
	}
	approved := organization.GrantApproved{
		OrganizationID: p.Organization, MemberID: r.Person.ID, GrantID: id, ProjectID: p.Project, Scopes: scopes,
	}
	err = s.Commands.ApproveGrant(ctx, r.Command(), approved)
	if f, is := errors.AsType[*fault.Error](err); is && f.Code == fault.CodeConflict { // ended with a former membership
		if _, err := s.DB.Exec(ctx, `delete from ops.oauth_grants where id = $1`, id); err != nil {
			return fmt.Errorf("delete an ended grant: %w", err)
		}
		id = uuid.New()
		approved.GrantID = id
		err = s.Commands.ApproveGrant(ctx, r.Command(), approved)
	}
	if err != nil {
		return err
	}
	if id, err = s.makeGrant(r, q, p, id, scopes); err != nil {
		return err
	}
	return s.answer(r, q, id, scopes)
}

// makeGrant makes a grant, or adds scopes to the one that is there. What was made without a second factor ends before
// the grant is made with one: its tokens must not pass for newer ones.
func (s *Service) makeGrant(r *web.Request, q request, p web.Place, id uuid.UUID, scopes []string) (uuid.UUID, error) {
	ctx := r.Context()
	err := pgx.BeginFunc(ctx, s.DB, func(tx pgx.Tx) error {
		if s.Hold != nil {
			if live, err := s.Hold(ctx, tx, r.Session.ID); err != nil || !live {
				return cmp.Or(err, web.NotSignedIn())
			}
		}
		if r.Session.SecondFactor {
			_, err := tx.Exec(ctx, `delete from ops.oauth_grants where id = $1 and second_factor is not true`, id)
			if err != nil {
				return err
			}
		}
		if _, err := tx.Exec(ctx, `update ops.oauth_clients set granted_at = $2 where id = $1`, q.client.ID, s.now()); err != nil {
			return err
		}
		return tx.QueryRow(ctx, `insert into ops.oauth_grants
			(id, person_id, organization_id, project_id, client_id, client_name, redirect_host, scopes, approved_at,
				second_factor, client_key, redirect_key)
			values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, sha256(convert_to($5, 'UTF8')), sha256(convert_to($7, 'UTF8')))
			on conflict (person_id, organization_id, project_id, client_key, redirect_key) do update set
				client_name = excluded.client_name, approved_at = excluded.approved_at, second_factor = excluded.second_factor,
				scopes = (select array_agg(distinct one order by one) from unnest(oauth_grants.scopes || excluded.scopes) one)
			returning id`, id, r.Person.ID, p.Organization, p.Project, q.client.ID, q.client.Name, q.host, scopes,
			s.now(), r.Session.SecondFactor).Scan(&id)
	})
	return id, wrap("make a grant", err)
}

// answer sends a code of a grant to the client.
func (s *Service) answer(r *web.Request, q request, grant uuid.UUID, scopes []string) error {
	code := newToken()
	_, err := s.DB.Exec(r.Context(), `insert into ops.oauth_codes
		(code, grant_id, family, redirect, challenge, resource, scopes, expires_at) values ($1, $2, $3, $4, $5, $6, $7, $8)`,
		hashOf(code), grant, uuid.New(), q.redirect, q.get("code_challenge"), q.resource, scopes, s.now().Add(codeLives))
	if err != nil {
		return fmt.Errorf("make a code: %w", err)
	}
	return q.back(r, url.Values{"code": {code}})
}
