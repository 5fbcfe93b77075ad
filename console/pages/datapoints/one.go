package datapoints

import (
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/projections/history"
	"github.com/annals-project/annals/projections/why"
)

func (p *pages) one(r *web.Request) error {
	query, q := r.URL.Query(), why.PointQuery{Bytes: shown}
	if !q.Continue(query.Get("events"), query.Get("memories")) {
		return web.WrongPlace()
	}
	found, err := p.point(r, q)
	if err != nil {
		return err
	}
	page := onePage{Point: found}
	if err := p.name(r, &page); err != nil {
		return err
	}
	return r.Render("one.html", page)
}

// onePage is a data point with who did what to it.
type onePage struct {
	why.Point

	// Who are the principals of its events, Logged the requests that the request log has.
	Who    map[string]history.Principal `json:"who,omitempty"`
	Logged map[uuid.UUID]bool           `json:"-"`
	// History is what people changed of it, or its deletion.
	History []history.Event `json:"history"`
	Thing   string          `json:"-"`
}

// IsLogged reports whether the request log has the request of the deletion.
func (p onePage) IsLogged(request *uuid.UUID) bool { return p.Logged[*request] }

// lastEvents is how many events of history a page shows of a data point.
const lastEvents = 10

// name adds who did what.
func (p *pages) name(r *web.Request, page *onePage) (err error) {
	project := r.Project.Project
	page.Thing = history.OfDataPoint + ":" + stream.DataPointID(project.Namespace, page.SourceID).String()
	if page.History, err = p.History.Latest(r.Context(), r.HistoryViewer(), page.Thing, lastEvents); err != nil {
		return err
	}
	var requests []uuid.UUID
	var principals []string
	for _, e := range page.Events {
		requests, principals = append(requests, e.Request), append(principals, e.Principal)
	}
	if page.Deleted != nil && page.Deleted.Request != nil {
		requests = append(requests, *page.Deleted.Request)
	}
	if page.Logged, err = p.Log.Logged(r.Context(), project.ID, requests); err != nil {
		return err
	}
	page.Who, err = p.History.Principals(r.Context(), principals)
	return err
}

// point reads the data point of the path. An id that no data point can have is not found.
func (p *pages) point(r *web.Request, q why.PointQuery) (why.Point, error) {
	if q.SourceID = r.Part("id"); !isText(q.SourceID) {
		return why.Point{}, fault.New(fault.NotFound, fault.CodeDataPointNotFound, "no data point can have this id")
	}
	return p.Trace.Point(r.Context(), r.Project.Project, q)
}

// live is point for one that is not deleted, with some bytes of its texts; 0 for all.
func (p *pages) live(r *web.Request, bytes int) (why.Point, error) {
	found, err := p.point(r, why.PointQuery{Bytes: bytes})
	if err == nil && found.Deleted != nil {
		err = fault.New(fault.Conflict, fault.CodeDataPointDeleted, "this data point was deleted")
	}
	return found, err
}

// isText reports whether a text can be stored.
func isText(text string) bool { return utf8.ValidString(text) && !strings.Contains(text, "\x00") }

// text writes the whole text of the newest revision, or with ?of=metadata its metadata.
func (p *pages) text(r *web.Request) error {
	found, err := p.live(r, 0)
	if err != nil {
		return err
	}
	text := found.Text
	if r.URL.Query().Get("of") == "metadata" {
		text = found.JSON
	}
	r.Writer().Header().Set("X-Content-Type-Options", "nosniff")
	return r.Text("text/plain; charset=utf-8", text)
}

func (p *pages) deleteForm(r *web.Request) error {
	found, err := p.live(r, shown)
	if err != nil {
		return err
	}
	return r.Render("delete.html", found)
}

func (p *pages) delete(r *web.Request) error {
	_, err := p.Commands.DeleteDataPoints(r.Context(), r.Command(), []string{r.Part("id")})
	return r.Did(err, r.ProjectPath("data"), "deleted")
}
