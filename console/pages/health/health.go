// Package health is the pages of the state of the service, and of its organizations for operators.
package health

import (
	"cmp"
	"context"
	"embed"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/internal/condition"
	"github.com/annals-project/annals/internal/tenants"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/datapoints"
)

//go:embed *.html
var templates embed.FS

// Deps are what the pages read.
type Deps struct {
	Conditions  func(ctx context.Context) condition.List
	Projections func() []condition.Projection
	Details     func() condition.Details
	Readiness   datapoints.Queries
	Tenancy     access.Tenancy
}

// Area returns the pages.
func Area(d Deps) web.Area {
	return web.Area{Templates: templates, Routes: []web.Route{
		{Pattern: "GET /health", Needs: web.Member, Auditors: web.Audited, Serve: web.NewPage("health.html", d.health).Show},
		{Pattern: "GET /operator/organizations", Needs: web.Operator, Serve: d.organizations},
	}}
}

// maxProjects is the most projects that the page shows, those with failed and open sends first.
const maxProjects = 200

// state is the state of the service and of the projects that the person may read. Operator is there for operators.
type state struct {
	IsReady  bool                `json:"isReady"`
	NotReady []condition.Unready `json:"notReady"`
	condition.Remarks

	Projections []condition.Projection `json:"projections"`
	Projects    []project              `json:"projects"`
	Operator    *condition.Details     `json:"operator,omitempty"`
}

// project is the state of a project: its sends that are not searchable yet, and those that stopped.
type project struct {
	Slug       string `json:"slug"`
	IsArchived bool   `json:"isArchived"`
	Open       int64  `json:"open"`
	Failed     int64  `json:"failed"`
	IsBlocked  bool   `json:"isBlocked"`
}

func (d Deps) health(r *web.Request) (page state, err error) {
	operator, now := r.May(web.Operator), d.Conditions(r.Context())
	page = state{
		IsReady: now.IsReady(), NotReady: now.NotReady(operator), Remarks: now.Remarks(operator),
		Projections: d.Projections(),
	}
	if operator {
		page.Operator = new(d.Details())
	}
	page.Projects, err = d.projects(r)
	return page, err
}

// projects returns the projects that the person may read.
func (d Deps) projects(r *web.Request) ([]project, error) {
	all, err := d.Tenancy.Queries.Projects(r.Context(), r.Membership.Organization)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(p access.Project) bool { return !r.Sees(p.ID) })
	ids := make([]uuid.UUID, len(all))
	for i, p := range all {
		ids[i] = p.ID
	}
	ready, err := d.Readiness.ReadinessOf(r.Context(), ids)
	list := make([]project, len(all))
	for i, p := range all {
		is := ready[p.ID]
		list[i] = project{p.Slug, p.Archived, is.Raw + is.Comprehension, is.Failed, is.Blocked()}
	}
	slices.SortStableFunc(list, func(a, b project) int {
		return cmp.Or(cmp.Compare(b.Failed, a.Failed), cmp.Compare(b.Open, a.Open))
	})
	return list[:min(len(list), maxProjects)], err
}

// organizations are those whose name, id or owner has a text.
type organizations struct {
	web.Part[tenants.ListedOrganization]
	// More is true if there are more than a list can have: the newest are not in it.
	More bool `json:"more"`
}

func (d Deps) organizations(r *web.Request) error {
	all, err := d.Tenancy.Organizations(r.Context(), "")
	if err != nil {
		return err
	}
	page := organizations{More: len(all) == access.MaxOrganizations}
	wanted := strings.ToLower(strings.TrimSpace(r.URL.Query().Get("q")))
	all = slices.DeleteFunc(all, func(o tenants.ListedOrganization) bool {
		return !strings.Contains(strings.ToLower(o.Name+"\n"+o.ID.String()+"\n"+o.OwnerEmail), wanted)
	})
	return web.List[tenants.ListedOrganization]{
		Name:    "organizations",
		Columns: []string{"id", "name", "plan", "ownerEmail", "projects", "spendCap", "isPrepared", "createdAt"},
		Cells: func(o tenants.ListedOrganization) []any {
			return []any{o.ID, o.Name, o.Plan, o.OwnerEmail, o.Projects, o.SpendCap, o.IsPrepared, o.CreatedAt}
		},
		Read: func(after, before string, most int) (web.Part[tenants.ListedOrganization], error) {
			return web.SliceOf(all, after, before, most), nil
		},
	}.Page(r, "organizations.html", &page, &page.Part, nil)
}
