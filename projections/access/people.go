package access

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/offer"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/person"
	"github.com/annals-project/annals/domain/stream"
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

// LivePeople returns those of some people who are registered and not removed.
func (q Queries) LivePeople(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]bool, error) {
	live := make(map[uuid.UUID]bool, len(ids))
	rows, err := q.DB.Query(ctx, `select id from access.people where id = any($1) and email is not null`, ids)
	if err != nil {
		return nil, fmt.Errorf("find people: %w", err)
	}
	var id uuid.UUID
	_, err = pgx.ForEachRow(rows, []any{&id}, func() error {
		live[id] = true
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("find people: %w", err)
	}
	return live, nil
}

// Person is somebody with what the person may see and change.
type Person struct {
	ID    uuid.UUID
	Email string
	// Memberships are by the age of the organizations, at most MaxOrganizations.
	Memberships []Membership
}

// Membership is a person as a member of one organization.
type Membership struct {
	Organization uuid.UUID
	Name         string
	Plan         metering.Plan
	// SpendCapTenths is in tenths of a credit a month, nil without a cap.
	SpendCapTenths *int64
	Role           organization.Role
	// Given is the address that the membership was given to, which the person may have changed since. "" is unknown.
	Given string
	// First is the first organization of the log, whose owners are the operators. Prepared organizations
	// are served. SecondFactor is true if the organization requires one.
	First, Prepared, SecondFactor bool
	// AuditorTexts is true if auditors of the organization may read texts.
	AuditorTexts bool
	// Access is by project, for the role Member only: others may write in each project.
	Access map[uuid.UUID]organization.Access
}

// Memberships returns a person with all memberships, in one statement. ok is false for somebody who is unknown, removed
// or not registered.
func (q Queries) Memberships(ctx context.Context, person uuid.UUID) (p Person, ok bool, err error) {
	rows, err := q.DB.Query(ctx, `select p.email, o.id, coalesce(o.name, ''), coalesce(o.plan, ''), o.spend_cap_tenths, coalesce(m.role, ''),
			coalesce(j.email, ''),
			o.position = (select min(position) from access.organizations), o.prepared, o.second_factor, o.auditor_texts,
			g.projects, g.accesses
		from access.people p
		left join access.members m on m.person_id = p.id
		left join access.organizations o on o.id = m.organization_id
		left join access.joins j on j.person_id = m.person_id and j.organization_id = m.organization_id
		left join lateral (select array_agg(project_id) as projects, array_agg(access) as accesses from access.grants
			where organization_id = m.organization_id and person_id = m.person_id) g on true
		where p.id = $1 and p.email is not null order by o.position limit $2`, person, MaxOrganizations)
	if err != nil {
		return Person{}, false, fmt.Errorf("find memberships: %w", err)
	}
	p.ID = person
	var m Membership
	var id *uuid.UUID
	var first, prepared, factor, texts *bool
	var projects []uuid.UUID
	var accesses []organization.Access
	_, err = pgx.ForEachRow(rows, []any{
		&p.Email, &id, &m.Name, &m.Plan, &m.SpendCapTenths, &m.Role, &m.Given, &first, &prepared, &factor, &texts,
		&projects, &accesses,
	}, func() error {
		if id == nil {
			return nil
		}
		m.Organization, m.First, m.Prepared, m.SecondFactor = *id, *first, *prepared, *factor
		m.AuditorTexts = *texts
		m.Access = make(map[uuid.UUID]organization.Access, len(projects))
		for i, project := range projects {
			m.Access[project] = accesses[i]
		}
		p.Memberships = append(p.Memberships, m)
		return nil
	})
	if err != nil {
		return Person{}, false, fmt.Errorf("find memberships: %w", err)
	}
	return p, p.Email != "", nil
}

// offers is what a page changes of offers. The steps of an offer have one order only, so that no row is read: its
// address, what is offered, the end, the tombstone.
type offers struct {
	addressed []*offer.Addressed
	made      []*organization.MemberOffered
	ended     []uuid.UUID
	gone      []uuid.UUID
}

// applyOffer folds an event of an offer.
func (o *offers) applyOffer(e event.Event) {
	switch e := e.(type) {
	case *offer.Addressed:
		o.addressed = append(o.addressed, e)
	case *organization.MemberOffered:
		o.made = append(o.made, e)
	case *organization.OfferEnded:
		o.ended = append(o.ended, e.OfferID)
	case *eventstore.Tombstoned:
		if stream.Category(e.Stream) == stream.Offer {
			o.gone = append(o.gone, stream.Owner(e.Stream))
		}
	}
}

// save writes one statement for each step: none of them knows the whole row.
func (o *offers) save(b *pgx.Batch) {
	if rows := o.addressed; len(rows) > 0 {
		b.Queue(`insert into offers (id, organization_id, email, address, addressed_at, settle_at)
			select id, organization_id, email, address, at, at
			from unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::timestamptz[]) o (id, organization_id, email, address, at)
			on conflict (id) do nothing`,
			pgarray.IDs(rows, func(e *offer.Addressed) uuid.UUID { return e.OfferID }),
			pgarray.IDs(rows, func(e *offer.Addressed) uuid.UUID { return e.OrganizationID }),
			pgarray.Column(rows, func(e *offer.Addressed) string { return e.Email }),
			pgarray.Column(rows, func(e *offer.Addressed) string { return e.Address }),
			pgarray.Column(rows, func(e *offer.Addressed) time.Time { return pgarray.Instant(e.AddressedAt) }))
	}
	if rows := o.made; len(rows) > 0 {
		b.Queue(`update offers o set role = m.role, expires_at = m.expires_at, settle_at = m.expires_at
			from unnest($1::uuid[], $2::text[], $3::timestamptz[]) m (id, role, expires_at) where o.id = m.id`,
			pgarray.IDs(rows, func(e *organization.MemberOffered) uuid.UUID { return e.OfferID }),
			pgarray.Column(rows, func(e *organization.MemberOffered) string { return string(e.Role) }),
			pgarray.Column(rows, func(e *organization.MemberOffered) time.Time { return pgarray.Instant(e.ExpiresAt) }))
	}
	if len(o.ended) > 0 {
		b.Queue(`update offers set expires_at = null, settle_at = addressed_at where id = any($1::uuid[])`, o.ended)
	}
	if len(o.gone) > 0 {
		b.Queue(`delete from offers where id = any($1::uuid[])`, o.gone)
	}
}

// Offer is an open offer of a membership to an address.
type Offer struct {
	ID, Organization uuid.UUID
	// Name is that of the organization.
	Name      string
	Email     string
	Role      organization.Role
	ExpiresAt time.Time
}

// openOffers selects the offers that are open at $1.
const openOffers = `select f.id, f.organization_id, o.name, f.email, f.role, f.expires_at
	from access.offers f join access.organizations o on o.id = f.organization_id
	where f.expires_at > $1`

// Offers lists offers of an organization that are open at a time, at most MaxMembers, the first to expire first.
func (q Queries) Offers(ctx context.Context, organizationID uuid.UUID, now time.Time) ([]Offer, error) {
	return q.listOffers(ctx, openOffers+` and f.organization_id = $2 order by f.expires_at, f.id limit $3`,
		now, organizationID, MaxMembers)
}

// OffersTo lists offers to an address that are open at a time, by the name of its stream: at most MaxOrganizations, the
// first to expire first.
func (q Queries) OffersTo(ctx context.Context, address string, now time.Time) ([]Offer, error) {
	return q.listOffers(ctx, openOffers+` and f.address = $2 order by f.expires_at, f.id limit $3`,
		now, address, MaxOrganizations)
}

func (q Queries) listOffers(ctx context.Context, sql string, args ...any) ([]Offer, error) {
	rows, err := q.DB.Query(ctx, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("list offers: %w", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Offer])
	if err != nil {
		return nil, fmt.Errorf("list offers: %w", err)
	}
	for i := range list {
		list[i].ExpiresAt = list[i].ExpiresAt.UTC()
	}
	return list, nil
}

// OpenOffers lists, after an id and in the order of ids, the offers that may have to be settled at a time: those that
// have ended or expired, and those that were addressed and not made.
func (q Queries) OpenOffers(ctx context.Context, now time.Time, after uuid.UUID, limit int) ([]work.Offer, error) {
	rows, err := q.DB.Query(ctx, `select id, organization_id, addressed_at from access.offers
		where settle_at <= $1 and id > $2 order by id limit $3`, now, after, limit)
	if err != nil {
		return nil, fmt.Errorf("list offers to settle: %w", err)
	}
	open, err := pgx.CollectRows(rows, pgx.RowToStructByPos[work.Offer])
	if err != nil {
		return nil, fmt.Errorf("list offers to settle: %w", err)
	}
	return open, nil
}

// visitMonthRow is a row of table visit_months.
type visitMonthRow struct {
	Stream       string     `db:"stream"`
	Organization uuid.UUID  `db:"organization_id,once"`
	Person       *uuid.UUID `db:"person_id,once"`
	EndsAt       time.Time  `db:"ends_at,once"`
}

var visitMonths = table.New[visitMonthRow](Name, schema, "visit_months")

// visitRows is what a page adds to and removes from the months of visits. A row is never changed.
type visitRows struct {
	months map[string]*visitMonthRow
	gone   []string
}

// applyVisit folds an event of a visit. With the end of its stream, the row goes.
func (v *visitRows) applyVisit(f eventstore.DecodedEvent) error {
	if e, is := f.Event.(*eventstore.Tombstoned); is && stream.Category(e.Stream) == stream.Visits {
		v.gone = append(v.gone, e.Stream)
	}
	if stream.Category(f.Stream) != stream.Visits {
		return nil
	}
	person, month := stream.Visitor(f.Stream)
	begins, err := time.Parse("2006-01", month)
	if err != nil {
		return fmt.Errorf("month of a visit: %w", err)
	}
	row := &visitMonthRow{Stream: f.Stream, Organization: stream.Owner(f.Stream), EndsAt: begins.AddDate(0, 1, 0)}
	if person != uuid.Nil {
		row.Person = &person
	}
	if v.months == nil {
		v.months = map[string]*visitMonthRow{}
	}
	v.months[f.Stream] = row
	return nil
}

func (v *visitRows) save(b *pgx.Batch) {
	visitMonths.Insert(b, slices.Collect(maps.Values(v.months)))
	if len(v.gone) > 0 {
		b.Queue(`delete from visit_months where stream = any($1)`, v.gone)
	}
}

// EndedVisits lists, after a stream and in the order of their names, the streams of visits that may end at a time:
// those of people who are removed, and those of months that are older than the organization keeps.
func (q Queries) EndedVisits(ctx context.Context, now time.Time, after string, limit int) ([]work.Visits, error) {
	rows, err := q.DB.Query(ctx, `select v.stream, v.organization_id, v.person_id
		from access.visit_months v join access.organizations o on o.id = v.organization_id
		where v.stream > $2 and (v.ends_at + o.visit_days * interval '1 day' <= $1 or v.person_id is not null
			and not exists (select from access.people p where p.id = v.person_id and not p.removed))
		order by v.stream limit $3`, now, after, limit)
	if err != nil {
		return nil, fmt.Errorf("list visits to end: %w", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (v work.Visits, err error) {
		var person *uuid.UUID
		if err = row.Scan(&v.Stream, &v.Organization, &person); person != nil {
			v.Person = *person
		}
		return v, err
	})
	if err != nil {
		return nil, fmt.Errorf("list visits to end: %w", err)
	}
	return list, nil
}
