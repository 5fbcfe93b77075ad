package datapoints

import (
	"strings"
	"unicode/utf8"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
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
	return r.Render("one.html", found)
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
