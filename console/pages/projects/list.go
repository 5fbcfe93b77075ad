package projects

import (
	"time"

	"github.com/annals-project/annals/console/web"
)

// listed is a project that the person may read.
type listed struct {
	Slug       string    `json:"slug"`
	Name       string    `json:"name"`
	IsArchived bool      `json:"isArchived"`
	CreatedAt  time.Time `json:"createdAt"`
}

func (d Deps) list(r *web.Request) error {
	all, err := d.Access.Projects(r.Context(), r.Membership.Organization)
	if err != nil {
		return err
	}
	list := []listed{}
	for _, p := range all {
		if r.MayIn(p.ID, web.Read) {
			list = append(list, listed{p.Slug, p.Name, p.Archived, p.CreatedAt})
		}
	}
	return r.Render("list.html", list)
}
