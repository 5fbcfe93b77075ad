package access

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/person"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/internal/work"
	"github.com/annals-project/annals/projections/table"
)

type memberKey struct {
	Organization uuid.UUID `db:"organization_id"`
	Person       uuid.UUID `db:"person_id"`
}

// memberRow is a row of table members; without a role, a former member.
type memberRow struct {
	memberKey
	Role     organization.Role   `db:"role"`
	Position eventstore.Position `db:"position"`
}

type grantKey struct {
	memberKey
	Project uuid.UUID `db:"project_id"`
}

// grantRow is a row of table grants.
type grantRow struct {
	grantKey
	Access organization.Access `db:"access"`
}

var (
	members = table.New[memberRow](Name, schema, "members")
	grants  = table.New[grantRow](Name, schema, "grants")
)

type claimKey struct {
	person uuid.UUID
	stream string
}

// people is what a page changes of people and members. The steps of a person have one order only, so
// that no row is read.
type people struct {
	members map[memberKey]memberRow
	// ungranted are the members whose grants end before those of the page are added.
	ungranted map[memberKey]bool
	grants    map[grantKey]organization.Access
	claimed   []*person.AddressClaimed
	claims    map[claimKey]bool // whether it is open
	addresses map[uuid.UUID]string
	// joins are the addresses at the last begin of a join, "" for the one from before the page.
	joins    map[memberKey]string
	removed  []uuid.UUID
	released []uuid.UUID
}

func newPeople() people {
	return people{
		members: map[memberKey]memberRow{}, ungranted: map[memberKey]bool{}, grants: map[grantKey]organization.Access{},
		claims: map[claimKey]bool{}, addresses: map[uuid.UUID]string{}, joins: map[memberKey]string{},
	}
}

// applyPerson folds an event of a person or an address.
func (p *people) applyPerson(f eventstore.DecodedEvent) {
	switch e := f.Event.(type) {
	case *person.AddressClaimed:
		p.claimed, p.claims[claimKey{e.PersonID, f.Stream}] = append(p.claimed, e), true
	case *person.Registered:
		p.addresses[e.PersonID] = e.Email
	case *person.AddressChanged:
		p.addresses[e.PersonID] = e.Email
	case *person.JoinBegun:
		p.joins[memberKey{e.OrganizationID, e.PersonID}] = p.addresses[e.PersonID]
	case *person.Removed:
		p.removed = append(p.removed, e.PersonID)
	case *person.AddressReleased:
		p.released, p.claims[claimKey{e.PersonID, f.Stream}] = append(p.released, e.PersonID), false
	}
}

// member gives a person a role in an organization.
func (p *fold) member(at eventstore.Position, organizationID, id uuid.UUID, role organization.Role) error {
	key := memberKey{organizationID, id}
	p.endMembership(key)
	p.members[key] = memberRow{key, role, at}
	return p.organization(organizationID, func(row *organizationRow) {
		row.Owned = row.Owned || role == organization.Owner
	})
}

// endMembership ends a membership with its grants. A change of the role begins it again.
func (p *people) endMembership(key memberKey) {
	p.members[key], p.ungranted[key] = memberRow{}, true
	maps.DeleteFunc(p.grants, func(g grantKey, _ organization.Access) bool { return g.memberKey == key })
}

func (p *people) saveGrants(b *pgx.Batch) {
	for key := range p.ungranted {
		b.Queue(`delete from grants where organization_id = $1 and person_id = $2`, key.Organization, key.Person)
	}
	var given []*grantRow
	for key, access := range p.grants {
		if access == organization.NoAccess {
			b.Queue(`delete from grants where organization_id = $1 and person_id = $2 and project_id = $3`,
				key.Organization, key.Person, key.Project)
			continue
		}
		given = append(given, &grantRow{key, access})
	}
	grants.Save(b, given)
}

func (p *people) savePeople(b *pgx.Batch) {
	p.saveGrants(b)
	var rows []*memberRow
	for key, m := range p.members {
		if m.Role == "" {
			b.Queue(`delete from members where organization_id = $1 and person_id = $2`, key.Organization, key.Person)
			continue
		}
		rows = append(rows, &m)
	}
	members.Save(b, rows)
	p.saveAddresses(b)
}

// saveAddresses writes a person's row before it is removed, and deletes it with the last claim. A page knows only a
// part of the row, so it is no table of rows.
func (p *people) saveAddresses(b *pgx.Batch) {
	if rows := p.claimed; len(rows) > 0 {
		b.Queue(`insert into people (id, removed, claimed_at)
			select id, false, at from unnest($1::uuid[], $2::timestamptz[]) c (id, at) on conflict (id) do nothing`,
			pgarray.IDs(rows, func(e *person.AddressClaimed) uuid.UUID { return e.PersonID }),
			pgarray.Column(rows, func(e *person.AddressClaimed) time.Time { return pgarray.Instant(e.ClaimedAt) }))
	}
	for key, open := range p.claims {
		if open {
			b.Queue(`insert into claims (person_id, address) values ($1, $2) on conflict do nothing`, key.person, key.stream)
		} else {
			b.Queue(`delete from claims where person_id = $1 and address = $2`, key.person, key.stream)
		}
	}
	p.saveJoins(b) // before the addresses of the page
	for id, email := range p.addresses {
		b.Queue(`update people set email = $2 where id = $1`, id, email)
	}
	if len(p.removed) > 0 {
		b.Queue(`update people set email = null, removed = true where id = any($1::uuid[])`, p.removed)
		b.Queue(`delete from joins where person_id = any($1::uuid[])`, p.removed)
	}
	if len(p.released) > 0 {
		b.Queue(`delete from people p where id = any($1::uuid[]) and not exists (select from claims where person_id = p.id)`,
			p.released)
		b.Queue(`delete from joins j where person_id = any($1::uuid[]) and not exists (select from people where id = j.person_id)`,
			p.released)
	}
}

// saveJoins takes addresses that the page does not know from table people.
func (p *people) saveJoins(b *pgx.Batch) {
	if len(p.joins) == 0 {
		return
	}
	keys := slices.Collect(maps.Keys(p.joins))
	b.Queue(`insert into joins (person_id, organization_id, email)
		select j.person_id, j.organization_id, coalesce(nullif(j.email, ''), p.email)
		from unnest($1::uuid[], $2::uuid[], $3::text[]) j (person_id, organization_id, email)
		join people p on p.id = j.person_id where coalesce(nullif(j.email, ''), p.email) is not null
		on conflict (person_id, organization_id) do update set email = excluded.email`,
		pgarray.IDs(keys, func(k memberKey) uuid.UUID { return k.Person }),
		pgarray.IDs(keys, func(k memberKey) uuid.UUID { return k.Organization }),
		pgarray.Column(keys, func(k memberKey) string { return p.joins[k] }))
}

// Member is a member of an organization. Email is person.RemovedName for an erased person.
type Member struct {
	PersonID uuid.UUID
	Email    string
	Role     organization.Role
}

// MaxMembers is the most members of one list.
const MaxMembers = 1000

// Members lists members of one organization, the newest roles last.
func (q Queries) Members(ctx context.Context, organizationID uuid.UUID) ([]Member, error) {
	rows, err := q.DB.Query(ctx, `select m.person_id, coalesce(p.email, '`+person.RemovedName+`'), m.role
		from access.members m left join access.people p on p.id = m.person_id
		where m.organization_id = $1 order by m.position limit $2`, organizationID, MaxMembers)
	if err != nil {
		return nil, fmt.Errorf("list members: %w", err)
	}
	members, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Member])
	if err != nil {
		return nil, fmt.Errorf("list members: %w", err)
	}
	return members, nil
}

// AccessOf returns what the members of an organization with the role Member may do, by member and slug of a project.
func (q Queries) AccessOf(
	ctx context.Context, organizationID uuid.UUID,
) (map[uuid.UUID]map[string]organization.Access, error) {
	rows, err := q.DB.Query(ctx, `select g.person_id, p.slug, g.access from access.grants g
		join access.projects p on p.id = g.project_id where g.organization_id = $1 and g.person_id in (
			select person_id from access.members where organization_id = $1 order by position limit $2)`,
		organizationID, MaxMembers)
	if err != nil {
		return nil, fmt.Errorf("list accesses of members: %w", err)
	}
	all := map[uuid.UUID]map[string]organization.Access{}
	var person uuid.UUID
	var slug string
	var access organization.Access
	if _, err = pgx.ForEachRow(rows, []any{&person, &slug, &access}, func() error {
		if all[person] == nil {
			all[person] = map[string]organization.Access{}
		}
		all[person][slug] = access
		return nil
	}); err != nil {
		return nil, fmt.Errorf("list accesses of members: %w", err)
	}
	return all, nil
}

// OpenPeople lists, after an id and in the order of ids, the people who may have to be settled: those
// who are removed or without an organization or have several addresses, and members who are erased.
func (q Queries) OpenPeople(ctx context.Context, after uuid.UUID, limit int) ([]work.Person, error) {
	rows, err := q.DB.Query(ctx, `
		select p.id, array(select address from access.claims c where c.person_id = p.id), p.claimed_at,
			array(select organization_id from access.members m where m.person_id = p.id)
		from access.people p
		where p.id > $1 and (p.removed or not exists (select from access.members m where m.person_id = p.id)
			or exists (select from access.claims c where c.person_id = p.id offset 1))
		union all
		select m.person_id, '{}', 'epoch', array_agg(m.organization_id)
		from access.members m
		where m.person_id > $1 and not exists (select from access.people p where p.id = m.person_id)
		group by m.person_id
		order by 1 limit $2`, after, limit)
	if err != nil {
		return nil, fmt.Errorf("list people to settle: %w", err)
	}
	open, err := pgx.CollectRows(rows, pgx.RowToStructByPos[work.Person])
	if err != nil {
		return nil, fmt.Errorf("list people to settle: %w", err)
	}
	return open, nil
}

// RemovedPeople counts the people who are removed, and something of them may be left.
func (q Queries) RemovedPeople(ctx context.Context) (n int, err error) {
	if err = q.DB.QueryRow(ctx, `select count(*) from access.people where removed`).Scan(&n); err != nil {
		err = fmt.Errorf("count removed people: %w", err)
	}
	return n, err
}
