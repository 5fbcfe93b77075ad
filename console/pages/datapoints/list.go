package datapoints

import (
	"cmp"
	"net/url"
	"time"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/instant"
	"github.com/annals-project/annals/internal/fields"
	points "github.com/annals-project/annals/projections/datapoints"
)

func (p *pages) list(r *web.Request) error {
	var page web.Part[points.Listed]
	return web.List[points.Listed]{
		Name: "data-points", Columns: []string{
			"id", "label", "excerpt", "author", "audience", "occurredAt", "acceptedAt", "revision", "memories",
		},
		Cells: func(p points.Listed) []any {
			return []any{
				p.SourceID, p.Label, p.Excerpt, p.Author, audienceName(p.Audience, p.PrivateTo), p.OccurredAt, p.AcceptedAt,
				p.Revision, p.Memories,
			}
		},
		Read: func(after, before string, most int) (part web.Part[points.Listed], err error) {
			q := points.ListQuery{Limit: most}
			if q.Filter, err = filterOf(r.URL.Query(), r.Zone()); err != nil {
				return part, err
			}
			if q.Label != "" && !r.SeesTexts() {
				return part, web.NoTexts()
			}
			var wrong error
			q.After, err = points.ParsePlace(after)
			if q.Before, wrong = points.ParsePlace(before); err != nil || wrong != nil {
				return part, web.WrongPlace()
			}
			list, err := p.Points.List(r.Context(), r.Project.Project.ID, q)
			if part.Items = list.Points; !r.SeesTexts() {
				for i := range part.Items {
					part.Items[i].Label, part.Items[i].Excerpt = nil, ""
				}
			}
			part.Pager = web.PagerOf(list.Newer, list.Older, list.First.String(), list.Last.String())
			if part.Pager.Total = web.Total(list.Total); list.AtLeast && list.Total <= web.MaxTotal {
				part.Pager.Total = "at least " + part.Pager.Total
			}
			return part, err
		},
	}.Serve(r, "list.html", &page, &page)
}

// filterOf reads the filter of a list. Its times are in the zone in which the list shows them. The fault is
// invalid-request.
func filterOf(query url.Values, zone *time.Location) (f points.Filter, err error) {
	for name, into := range map[string]*string{
		"author": &f.Author, "audience": &f.Audience, "label": &f.Label, "id": &f.ID,
	} {
		if *into = query.Get(name); !isText(*into) {
			return f, fields.Invalid(name, "is no text")
		}
	}
	for name, end := range map[string]*time.Time{"from": &f.From, "to": &f.To} {
		text := query.Get(name)
		if text == "" {
			continue
		}
		at, err := instant.ReadIn(text, zone)
		if err != nil {
			return f, fields.Invalid(name, "is no time: %v. Write a date or a time in your zone, %s, or with an offset, "+
				"such as 2026-11-26, 2026-11-26T14:00 or 2026-11-26T14:00Z", err, zone)
		}
		if *end = at.At; name == "to" {
			*end = at.End()
		}
	}
	return f, nil
}

// audienceName names an audience: one without a slug is private to an identity, or was removed.
func audienceName(slug, privateTo string) string {
	if privateTo != "" {
		return privateAudience
	}
	return cmp.Or(slug, removedAudience)
}

// The names of audiences without a slug, which no slug can be.
const (
	privateAudience = "(private)"
	removedAudience = "(removed: nobody)"
)
