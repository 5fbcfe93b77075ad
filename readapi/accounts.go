package readapi

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/pg/replica"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/usage"
)

// usageTimeout bounds how long a usage read waits for the projections to reach the head.
const usageTimeout = 5 * time.Second

// organizationQueries reads organizations and their projects.
type organizationQueries interface {
	OrganizationByID(ctx context.Context, id uuid.UUID) (o access.Organization, ok bool, err error)
	// Projects returns all projects, archived ones too, oldest first.
	Projects(ctx context.Context, organization uuid.UUID) ([]access.Project, error)
	// ProjectsIn is Projects in a snapshot.
	ProjectsIn(ctx context.Context, db replica.Snapshot, organization uuid.UUID) ([]access.Project, error)
}

// counterQueries reads the counters of projects.
type counterQueries interface {
	Counts(ctx context.Context, projects []uuid.UUID, month string) (map[uuid.UUID]datapoints.Counts, error)
	// CountsIn is Counts in a snapshot.
	CountsIn(
		ctx context.Context, db replica.Snapshot, projects []uuid.UUID, month string,
	) (map[uuid.UUID]datapoints.Counts, error)
}

// accountQueries reads what organizations are charged.
type accountQueries interface {
	Account(ctx context.Context, organization uuid.UUID, month string) (usage.Account, error)
}

// headWaiter waits until projections have applied a position.
type headWaiter interface {
	Wait(ctx context.Context, position eventstore.Position, projections ...string) error
}

// Accounts composes what organizations have and used. It serves Deps.Projects,
// Deps.Usage and Deps.Rooms.
type Accounts struct {
	Organizations organizationQueries
	DataPoints    counterQueries
	Charges       accountQueries
	PlanTerms     metering.PlanTerms
	// Head returns the newest position of the log.
	Head   func(context.Context) (eventstore.Position, error)
	Waiter headWaiter
	Now    func() time.Time
	// Replica may answer what Projects reads of projects; nil for none. What they are charged is read at
	// the primary, since it includes calls that are not in the log yet.
	Replica *replica.Reader
}

// waitVisible waits until the projections show every call that was answered before.
func (a Accounts) waitVisible(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, usageTimeout)
	defer cancel()
	head, err := a.Head(ctx)
	if err != nil {
		return fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "the event store cannot be reached; retry")
	}
	return a.Waiter.Wait(ctx, head, access.Name, datapoints.Name, usage.Name)
}

// Usage returns the usage of the principal's project, or of the live projects of its organization
// for a management key.
func (a Accounts) Usage(ctx context.Context, p auth.Principal, at time.Time) (Usage, error) {
	o, projects, account, err := a.account(ctx, p, at)
	if err != nil {
		return Usage{}, err
	}
	b := account.Ledger.Balance(a.PlanTerms, account.Month)
	u := Usage{Balance: balanceOf(b), SpendCap: credits(o.SpendCapTenths), Metered: b.Plan.Metered()}
	capped := o.SpendCapTenths != nil
	// The order is the same without metering, although the figures are not shown.
	slices.SortStableFunc(projects, func(x, y access.Project) int {
		return cmp.Compare(account.Projects[y.ID].CreditTenths, account.Projects[x.ID].CreditTenths)
	})
	for _, project := range projects {
		capped = capped || project.IngestionCap != nil || project.CreditCapTenths != nil
		u.Projects = append(u.Projects, usageOf(project, account.Projects[project.ID], u.Metered))
	}
	u.Month = monthOf(at, u.Metered || capped)
	return u, nil
}

// account returns the organization of a principal, its visible projects and its account, as of every call
// that was answered before.
func (a Accounts) account(
	ctx context.Context, p auth.Principal, at time.Time,
) (o access.Organization, projects []access.Project, account usage.Account, err error) {
	if err = a.waitVisible(ctx); err != nil {
		return o, nil, account, err
	}
	if o, _, err = a.Organizations.OrganizationByID(ctx, p.OrganizationID); err != nil {
		return o, nil, account, err
	}
	if projects, err = a.visibleProjects(ctx, p); err != nil {
		return o, nil, account, err
	}
	account, err = a.Charges.Account(ctx, p.OrganizationID, metering.Month(at))
	return o, projects, account, err
}

// Room returns what the principal's project may still ingest.
func (a Accounts) Room(ctx context.Context, p auth.Principal, at time.Time) (Room, error) {
	o, projects, account, err := a.account(ctx, p, at)
	if err != nil {
		return Room{}, err
	}
	b := account.Ledger.Balance(a.PlanTerms, account.Month)
	r := Room{Metered: b.Plan.Metered()}
	var credits []int64
	if r.Metered {
		r.LeftTenths = new(b.LeftTenths())
		credits = append(credits, *r.LeftTenths)
	}
	if o.SpendCapTenths != nil {
		credits = append(credits, max(0, *o.SpendCapTenths-account.ChargedTenths()))
	}
	for _, project := range projects {
		used := account.Projects[project.ID]
		if project.CreditCapTenths != nil {
			r.ProjectCapLeftTenths = new(max(0, *project.CreditCapTenths-used.CreditTenths))
			credits = append(credits, *r.ProjectCapLeftTenths)
		}
		if project.IngestionCap != nil {
			r.Points = new(max(0, *project.IngestionCap-used.Ingestions))
		}
	}
	if len(credits) > 0 {
		r.CreditTenths = new(slices.Min(credits))
	}
	r.ResetsAt = monthOf(at, len(credits) > 0 || r.Points != nil).ResetsAt
	return r, nil
}

// visibleProjects returns the principal's project, or the live projects of its organization for a
// management key, oldest first.
func (a Accounts) visibleProjects(ctx context.Context, p auth.Principal) ([]access.Project, error) {
	projects, err := a.Organizations.Projects(ctx, p.OrganizationID)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(projects, func(project access.Project) bool {
		if p.Kind == auth.ManagementKey {
			return project.Archived
		}
		return project.ID != p.Project.ID
	}), nil
}

// Projects returns the projects of an organization with what they hold and used this month.
func (a Accounts) Projects(ctx context.Context, organization uuid.UUID) ([]Project, error) {
	month := metering.Month(a.Now())
	found, counts, err := a.counted(ctx, organization, month)
	if err != nil {
		return nil, err
	}
	account, err := a.Charges.Account(ctx, organization, month)
	if err != nil {
		return nil, err
	}
	metered := account.Ledger.Balance(a.PlanTerms, month).Plan.Metered()
	list := make([]Project, len(found))
	for i, f := range found {
		used := usageOf(f, account.Projects[f.ID], metered)
		list[i] = Project{
			Slug: f.Slug, Name: f.Name, IsArchived: f.Archived, CreatedAt: f.CreatedAt,
			MemoryCount:  counts[f.ID].Live + counts[f.ID].Memories,
			IngestionCap: used.IngestionCap, MonthIngestions: used.Ingestions,
			CreditCap: used.CreditCap, MonthCredits: used.Credits,
		}
	}
	return list, nil
}

// counted returns the projects of an organization with their counters, from the replica if that has
// applied the head of the log.
func (a Accounts) counted(
	ctx context.Context, organization uuid.UUID, month string,
) (found []access.Project, counts map[uuid.UUID]datapoints.Counts, err error) {
	if a.Replica.Up() {
		served, err := a.atReplica(ctx, func(ctx context.Context, db replica.Snapshot) (err error) {
			if found, err = a.Organizations.ProjectsIn(ctx, db, organization); err != nil {
				return err
			}
			counts, err = a.DataPoints.CountsIn(ctx, db, idsOf(found), month)
			return err
		})
		if served || err != nil {
			return found, counts, err
		}
	}
	if found, err = a.Organizations.Projects(ctx, organization); err != nil {
		return nil, nil, err
	}
	counts, err = a.DataPoints.Counts(ctx, idsOf(found), month)
	return found, counts, err
}

// replicaHeadLimit bounds how long a read at the replica waits for the head of the log, which the
// primary needs not.
const replicaHeadLimit = time.Second

// atReplica reads projects as of the head of the log at the call.
func (a Accounts) atReplica(
	ctx context.Context, read func(ctx context.Context, db replica.Snapshot) error,
) (served bool, err error) {
	limited, cancel := context.WithTimeout(ctx, replicaHeadLimit)
	defer cancel()
	head, err := a.Head(limited)
	if err != nil {
		return false, context.Cause(ctx)
	}
	names := []string{access.Name, datapoints.Name}
	return a.Replica.Read(ctx, replica.Need{Kind: "projects", Position: head, Projections: names}, read)
}

func idsOf(projects []access.Project) []uuid.UUID {
	ids := make([]uuid.UUID, len(projects))
	for i, p := range projects {
		ids[i] = p.ID
	}
	return ids
}

// usageOf returns what a project used. Its caps and what is left of them are shown also without
// metering.
func usageOf(p access.Project, used usage.Used, metered bool) ProjectUsage {
	u := ProjectUsage{
		Slug: p.Slug, Ingestions: used.Ingestions, Recalls: used.Recalls,
		CreditCap: credits(p.CreditCapTenths), IngestionCap: p.IngestionCap,
	}
	if metered {
		u.Credits = credits(&used.CreditTenths)
	}
	if p.CreditCapTenths != nil {
		left := max(0, *p.CreditCapTenths-used.CreditTenths)
		u.CreditCapLeft = credits(&left)
	}
	if p.IngestionCap != nil {
		left := max(0, *p.IngestionCap-used.Ingestions)
		u.IngestionCapLeft = &left
	}
	return u
}

// balanceOf returns the credits of a metered plan, and only nulls without metering.
func balanceOf(b metering.Balance) Balance {
	if !b.Plan.Metered() {
		return Balance{}
	}
	left := b.LeftTenths()
	return Balance{
		Left: credits(&left), Included: credits(&b.IncludedTenths), Bought: credits(&b.BoughtTenths),
		RolledOver: credits(&b.RolledOverTenths), Spent: credits(&b.SpentTenths),
	}
}

func monthOf(at time.Time, resets bool) UsageMonth {
	at = at.UTC()
	m := UsageMonth{From: time.Date(at.Year(), at.Month(), 1, 0, 0, 0, 0, time.UTC), To: metering.MonthEnd(at)}
	if resets {
		m.ResetsAt = &m.To
	}
	return m
}

// credits returns tenths of a credit as a decimal number, nil for nil.
func credits(tenths *int64) *json.Number {
	if tenths == nil {
		return nil
	}
	n := metering.Credits(*tenths)
	return &n
}
