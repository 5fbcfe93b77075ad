package access

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/person"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/pgarray"
)

// agents are the statements that a page makes on agents and grants, in the order of the events. They are few.
type agents []func(*pgx.Batch)

// applyAgent folds an event of an agent or of a grant.
func (a *agents) applyAgent(e event.Event) {
	switch e := e.(type) {
	case *organization.AgentApproved:
		a.add(`insert into agents (id, organization_id, person_id, project_id, scopes, approved_at, revoked, stopped)
			values ($1, $2, $3, $4, $5, $6, false, false)
			on conflict (id) do update set revoked = false, stopped = false`, e.AgentID, e.OrganizationID, e.MemberID,
			uuid.NullUUID{UUID: e.ProjectID, Valid: e.ProjectID != uuid.Nil}, strings.Join(e.Scopes, " "),
			pgarray.Instant(e.ApprovedAt))
	case *organization.AgentRevoked:
		a.add(`update agents set revoked = true where id = $1`, e.AgentID)
	case *organization.AgentStopped:
		a.add(`update agents set revoked = true, stopped = true where id = $1`, e.AgentID)
	case *organization.GrantApproved:
		a.add(`insert into client_grants (id, organization_id, person_id, ended) values ($1, $2, $3, false)
			on conflict (id) do nothing`, e.GrantID, e.OrganizationID, e.MemberID)
	case *organization.GrantRevoked:
		a.add(`update client_grants set ended = true where id = $1`, e.GrantID)
	}
}

// leave ends a membership, stops the agents of the member, and ends the grants.
func (p *fold) leave(e *organization.MemberRemoved) {
	p.endMembership(memberKey{e.OrganizationID, e.MemberID})
	p.add(`update agents set revoked = true, stopped = true where organization_id = $1 and person_id = $2`,
		e.OrganizationID, e.MemberID)
	p.add(`update client_grants set ended = true where organization_id = $1 and person_id = $2`,
		e.OrganizationID, e.MemberID)
}

func (a *agents) add(statement string, args ...any) {
	*a = append(*a, func(b *pgx.Batch) { b.Queue(statement, args...) })
}

func (a *agents) save(b *pgx.Batch) {
	for _, queue := range *a {
		queue(b)
	}
}

// Agent implements auth.Agents, in one round trip. ok is false for an agent that nobody approved, and for one whose
// person is no member any more.
func (q Queries) Agent(ctx context.Context, id uuid.UUID) (h auth.AgentHolder, ok bool, err error) {
	var projects []uuid.UUID
	var accesses []organization.Access
	var role organization.Role
	var scopes string
	b := &pgx.Batch{}
	b.Queue(`select a.organization_id, a.person_id, a.scopes, coalesce(a.project_id, $2), a.revoked, a.stopped, not o.prepared,
			o.plan, o.spend_cap_tenths, m.role, g.projects, g.accesses
		from access.agents a join access.organizations o on o.id = a.organization_id
		join access.members m on m.organization_id = a.organization_id and m.person_id = a.person_id
		join access.people p on p.id = a.person_id and p.email is not null
		left join lateral (select array_agg(project_id) as projects, array_agg(access) as accesses from access.grants
			where organization_id = m.organization_id and person_id = m.person_id) g on true
		where a.id = $1`, id, uuid.Nil).QueryRow(func(row pgx.Row) error {
		err := row.Scan(&h.Organization, &h.Person, &scopes, &h.Only, &h.Revoked, &h.Stopped, &h.Preparing,
			&h.Limits.Plan, &h.Limits.SpendCapTenths, &role, &projects, &accesses)
		if ok = err == nil; errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
	b.Queue(`select p.id, p.number, p.slug, p.namespace, p.reads, p.ingestion_cap, p.credit_cap_tenths
		from access.agents a join access.members m on m.organization_id = a.organization_id and m.person_id = a.person_id
		join access.projects p on p.organization_id = a.organization_id
		where a.id = $1 and not p.archived and (a.project_id is null or p.id = a.project_id)
			and (m.role = any($2) or m.role = $3 and exists (select from access.grants g where g.organization_id = m.organization_id
				and g.person_id = m.person_id and g.project_id = p.id))
		order by p.number limit 2`, id, []organization.Role{organization.Owner, organization.Admin}, organization.Member).Query(func(rows pgx.Rows) (err error) {
		h.Projects, err = pgx.CollectRows(rows, q.scanNamed)
		return err
	})
	if err = q.DB.SendBatch(ctx, b).Close(); err != nil {
		return auth.AgentHolder{}, false, fmt.Errorf("find agent: %w", err)
	}
	if !ok {
		return auth.AgentHolder{}, false, nil
	}
	h.ID, h.Role, h.Access = id, role, make(map[uuid.UUID]organization.Access, len(projects))
	for i, project := range projects {
		h.Access[project] = accesses[i]
	}
	h.Scopes = auth.ParseScopes(scopes)
	return h, true, nil
}

func (q Queries) scanNamed(row pgx.CollectableRow) (n auth.Named, err error) {
	var stored uuid.UUID
	p := &n.Project
	if err = row.Scan(&p.ID, &p.Number, &p.Slug, &stored, &p.Reads, &n.IngestionCap, &n.CreditCapTenths); err != nil {
		return n, err
	}
	p.Namespace, err = q.Namespaces.Of(stored)
	return n, err
}

// Agent is an agent that a member approved.
type Agent struct {
	ID       uuid.UUID
	PersonID uuid.UUID
	// Email is that of the member, person.RemovedName for an erased one.
	Email  string
	Scopes string
	// Project is the slug of the only project, "" for all that the member may see.
	Project    string
	ApprovedAt time.Time
	Stopped    bool
	Revoked    bool
}

// MaxAgents is the most agents of one list.
const MaxAgents = 1000

// Agents lists agents of an organization, the newest first: those of a member or, for the zero id, of all. Agents that
// can do nothing any more are not in it.
func (q Queries) Agents(ctx context.Context, organizationID, member uuid.UUID) ([]Agent, error) {
	rows, err := q.DB.Query(ctx, `select a.id, a.person_id, coalesce(p.email, '`+person.RemovedName+`'), a.scopes,
			coalesce(r.slug, ''), a.approved_at, a.stopped, a.revoked
		from access.agents a left join access.people p on p.id = a.person_id left join access.projects r on r.id = a.project_id
		where a.organization_id = $1 and ($2::uuid = $3 or a.person_id = $2) and not a.stopped
		order by a.revoked, a.approved_at desc, a.id limit $4`, organizationID, member, uuid.Nil, MaxAgents)
	if err != nil {
		return nil, fmt.Errorf("list agents: %w", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Agent])
	if err != nil {
		return nil, fmt.Errorf("list agents: %w", err)
	}
	return list, nil
}

// EndedAgents returns those of some agents that are revoked. One that is not known yet is not among them.
func (q Queries) EndedAgents(ctx context.Context, ids []uuid.UUID) ([]uuid.UUID, error) {
	return q.idsOf(ctx, `select id from access.agents where id = any($1) and revoked`, ids)
}

// LiveGrants returns those of some grants that are approved and have not ended.
func (q Queries) LiveGrants(ctx context.Context, ids []uuid.UUID) ([]uuid.UUID, error) {
	return q.idsOf(ctx, `select id from access.client_grants where id = any($1) and not ended`, ids)
}

// EndedGrants returns those of some grants that have ended. One that is not known yet is not among them.
func (q Queries) EndedGrants(ctx context.Context, ids []uuid.UUID) ([]uuid.UUID, error) {
	return q.idsOf(ctx, `select id from access.client_grants where id = any($1) and ended`, ids)
}

func (q Queries) idsOf(ctx context.Context, statement string, ids []uuid.UUID) ([]uuid.UUID, error) {
	rows, err := q.DB.Query(ctx, statement, ids)
	if err != nil {
		return nil, fmt.Errorf("find agents or grants: %w", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, fmt.Errorf("find agents or grants: %w", err)
	}
	return list, nil
}
