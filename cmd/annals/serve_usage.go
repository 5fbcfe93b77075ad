package main

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
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/usage"
	"github.com/annals-project/annals/readapi"
)

// accounts reads what organizations have and used.
type accounts struct {
	usage  usage.Queries
	access access.Queries
	points datapoints.Queries
	head   func(context.Context) (eventstore.Position, error)
	waiter *projections.Waiter
	now    func() time.Time
}

// usageTimeout is how long a usage read waits for the projections to come to the head.
const usageTimeout = 5 * time.Second

// countedInLog appends all counted recalls to the log, for a reader of the log alone. On failure
// they stay counted and only the service log reports it: a backup without the last recalls is
// better than none.
func (p *process) countedInLog(ctx context.Context) {
	if err := p.metering.Flush(ctx); err != nil {
		p.log.WarnContext(ctx, "backup lacks the latest counted recalls", "err", err)
	}
}

// passHead waits until the projections know every call that was answered before.
func (a accounts) passHead(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, usageTimeout)
	defer cancel()
	head, err := a.head(ctx)
	if err != nil {
		return fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "the event store cannot be reached; retry")
	}
	return a.waiter.Wait(ctx, head, access.Name, datapoints.Name, usage.Name)
}

// Usage is that of the principal's project, or of the live projects of its organization for a management key.
func (a accounts) Usage(ctx context.Context, p auth.Principal, at time.Time) (readapi.Usage, error) {
	if err := a.passHead(ctx); err != nil {
		return readapi.Usage{}, err
	}
	o, _, err := a.access.OrganizationByID(ctx, p.OrganizationID)
	if err != nil {
		return readapi.Usage{}, err
	}
	projects, err := a.projects(ctx, p)
	if err != nil {
		return readapi.Usage{}, err
	}
	account, err := a.usage.Account(ctx, p.OrganizationID, metering.Month(at))
	if err != nil {
		return readapi.Usage{}, err
	}
	b := account.Ledger.Balance(a.usage.Tariff, account.Month)
	u := readapi.Usage{Balance: balanceOf(b), SpendCap: credits(o.SpendCapTenths), Metered: b.Plan.Metered()}
	capped := o.SpendCapTenths != nil
	// Where nothing is metered the order is the same, though the figures are not shown.
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

// projects are those that a principal is told of: its own, or the live ones of its organization, oldest first.
func (a accounts) projects(ctx context.Context, p auth.Principal) ([]access.Project, error) {
	projects, err := a.access.Projects(ctx, p.OrganizationID)
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

// Projects lists the projects of an organization with what they hold and used this month.
func (a accounts) Projects(ctx context.Context, organization uuid.UUID) ([]readapi.Project, error) {
	found, err := a.access.Projects(ctx, organization)
	if err != nil {
		return nil, err
	}
	ids := make([]uuid.UUID, len(found))
	for i, f := range found {
		ids[i] = f.ID
	}
	month := metering.Month(a.now())
	counts, err := a.points.Counts(ctx, ids, month)
	if err != nil {
		return nil, err
	}
	account, err := a.usage.Account(ctx, organization, month)
	if err != nil {
		return nil, err
	}
	metered := account.Ledger.Balance(a.usage.Tariff, month).Plan.Metered()
	list := make([]readapi.Project, len(found))
	for i, f := range found {
		used := usageOf(f, account.Projects[f.ID], metered)
		list[i] = readapi.Project{
			Slug: f.Slug, Name: f.Name, IsArchived: f.Archived, CreatedAt: f.CreatedAt, MemoryCount: counts[f.ID].Live + counts[f.ID].Memories,
			IngestionCap: used.IngestionCap, MonthIngestions: used.Ingestions, CreditCap: used.CreditCap, MonthCredits: used.Credits,
		}
	}
	return list, nil
}

// usageOf is what a project used. Caps read as they are set, metered or not, and so does what is left of them.
func usageOf(p access.Project, used usage.Used, metered bool) readapi.ProjectUsage {
	u := readapi.ProjectUsage{
		Slug: p.Slug, Ingestions: used.Ingestions, Recalls: used.Recalls, CreditCap: credits(p.CreditCapTenths), IngestionCap: p.IngestionCap,
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

// balanceOf shows a balance where it is one.
func balanceOf(b metering.Balance) readapi.Balance {
	if !b.Plan.Metered() {
		return readapi.Balance{}
	}
	left := b.LeftTenths()
	return readapi.Balance{
		Left: credits(&left), Included: credits(&b.IncludedTenths), Bought: credits(&b.BoughtTenths), RolledOver: credits(&b.RolledOverTenths),
		Spent: credits(&b.SpentTenths),
	}
}

func monthOf(at time.Time, resets bool) readapi.UsageMonth {
	at = at.UTC()
	m := readapi.UsageMonth{From: time.Date(at.Year(), at.Month(), 1, 0, 0, 0, 0, time.UTC), To: metering.MonthEnd(at)}
	if resets {
		m.ResetsAt = &m.To
	}
	return m
}
