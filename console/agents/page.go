package agents

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/internal/secret"
	"github.com/annals-project/annals/projections/access"
)

const claimPath = "/agents/claim"

// claimView is the page of a claim. Code is there once the person approved.
type claimView struct {
	Email, ClientName, Address string
	Scopes                     []string
	RegisteredAt, EndsAt       time.Time
	Organizations              []access.Membership
	// Chosen is the organization that the person chose before, nil if none.
	Chosen *access.Membership
	Code   string `json:"-"`
	Token  string `json:"-"`
	Denied bool
}

// link is an open link with its registration.
type link struct {
	registration

	Token  string
	Ends   time.Time
	Sealed *secret.Sealed
}

// linkOf finds the link of a request for the person who is signed in. To everybody else it shows nothing of it. The
// faults are not-found, and forbidden for another account and for an address that is not verified.
func (s *Service) linkOf(r *web.Request) (l link, err error) {
	l.Token = r.FormValue("token")
	var sealKey *string
	var code []byte
	ctx := r.Context()
	err = s.DB.QueryRow(ctx, `select a.ends_at, a.seal_key, a.code, a.registration_id from ops.agent_attempts a
		where a.hash = $1 and a.ends_at > $2 and a.wrong < $3`, hashOf(l.Token), s.now(), maxWrong).
		Scan(&l.Ends, &sealKey, &code, &l.ID)
	if err == nil {
		var rows pgx.Rows
		if rows, err = s.DB.Query(ctx, selectRegistrations+`where r.id = $1 and r.ends_at > $2`, l.ID, s.now()); err == nil {
			l.registration, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[registration])
		}
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return l, fault.New(fault.NotFound, fault.CodeNotFound,
			"this link is unknown, used or has expired: ask the agent for another one")
	}
	if err != nil {
		return l, err
	}
	if !hmac.Equal(l.Hint, s.hintOf(r.Person.Email)) {
		return l, fault.New(fault.Forbidden, codeWrongAccount,
			"this link is for another person than %s: sign out, and sign in with the address that you gave to the agent", r.Person.Email)
	}
	verified, err := s.Verified(ctx, r.Person.ID, r.Person.Email)
	if err == nil && !verified {
		err = fault.New(fault.Forbidden, codeUnverified,
			"your address is not verified, so that you can let no agent in: verify it on the page of your account, or with a "+
				"link of who operates this service (annals person link)")
	}
	if sealKey != nil {
		l.Sealed = &secret.Sealed{Key: *sealKey, Data: code}
	}
	return l, err
}

// Codes of faults of the page.
const (
	codeWrongAccount = "wrong-account"
	codeUnverified   = "address-not-verified"
)

func (s *Service) claimPage(r *web.Request) error {
	l, err := s.linkOf(r)
	if err != nil {
		return err
	}
	v := claimView{
		Email: r.Person.Email, ClientName: l.ClientName, Address: l.Address, Scopes: strings.Fields(l.Scopes),
		RegisteredAt: l.CreatedAt, EndsAt: l.Ends, Organizations: r.Person.Memberships, Token: l.Token, Denied: l.Denied,
	}
	for _, m := range r.Person.Memberships {
		if l.Organization != nil && m.Organization == *l.Organization {
			v.Chosen = &m
		}
	}
	if l.Sealed != nil {
		if v.Code, err = s.Sealer.Open(l.ID, *l.Sealed); err != nil {
			return err
		}
	}
	return r.Render("claim.html", v)
}

// decide approves or denies an agent. The registration takes the organization before the event is appended, so that a
// repeat after a crash decides the same.
func (s *Service) decide(r *web.Request) error {
	l, err := s.linkOf(r)
	if err != nil {
		return err
	}
	m, project, err := s.chosen(r)
	if err != nil {
		return err
	}
	deny := r.Field("decision") != "approve"
	if err := s.take(r, l, m.Organization, project, deny); err != nil {
		return err
	}
	back := claimPath + "?token=" + url.QueryEscape(l.Token)
	if deny {
		if err := s.Commands.DenyAgent(r.Context(), r.Command(), m.Organization, l.ID); err != nil {
			return err
		}
		_, err := s.DB.Exec(r.Context(), `update ops.agent_registrations set denied = true, address = '' where id = $1`, l.ID)
		if err == nil {
			r.Redirect(back)
		}
		return err
	}
	approval := organization.AgentApproved{
		OrganizationID: m.Organization, AgentID: l.ID, Scopes: strings.Fields(l.Scopes), ProjectID: project,
	}
	if err := s.Commands.ApproveAgent(r.Context(), r.Command(), approval); err != nil {
		return err
	}
	if err := s.drawCode(r.Context(), l); err != nil {
		return err
	}
	r.Redirect(back)
	return nil
}

// take gives a registration the organization and the project that its person decided for.
func (s *Service) take(r *web.Request, l link, of, project uuid.UUID, deny bool) error {
	return pgx.BeginFunc(r.Context(), s.DB, func(tx pgx.Tx) error {
		if s.Hold != nil {
			if live, err := s.Hold(r.Context(), tx, r.Session.ID); err != nil || !live {
				return cmp.Or(err, web.NotSignedIn())
			}
		}
		tag, err := tx.Exec(r.Context(), `update ops.agent_registrations set organization_id = $2, person_id = $3,
				project_id = $4, second_factor = $6
			where id = $1 and not denied and claimed_at is null and (organization_id is null or organization_id = $2
				and person_id = $3 and ($5 or project_id is not distinct from $4))`, l.ID, of, r.Person.ID,
			uuid.NullUUID{UUID: project, Valid: project != uuid.Nil}, deny, r.Session.SecondFactor)
		if err == nil && tag.RowsAffected() == 0 {
			err = fault.New(fault.Conflict, fault.CodeConflict, "you decided otherwise before: let the agent register again")
		}
		return err
	})
}

// chosen is the organization and the project that a form names. The project is zero for all.
func (s *Service) chosen(r *web.Request) (m access.Membership, project uuid.UUID, err error) {
	for _, m = range r.Person.Memberships {
		if m.Organization.String() == r.Field("organization") {
			break
		}
	}
	slug := r.Field("project")
	switch {
	case m.Organization.String() != r.Field("organization"):
		return m, project, fault.New(fault.NotFound, fault.CodeNotFound, "you are no member of such an organization")
	case m.SecondFactor && !r.Session.SecondFactor:
		return m, project, fault.New(fault.Forbidden, fault.CodeInsufficientScope,
			"%s requires a second factor: set it up on the page of your account, and sign in with it", m.Name)
	case slug == "":
		return m, project, nil
	}
	p, ok, err := s.Access.ProjectBySlug(r.Context(), m.Organization, slug)
	if err == nil && (!ok || m.Access[p.ID].Of(m.Role) == organization.NoAccess) {
		err = fault.New(fault.NotFound, fault.CodeNotFound, "there is no project %q", web.Cut(slug, 60))
	}
	return m, p.ID, err
}

// drawCode gives a link a code of six digits, once.
func (s *Service) drawCode(ctx context.Context, l link) error {
	n, err := rand.Int(rand.Reader, big.NewInt(1_000_000))
	if err != nil {
		return err
	}
	sealed, err := s.Sealer.Seal(l.ID, fmt.Sprintf("%06d", n))
	if err != nil {
		return err
	}
	_, err = s.DB.Exec(ctx, `update ops.agent_attempts set seal_key = $2, code = $3 where hash = $1 and code is null`,
		hashOf(l.Token), sealed.Key, sealed.Data)
	return err
}
