// Package account composes what organizations have and used in a month, and what their projects may still use. All
// figures are in tenths of a credit.
package account

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/pg/replica"
	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/internal/tenants"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/usage"
)

// headTimeout bounds how long a read waits for the projections to reach the head.
const headTimeout = 5 * time.Second

// Usage is what an organization has and used in a UTC calendar month.
type Usage struct {
	Month Month
	// Balance is of a plan that may not be metered. Then its figures are not shown.
	Balance metering.Balance
	// SpendCapTenths bounds the charges of the month, SpendCapLeftTenths is what is left of it. Both are nil without a
	// cap.
	SpendCapTenths, SpendCapLeftTenths *int64
	// Projects are one project for a project key, or the live projects of the organization for a
	// management key, the highest charges first.
	Projects []Project
}

// Metered reports whether credits are counted.
func (u Usage) Metered() bool { return u.Balance.Plan.Metered() }

// Month is a UTC calendar month. To is the first instant after it. ResetsAt is To if something resets then, else nil.
type Month struct {
	From, To time.Time
	ResetsAt *time.Time
}

// Project is a project with what it used in a month.
type Project struct {
	access.Project
	Used usage.Used
	// ChargedTenths is what it was charged, nil without metering.
	ChargedTenths *int64
	// MemoryCount is of its data points and memories. Only Queries.Projects sets it.
	MemoryCount int64
}

// View returns the project as people see it.
func (p Project) View() tenants.ProjectUse {
	return tenants.ProjectUse{
		Slug: p.Slug, Name: p.Name, Description: p.Description, IsArchived: p.Archived, MemoryCount: p.MemoryCount,
		IngestionCap: p.IngestionCap, MonthIngestions: p.Used.Ingestions,
		CreditCap: tenants.Cap(p.CreditCapTenths), MonthCredits: tenants.Cap(p.ChargedTenths), CreatedAt: p.CreatedAt,
	}
}

// CreditCapLeftTenths is what is left of the credit cap, nil without one. Caps apply also without metering.
func (p Project) CreditCapLeftTenths() *int64 { return left(p.CreditCapTenths, p.Used.CreditTenths) }

// IngestionCapLeft is what is left of the ingestion cap, nil without one.
func (p Project) IngestionCapLeft() *int64 { return left(p.IngestionCap, p.Used.Ingestions) }

func left(most *int64, used int64) *int64 {
	if most == nil {
		return nil
	}
	return new(max(0, *most-used))
}

// Room is what a project may still ingest. Nil does not bind.
type Room struct {
	Metered bool
	// LeftTenths is the balance, nil without metering; ProjectCapLeftTenths what is left of the credit
	// cap of the project.
	LeftTenths           *int64
	ProjectCapLeftTenths *int64
	// CreditTenths is the least of what is left of balance and caps, Points what is left of the
	// ingestion cap.
	CreditTenths *int64
	Points       *int64
	// ResetsAt is the end of the month if something resets then.
	ResetsAt *time.Time
}

// organizationQueries reads organizations and their projects.
type organizationQueries interface {
	OrganizationByID(ctx context.Context, id uuid.UUID) (o access.Organization, ok bool, err error)
	// ProjectsIn returns all projects, archived ones too, oldest first.
	ProjectsIn(ctx context.Context, db replica.Snapshot, organization uuid.UUID) ([]access.Project, error)
}

// counterQueries reads the counters of projects.
type counterQueries interface {
	Counts(
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

// Queries composes accounts.
type Queries struct {
	DB            replica.Snapshot
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
func (q Queries) waitVisible(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, headTimeout)
	defer cancel()
	head, err := q.Head(ctx)
	if err != nil {
		return fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "the event store cannot be reached; retry")
	}
	return q.Waiter.Wait(ctx, head, access.Name, datapoints.Name, usage.Name)
}

// Usage returns the usage of the principal's project, or of the live projects of its organization
// for a management key and for a caller without a project. It includes every call that was answered before. The
// fault is service-unavailable if that cannot be read now.
func (q Queries) Usage(ctx context.Context, p auth.Principal, at time.Time) (u Usage, err error) {
	if err = q.waitVisible(ctx); err != nil {
		return u, err
	}
	o, _, err := q.Organizations.OrganizationByID(ctx, p.OrganizationID)
	if err != nil {
		return u, err
	}
	projects, err := q.visibleProjects(ctx, p)
	if err != nil {
		return u, err
	}
	account, err := q.Charges.Account(ctx, p.OrganizationID, metering.Month(at))
	if err != nil {
		return u, err
	}
	u.Balance = account.Ledger.Balance(q.PlanTerms, account.Month)
	u.SpendCapTenths, u.SpendCapLeftTenths = o.SpendCapTenths, left(o.SpendCapTenths, account.ChargedTenths())
	resets := u.Metered() || o.SpendCapTenths != nil
	for _, project := range projects {
		resets = resets || project.IngestionCap != nil || project.CreditCapTenths != nil
		u.Projects = append(u.Projects, usedBy(project, account, u.Metered()))
	}
	// The order is the same without metering, although the figures are not shown.
	slices.SortStableFunc(u.Projects, func(x, y Project) int {
		return cmp.Compare(y.Used.CreditTenths, x.Used.CreditTenths)
	})
	u.Month = monthOf(at, resets)
	return u, nil
}

// usedBy returns a project with what it used.
func usedBy(p access.Project, account usage.Account, metered bool) Project {
	used := Project{Project: p, Used: account.Projects[p.ID]}
	if metered {
		used.ChargedTenths = &used.Used.CreditTenths
	}
	return used
}

// Room returns what the project of a project key may still ingest. Its contract is that of Usage.
func (q Queries) Room(ctx context.Context, p auth.Principal, at time.Time) (Room, error) {
	u, err := q.Usage(ctx, p, at)
	if err != nil {
		return Room{}, err
	}
	r := Room{Metered: u.Metered(), ResetsAt: u.Month.ResetsAt}
	if r.Metered {
		r.LeftTenths = new(u.Balance.LeftTenths())
	}
	for _, project := range u.Projects {
		r.ProjectCapLeftTenths, r.Points = project.CreditCapLeftTenths(), project.IngestionCapLeft()
	}
	for _, bound := range []*int64{r.LeftTenths, u.SpendCapLeftTenths, r.ProjectCapLeftTenths} {
		if bound != nil && (r.CreditTenths == nil || *bound < *r.CreditTenths) {
			r.CreditTenths = bound
		}
	}
	return r, nil
}

// visibleProjects returns the principal's project, or the live projects of its organization for a
// management key and for a caller without a project, oldest first.
func (q Queries) visibleProjects(ctx context.Context, p auth.Principal) ([]access.Project, error) {
	projects, err := q.Organizations.ProjectsIn(ctx, q.DB, p.OrganizationID)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(projects, func(project access.Project) bool {
		if p.Kind == auth.ManagementKey || p.Project.ID == uuid.Nil {
			return project.Archived
		}
		return project.ID != p.Project.ID
	}), nil
}

// Projects returns the projects of an organization with what they hold and used this month.
func (q Queries) Projects(ctx context.Context, organization uuid.UUID) ([]Project, error) {
	return q.projects(ctx, organization, func(access.Project) bool { return true })
}

// Project is Projects for one of them. ok is false if the organization has no such project.
func (q Queries) Project(ctx context.Context, organization, id uuid.UUID) (p Project, ok bool, err error) {
	list, err := q.projects(ctx, organization, func(p access.Project) bool { return p.ID == id })
	if err != nil || len(list) == 0 {
		return p, false, err
	}
	return list[0], true, nil
}

func (q Queries) projects(
	ctx context.Context, organization uuid.UUID, wanted func(access.Project) bool,
) ([]Project, error) {
	month := metering.Month(q.Now())
	found, counts, err := q.counted(ctx, organization, month, wanted)
	if err != nil {
		return nil, err
	}
	account, err := q.Charges.Account(ctx, organization, month)
	if err != nil {
		return nil, err
	}
	metered := account.Ledger.Balance(q.PlanTerms, month).Plan.Metered()
	list := make([]Project, len(found))
	for i, f := range found {
		list[i] = usedBy(f, account, metered)
		list[i].MemoryCount = counts[f.ID].Live + counts[f.ID].Memories
	}
	return list, nil
}

// counted returns the wanted projects of an organization with their counters, from the replica if that has
// applied the head of the log.
func (q Queries) counted(
	ctx context.Context, organization uuid.UUID, month string, wanted func(access.Project) bool,
) (found []access.Project, counts map[uuid.UUID]datapoints.Counts, err error) {
	need := replica.Need{Kind: "projects", Projections: []string{access.Name, datapoints.Name}}
	read := func(ctx context.Context, db replica.Snapshot) (err error) {
		if found, err = q.Organizations.ProjectsIn(ctx, db, organization); err != nil {
			return err
		}
		found = slices.DeleteFunc(found, func(p access.Project) bool { return !wanted(p) })
		ids := pgarray.IDs(found, func(p access.Project) uuid.UUID { return p.ID })
		counts, err = q.DataPoints.Counts(ctx, db, ids, month)
		return err
	}
	served, err := q.Replica.ReadAtHead(ctx, need, q.Head, read)
	if !served && err == nil {
		err = read(ctx, q.DB)
	}
	return found, counts, err
}

func monthOf(at time.Time, resets bool) Month {
	at = at.UTC()
	m := Month{From: time.Date(at.Year(), at.Month(), 1, 0, 0, 0, 0, time.UTC), To: metering.MonthEnd(at)}
	if resets {
		m.ResetsAt = &m.To
	}
	return m
}
