package access

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/organization"
)

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
