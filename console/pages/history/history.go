// Package history is the pages of History: who did what in an organization, in a project and with a thing, and one
// event as a whole.
package history

import (
	"embed"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/instant"
	"github.com/annals-project/annals/internal/fields"
	"github.com/annals-project/annals/internal/requestlog"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/history"
)

//go:embed *.html
var templates embed.FS

// Deps are what the pages read.
type Deps struct {
	Access  access.Queries
	History history.Reader
	Log     *requestlog.Log
}

// Area returns the pages.
func Area(d Deps) web.Area {
	event := web.NewPage("event.html", d.event)
	return web.Area{Templates: templates, Routes: []web.Route{
		{Pattern: "GET /settings/history", Needs: web.Admin, Auditors: web.Audited, Serve: d.list},
		{Pattern: "GET /settings/history/{event}", Needs: web.Admin, Auditors: web.Audited, Serve: event.Show},
		{Pattern: "GET /p/{project}/history", Needs: web.Read, Auditors: web.Audited, Serve: d.list},
		{Pattern: "GET /p/{project}/history/{event}", Needs: web.Read, Auditors: web.Audited, Serve: event.Show},
	}}
}

// view is a page of the list, with its filter as it was given.
type view struct {
	web.Part[history.Event]

	By      string `json:"by,omitempty"`
	Kind    string `json:"kind,omitempty"`
	Thing   string `json:"thing,omitempty"`
	Project string `json:"project,omitempty"`
	From    string `json:"from,omitempty"`
	To      string `json:"to,omitempty"`
	// Kinds, Projects and People are what the form offers.
	Kinds    []string        `json:"-"`
	Projects []string        `json:"-"`
	People   []access.Member `json:"-"`
}

// list shows who did what, filtered by what the address names.
func (d Deps) list(r *web.Request) error {
	query := r.URL.Query()
	v := view{
		By: query.Get("by"), Kind: query.Get("kind"), Thing: query.Get("thing"), Project: query.Get("project"),
		From: query.Get("from"), To: query.Get("to"),
	}
	sees := r.HistoryViewer()
	v.Kinds = sees.Kinds()
	if err := d.offers(r, &v, &sees); err != nil {
		return err
	}
	of, wrong := d.queryOf(r, &v)
	return web.List[history.Event]{
		Name: "history", Cells: cells,
		Columns: []string{"at", "kind", "project", "by", "what", "changes", "request", "event"},
		Read: func(after, before string, most int) (part web.Part[history.Event], err error) {
			if wrong != nil {
				return part, wrong
			}
			return web.Forwards(after, before, func(cursor string) ([]history.Event, string, error) {
				of.After, of.Most = cursor, most
				page, err := d.History.List(r.Context(), sees, of)
				return page.Events, page.Next, err
			})
		},
	}.Page(r, "list.html", &v, &v.Part, nil)
}

// offers reads what the form of the filter offers, and the project that it names.
func (d Deps) offers(r *web.Request, v *view, sees *history.Viewer) (err error) {
	if sees.May < history.Manage {
		return nil
	}
	organization := r.Membership.Organization
	if v.People, err = d.Access.Members(r.Context(), organization); err != nil || sees.Project != uuid.Nil {
		return err
	}
	projects, err := d.Access.Projects(r.Context(), organization)
	for _, p := range projects {
		v.Projects = append(v.Projects, p.Slug)
		if p.Slug == v.Project {
			sees.Project = p.ID
		}
	}
	if err == nil && v.Project != "" && sees.Project == uuid.Nil {
		err = fault.New(fault.NotFound, fault.CodeNotFound, "there is no project %q", v.Project)
	}
	return err
}

// queryOf reads the filter. Its fault is invalid-request.
func (d Deps) queryOf(r *web.Request, v *view) (of history.Query, err error) {
	of = history.Query{Kind: v.Kind, Thing: v.Thing}
	for name, text := range map[string]string{"by": v.By, "kind": v.Kind, "thing": v.Thing} {
		if strings.ContainsRune(text, 0) || len(text) > maxField {
			return of, fields.Invalid(name, "is no text of a filter")
		}
	}
	for name, end := range map[string]*time.Time{"from": &of.From, "to": &of.To} {
		text := map[string]string{"from": v.From, "to": v.To}[name]
		if text == "" {
			continue
		}
		at, err := instant.ReadIn(text, r.Zone())
		if err != nil {
			return of, fields.Invalid(name, "is no time: write a date or a time in your zone, such as 2026-11-26 or "+
				"2026-11-26T14:00")
		}
		if *end = at.At; name == "to" {
			*end = at.End()
		}
	}
	of.By, err = d.principalOf(r, v)
	return of, err
}

// maxField is how long a field of the filter may be, in bytes.
const maxField = 400

// principalOf is the principal that the filter names: by the address of a member, by the id of a person, or as events
// have it. An address that nobody here has finds nothing, so that nobody learns who is a member.
func (d Deps) principalOf(r *web.Request, v *view) (string, error) {
	by := strings.TrimSpace(v.By)
	switch {
	case by == "" || strings.Contains(by, ":"):
		return by, nil
	case uuid.Validate(by) == nil:
		return "person:" + by, nil
	case strings.HasPrefix(by, history.OfOperator):
		return by, nil
	}
	members, err := d.Access.Members(r.Context(), r.Membership.Organization)
	for _, m := range members {
		if strings.EqualFold(m.Email, by) {
			return "person:" + m.PersonID.String(), nil
		}
	}
	return "person:" + uuid.Nil.String(), err
}

func cells(e history.Event) []any {
	request := ""
	if e.RequestID != uuid.Nil {
		request = e.RequestID.String()
	}
	changes := make([]string, len(e.Changes))
	for i, c := range e.Changes {
		changes[i] = c.String()
	}
	return []any{
		e.At, e.Kind, e.Project, e.By.Name, e.Text, strings.Join(changes, "; "), request, e.ID.String(),
	}
}

// eventPage is one event.
type eventPage struct {
	history.Whole

	// Metadata and Payload are shown as text.
	MetadataText string `json:"-"`
	PayloadText  string `json:"-"`
}

// event shows an event as a whole. One that the person may not see is not found.
func (d Deps) event(r *web.Request) (v eventPage, err error) {
	id, err := uuid.Parse(r.PathValue("event"))
	if err != nil {
		return v, fault.New(fault.NotFound, fault.CodeNotFound, "there is no such event")
	}
	if v.Whole, err = d.History.One(r.Context(), r.HistoryViewer(), id); err != nil {
		return v, err
	}
	if v.Event.IsLogged {
		if v.Event.IsLogged, err = d.isLogged(r, v.Event); err != nil {
			return v, err
		}
	}
	v.MetadataText, v.PayloadText = web.Cut(string(v.Metadata), maxShown), web.Cut(string(v.Payload), maxShown)
	return v, nil
}

// isLogged reports whether the request log has the request of an event: not after its time, and not each of a key.
func (d Deps) isLogged(r *web.Request, e history.Event) (bool, error) {
	project := r.Project.Project.ID
	if project == uuid.Nil {
		p, _, err := d.Access.ProjectBySlug(r.Context(), r.Membership.Organization, e.Project)
		if err != nil {
			return false, err
		}
		project = p.ID
	}
	logged, err := d.Log.Logged(r.Context(), project, []uuid.UUID{e.RequestID})
	return logged[e.RequestID], err
}

// maxShown is how much of a payload the page shows; its JSON has all of it.
const maxShown = 64 << 10
