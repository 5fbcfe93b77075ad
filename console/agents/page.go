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
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/secret"
)

const claimPath = "/agents/claim"

// claimView is the page of a claim. Code is there once the person approved.
type claimView struct {
	Email, ClientName, Address string
	Scopes                     []string
	RegisteredAt, EndsAt       time.Time
	Offers                     []web.Offer
	Writes                     bool
	Code                       string `json:"-"`
	Token                      string `json:"-"`
	Denied                     bool
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
	offers, err := s.offers(r, l)
	if err != nil {
		return err
	}
	v := claimView{
		Email: r.Person.Email, ClientName: l.ClientName, Address: l.Address, Scopes: strings.Fields(l.Scopes),
		RegisteredAt: l.CreatedAt, EndsAt: l.Ends, Offers: offers, Token: l.Token, Denied: l.Denied,
		Writes: slices.Contains(strings.Fields(l.Scopes), string(auth.Write)),
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
	offers, err := s.offers(r, l)
	if err != nil {
		return err
	}
	p, ok := r.Chosen(offers)
	if !ok {
		return fault.New(fault.NotFound, fault.CodeNotFound,
			"you may let no agent act there: choose an organization or a project")
	}
	deny := r.Field("decision") != "approve"
	if err := s.take(r, l, p, deny); err != nil {
		return err
	}
	back := claimPath + "?token=" + url.QueryEscape(l.Token)
	if deny {
		if err := s.Commands.DenyAgent(r.Context(), r.Command(), p.Organization, l.ID); err != nil {
			return err
		}
		_, err := s.DB.Exec(r.Context(), `update ops.agent_registrations set denied = true, address = '' where id = $1`, l.ID)
		if err == nil {
			r.Redirect(back)
		}
		return err
	}
	approval := organization.AgentApproved{
		OrganizationID: p.Organization, AgentID: l.ID, Scopes: strings.Fields(l.Scopes), ProjectID: p.Project,
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
func (s *Service) take(r *web.Request, l link, p web.Place, deny bool) error {
	return pgx.BeginFunc(r.Context(), s.DB, func(tx pgx.Tx) error {
		if s.Hold != nil {
			if live, err := s.Hold(r.Context(), tx, r.Session.ID); err != nil || !live {
				return cmp.Or(err, web.NotSignedIn())
			}
		}
		tag, err := tx.Exec(r.Context(), `update ops.agent_registrations set organization_id = $2, person_id = $3,
				project_id = $4, second_factor = $6
			where id = $1 and not denied and claimed_at is null and (organization_id is null or organization_id = $2
				and person_id = $3 and ($5 or project_id is not distinct from $4))`, l.ID, p.Organization, r.Person.ID,
			uuid.NullUUID{UUID: p.Project, Valid: p.Project != uuid.Nil}, deny, r.Session.SecondFactor)
		if err == nil && tag.RowsAffected() == 0 {
			err = fault.New(fault.Conflict, fault.CodeConflict, "you decided otherwise before: let the agent register again")
		}
		return err
	})
}

// offers are where the person may let the agent act: once decided, only in that organization.
func (s *Service) offers(r *web.Request, l link) ([]web.Offer, error) {
	offers, err := r.Offers(s.Access.Projects)
	return slices.DeleteFunc(offers, func(o web.Offer) bool {
		return l.Organization != nil && o.Places[0].Organization != *l.Organization
	}), err
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
