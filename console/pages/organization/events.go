package organization

import (
	"iter"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/history"
)

// maxExported is the most events of one file.
const maxExported = 10_000

// eventsView is a page of the events of management.
type eventsView struct {
	history.Page

	Project  string    `json:"project,omitempty"`
	Projects []string  `json:"-"`
	Pager    web.Pager `json:"-"`
	// IsPart reports that the events of some projects are only in the lists of those.
	IsPart bool `json:"isPart,omitempty"`
}

// events shows who changed what of the organization and its projects, or of one of them.
func (d Deps) events(r *web.Request) error {
	projects, err := d.Access.Projects(r.Context(), r.Membership.Organization)
	if err != nil {
		return err
	}
	slug := r.URL.Query().Get("project")
	read, err := d.reader(r, projects, slug)
	if err != nil {
		return err
	}
	if r.Format() == "csv" {
		return r.Rows("events", []string{"at", "event", "by", "details", "request"}, rows(read))
	}
	page, err := read(r.URL.Query().Get("after"))
	if err != nil {
		return err
	}
	view := eventsView{
		Page: page, Project: slug, Pager: web.Pager{Next: page.Next},
		IsPart: slug == "" && (page.IsCut || len(projects) > history.MaxProjects),
	}
	for _, p := range projects {
		view.Projects = append(view.Projects, p.Slug)
	}
	return r.Render("events.html", view)
}

type reader = func(after string) (history.Page, error)

func (d Deps) reader(r *web.Request, projects []access.Project, slug string) (reader, error) {
	var ids []uuid.UUID
	for _, p := range projects {
		if p.Slug == slug {
			return func(after string) (history.Page, error) {
				return d.History.Of(r.Context(), history.Project(p.ID), after)
			}, nil
		}
		ids = append(ids, p.ID)
	}
	if slug != "" {
		return nil, fault.New(fault.NotFound, fault.CodeNotFound, "there is no project %q", slug)
	}
	return func(after string) (history.Page, error) {
		return d.History.Management(r.Context(), r.Membership.Organization, ids, after)
	}, nil
}

// rows are the newest maxExported events.
func rows(read reader) iter.Seq2[[]string, error] {
	return func(yield func([]string, error) bool) {
		after := ""
		for n := 0; n < maxExported; {
			page, err := read(after)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, e := range page.Events {
				if n++; !yield(row(e), nil) {
					return
				}
			}
			if after = page.Next; after == "" {
				return
			}
		}
	}
}

func row(e history.Event) []string {
	by, details := e.By.Name, make([]string, len(e.Fields))
	if by == "" {
		by = strings.TrimSpace(e.By.Kind + " " + e.By.ID)
	}
	for i, f := range e.Fields {
		details[i] = f.Name + ": " + f.Value
	}
	request := ""
	if e.RequestID != uuid.Nil {
		request = e.RequestID.String()
	}
	return []string{e.At.UTC().Format(time.RFC3339), e.Name, by, strings.Join(details, "; "), request}
}
