package health

import (
	"cmp"
	"slices"

	"github.com/google/uuid"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/internal/condition"
)

// maxProjects is the most projects that the page shows, those with failed and open sends first.
const maxProjects = 200

// state is the state of the service and of the projects that the person may read. Operator is there for operators.
type state struct {
	IsReady  bool                 `json:"isReady"`
	NotReady []condition.NotReady `json:"notReady"`
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

func (d Deps) health(r *web.Request) error {
	operator := r.May(web.Operator)
	page := state{NotReady: []condition.NotReady{}, Remarks: d.Remarks(operator), Projections: d.Projections()}
	for _, n := range d.NotReady(r.Context()) {
		if !operator {
			n.Cause = ""
		}
		page.NotReady = append(page.NotReady, n)
	}
	page.IsReady = len(page.NotReady) == 0
	if operator {
		details := d.Details()
		page.Operator = &details
	}
	var err error
	if page.Projects, err = d.projects(r); err != nil {
		return err
	}
	return r.Render("health.html", page)
}

// projects returns the projects that the person may read.
func (d Deps) projects(r *web.Request) ([]project, error) {
	all, err := d.Projects.Projects(r.Context(), r.Membership.Organization)
	if err != nil {
		return nil, err
	}
	var ids []uuid.UUID
	for _, p := range all {
		if r.MayIn(p.ID, web.Read) {
			ids = append(ids, p.ID)
		}
	}
	ready, err := d.Readiness.ReadinessOf(r.Context(), ids)
	if err != nil {
		return nil, err
	}
	list := []project{}
	for _, p := range all {
		if r.MayIn(p.ID, web.Read) {
			is := ready[p.ID]
			list = append(list, project{p.Slug, p.Archived, is.Raw + is.Comprehension, is.Failed, is.Blocked()})
		}
	}
	slices.SortStableFunc(list, func(a, b project) int {
		return cmp.Or(cmp.Compare(b.Failed, a.Failed), cmp.Compare(b.Open, a.Open))
	})
	return list[:min(len(list), maxProjects)], nil
}
