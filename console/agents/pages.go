package agents

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"embed"
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
	"github.com/annals-project/annals/internal/authmd"
	"github.com/annals-project/annals/internal/secret"
	"github.com/annals-project/annals/projections/access"
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

//go:embed *.html
var templates embed.FS

const (
	agentsPath      = "/settings/agents"
	connectionsPath = "/settings/connections"
)

// Area returns the endpoints and the pages.
func (s *Service) Area() web.Area {
	routes := web.AnyOrigin(
		web.Route{Pattern: "GET " + authmd.Path, Public: true, Serve: s.document},
		web.Route{Pattern: "POST /agent/identity", Public: true, Refuse: s.refuse, Serve: s.endpoint(s.identity)},
		web.Route{Pattern: "POST /agent/identity/claim", Public: true, Refuse: s.refuse, Serve: s.endpoint(s.attempt)},
		web.Route{
			Pattern: "POST /agent/identity/claim/complete", Public: true, Refuse: s.refuse, Serve: s.endpoint(s.complete),
		},
	)
	return web.Area{Templates: templates, Routes: append(routes,
		web.Route{Pattern: "GET " + claimPath, Needs: web.SignedIn, Leaves: true, Serve: s.claimPage},
		web.Route{Pattern: "POST " + claimPath, Needs: web.SignedIn, Leaves: true, Serve: s.decide},
		web.Route{Pattern: "GET " + agentsPath, Needs: web.Member, Auditors: web.Audited, Serve: s.agentsPage},
		web.Route{Pattern: "POST " + agentsPath + "/revoke", Needs: web.Member, Serve: s.revoke},
		web.Route{Pattern: "POST " + agentsPath + "/stop", Needs: web.Owner, Serve: s.stop},
		web.Route{Pattern: "GET " + connectionsPath, Needs: web.SignedIn, Serve: s.connectionsPage},
		web.Route{Pattern: "POST " + connectionsPath + "/revoke", Needs: web.SignedIn, Serve: s.disconnect},
	)}
}

// document is auth.md.
func (s *Service) document(r *web.Request) error {
	text, err := authmd.Render(s.URLs)
	if err != nil {
		return err
	}
	authmd.Header(r.Writer().Header())
	_, _ = r.Writer().Write(text) // a client that left reads no more
	return nil
}

// agentView is an agent in the list. Its name is what it called itself.
type agentView struct {
	access.Agent

	Name, Prefix string
	// Claimed reports that it has its first token, UsedAt is the last one.
	Claimed bool
	UsedAt  *time.Time
	Own     bool
}

// agentsPage lists the agents of the person and, for an Admin or auditor, of all members.
func (s *Service) agentsPage(r *web.Request) error {
	of := r.Person.ID
	if r.May(web.Admin) || r.Audits() {
		of = uuid.Nil
	}
	list, err := s.Access.Agents(r.Context(), r.Membership.Organization, of)
	if err != nil {
		return err
	}
	views := make([]agentView, len(list))
	at := make(map[uuid.UUID]*agentView, len(list))
	ids := make([]uuid.UUID, len(list))
	for i, a := range list {
		prefix := auth.AgentID(a.ID)
		views[i] = agentView{Agent: a, Name: prefix, Prefix: prefix[:18], Own: a.PersonID == r.Person.ID}
		at[a.ID], ids[i] = &views[i], a.ID
	}
	if err := s.addUses(r.Context(), ids, at); err != nil {
		return err
	}
	return r.Render("agents.html", map[string]any{
		"Agents": views, "All": of == uuid.Nil, "Most": access.MaxAgents, "MayStop": r.May(web.Owner),
	})
}

// addUses adds names and last uses to agents.
func (s *Service) addUses(ctx context.Context, ids []uuid.UUID, at map[uuid.UUID]*agentView) error {
	rows, err := s.DB.Query(ctx, `select id, client_name, claimed_at is not null, used_at from ops.agent_registrations
		where id = any($1)`, ids)
	if err != nil {
		return err
	}
	var id uuid.UUID
	var name string
	var claimed bool
	var used *time.Time
	_, err = pgx.ForEachRow(rows, []any{&id, &name, &claimed, &used}, func() error {
		v := at[id]
		if v.Claimed, v.UsedAt = claimed, used; name != "" {
			v.Name = name
		}
		return nil
	})
	return err
}

// revoke ends the registration of an agent: an Admin that of any member, others their own.
func (s *Service) revoke(r *web.Request) error {
	of := r.Person.ID
	if r.May(web.Admin) {
		of = uuid.Nil
	}
	id, err := agentOf(r)
	if err == nil {
		err = s.Commands.RevokeAgent(r.Context(), r.Command(), r.Membership.Organization, id, of)
	}
	if err != nil {
		return err
	}
	return r.Done(agentsPath, "revoked")
}

// stop ends the registration of an agent, and its tokens at once.
func (s *Service) stop(r *web.Request) error {
	id, err := agentOf(r)
	if err == nil {
		err = s.Commands.StopAgent(r.Context(), r.Command(), r.Membership.Organization, id)
	}
	if err != nil {
		return err
	}
	return r.Done(agentsPath, "ended")
}

func agentOf(r *web.Request) (uuid.UUID, error) {
	id, err := uuid.Parse(r.Field("agent"))
	if err != nil {
		return id, fault.New(fault.NotFound, fault.CodeNotFound, "there is no such agent")
	}
	return id, nil
}

// connectionsPage lists the programs that the person connected by OAuth.
func (s *Service) connectionsPage(r *web.Request) error {
	list, err := s.Connections.Grants(r.Context(), r.Person.ID)
	if err != nil {
		return err
	}
	return r.Render("connections.html", list)
}

// disconnect ends the access of a program, and its tokens, at once.
func (s *Service) disconnect(r *web.Request) error {
	id, err := uuid.Parse(r.Field("connection"))
	found := err == nil
	if found {
		found, err = s.Connections.RevokeGrant(r.Context(), r.Command(), r.Person.ID, id)
		if err != nil {
			return err
		}
	}
	if !found {
		return fault.New(fault.NotFound, fault.CodeNotFound, "there is no such connection of yours")
	}
	return r.Done(connectionsPath, "revoked")
}
