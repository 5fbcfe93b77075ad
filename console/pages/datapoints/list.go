package datapoints

import (
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"strconv"
	"time"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/instant"
	points "github.com/annals-project/annals/projections/datapoints"
)

// row is a data point in the list.
type row struct {
	points.Listed

	Path  string `json:"-"`
	Short string `json:"-"`
	Title string `json:"-"`
}

func rowOf(r *web.Request, p points.Listed) row {
	title := p.Excerpt
	if p.Label != nil && *p.Label != "" {
		title = *p.Label
	}
	return row{p, pointPath(r, p.SourceID), web.Cut(p.SourceID, 60), web.Cut(title, 120)}
}

// audienceName names an audience: one without a slug was removed.
func audienceName(slug string) string {
	if slug == "" {
		return removedAudience
	}
	return slug
}

const removedAudience = "(removed: nobody)"

type listPage struct {
	Points []row     `json:"points"`
	Pager  web.Pager `json:"pager"`
	// Filtered is true if the list is restricted.
	Filtered bool `json:"-"`
}

func (p *pages) list(r *web.Request) error {
	query := r.URL.Query()
	f, err := filterOf(query)
	if err != nil {
		return r.Invalid(err, "list.html", listPage{})
	}
	switch r.Format() {
	case "csv":
		return p.listCSV(r, f)
	case "json":
		return p.listJSON(r, f)
	}
	q := points.ListQuery{Filter: f, Limit: points.MaxListed}
	if q.After, q.Before, err = cursorsOf(query); err != nil {
		return r.Invalid(err, "list.html", listPage{})
	}
	list, err := p.Points.List(r.Context(), r.Project.Project.ID, q)
	if err != nil {
		return err
	}
	page := listPage{Points: []row{}, Filtered: f != points.Filter{}}
	for _, one := range list.Points {
		page.Points = append(page.Points, rowOf(r, one))
	}
	if page.Pager.Total = web.Total(list.Total); list.More {
		page.Pager.Total = web.Total(list.Total + 1)
	}
	if n := len(list.Points); n > 0 {
		if list.Newer {
			page.Pager.Previous = list.Points[0].Place.String()
		}
		if list.Older {
			page.Pager.Next = list.Points[n-1].Place.String()
		}
	}
	return r.Render("list.html", page)
}

// filterOf reads the filter of a list. The fault is invalid-request.
func filterOf(query url.Values) (f points.Filter, err error) {
	f = points.Filter{
		Author: query.Get("author"), Audience: query.Get("audience"), Label: query.Get("label"), ID: query.Get("id"),
	}
	for _, text := range []string{f.Author, f.Audience, f.Label, f.ID} {
		if !isText(text) {
			return f, fault.New(fault.Invalid, fault.CodeInvalidRequest, "a filter is no text")
		}
	}
	for name, end := range map[string]*time.Time{"from": &f.From, "to": &f.To} {
		text := query.Get(name)
		if text == "" {
			continue
		}
		at, err := instant.Read(text)
		if err != nil {
			return f, fault.New(fault.Invalid, fault.CodeInvalidRequest,
				"%s is no time: %v. Write a date or a time in UTC, such as 2026-11-26 or 2026-11-26T14:00", name, err)
		}
		if *end = at.At; name == "to" {
			*end = at.End()
		}
	}
	return f, nil
}

func cursorsOf(query url.Values) (after, before *points.Place, err error) {
	if after, err = points.ParsePlace(query.Get("after")); err == nil {
		before, err = points.ParsePlace(query.Get("before"))
	}
	if err == nil && after != nil && before != nil {
		err = errors.New("both after and before are given")
	}
	if err != nil {
		err = fault.New(fault.Invalid, fault.CodeInvalidRequest, "the place in the list is wrong: open the list again")
	}
	return after, before, err
}

// listCSV writes what a filter selects, up to points.MaxExported data points.
func (p *pages) listCSV(r *web.Request, f points.Filter) error {
	columns := []string{
		"id", "label", "excerpt", "author", "audience", "occurredAt", "acceptedAt", "revision", "memories",
	}
	return r.Rows("data-points", columns, func(yield func([]string, error) bool) {
		stopped := errors.New("the reader left")
		_, err := p.Points.EachListed(r.Context(), r.Project.Project.ID, f, func(one points.Listed) error {
			if !yield(cells(one), nil) {
				return stopped
			}
			return nil
		})
		if err != nil && !errors.Is(err, stopped) {
			yield(nil, err)
		}
	})
}

// listJSON writes the same as JSON. more is true if there are others.
func (p *pages) listJSON(r *web.Request, f points.Filter) error {
	return r.Stream("application/json; charset=utf-8", "", func(w io.Writer) error {
		separator := `{"points":[` + "\n"
		more, err := p.Points.EachListed(r.Context(), r.Project.Project.ID, f, func(one points.Listed) error {
			text, err := json.Marshal(one)
			if err == nil {
				_, err = io.WriteString(w, separator+string(text))
			}
			separator = ",\n"
			return err
		})
		if err != nil {
			return err
		}
		if separator != ",\n" {
			_, err = io.WriteString(w, separator)
		}
		if err == nil {
			_, err = io.WriteString(w, "\n],\"more\":"+map[bool]string{true: "true", false: "false"}[more]+"}\n")
		}
		return err
	})
}

func cells(p points.Listed) []string {
	label := ""
	if p.Label != nil {
		label = *p.Label
	}
	return []string{
		p.SourceID, label, p.Excerpt, p.Author, audienceName(p.Audience), p.OccurredAt.Format(time.RFC3339Nano),
		p.AcceptedAt.Format(time.RFC3339Nano), strconv.Itoa(p.Revision), strconv.Itoa(p.Memories),
	}
}
