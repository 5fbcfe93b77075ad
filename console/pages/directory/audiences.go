package directory

import (
	"github.com/google/uuid"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/directory"
	"github.com/annals-project/annals/projections/history"
)

// audienceList is a page of the list, with its filter.
type audienceList struct {
	web.Part[directory.AudienceHead]
	Prefix string
}

func (d Deps) audiences(r *web.Request) error {
	page := audienceList{Prefix: r.URL.Query().Get("prefix")}
	return web.List[directory.AudienceHead]{
		Name: "audiences", Columns: []string{"slug", "name", "kind", "members", "memories", "createdAt", "putAt"},
		Cells: func(a directory.AudienceHead) []any {
			return []any{a.Slug, a.Name, a.Kind, web.Total(a.Members), a.Memories, a.CreatedAt, a.PutAt}
		},
		Read: func(after, before string, most int) (part web.Part[directory.AudienceHead], err error) {
			if after != "" && !audience.ValidSlug(after) || before != "" && !audience.ValidSlug(before) ||
				len(page.Prefix) > limit.AudienceSlug {
				return part, invalid("no audience has this slug")
			}
			found, err := d.Directory.AudienceHeads(r.Context(), r.Project.Project, directory.AudienceListing{
				Prefix: page.Prefix, After: after, Before: before, Limit: most,
			})
			slug := func(a directory.AudienceHead) string { return a.Slug }
			return web.PartOf(found.List, found.Previous, found.Next, slug), err
		},
	}.Serve(r, "audiences.html", &page, &page.Part)
}

// audiencePage is an audience with a page of its members, and with the data points that carry it.
type audiencePage struct {
	directory.AudienceHead
	web.Part[directory.Member]
	Points datapoints.List `json:"points"`
	Events []history.Event `json:"events"`
	// Past is set if the members are those of a time.
	Past *pastAudience `json:"past,omitempty"`
}

func (d Deps) audience(r *web.Request) error {
	a, err := d.found(r)
	if err != nil {
		return err
	}
	page := audiencePage{AudienceHead: a}
	at, wrong := asOf(r)
	lost := r.URL.Query().Get("lost") != ""
	switch {
	case at != nil:
		page.Past = &pastAudience{At: *at, Lost: lost}
	case lost && wrong == nil:
		wrong = invalid("%s", words.sinceWhen)
	}
	return web.List[directory.Member]{
		Name: a.Slug, Columns: []string{"identity", "memberSince", "isExact", "until"},
		Cells: func(m directory.Member) []any { return []any{m.Identity, m.Since, m.Exact, m.Until} },
		Read: func(after, before string, most int) (part web.Part[directory.Member], err error) {
			switch {
			case wrong != nil:
				return part, wrong
			case page.Past != nil:
				return d.membersAt(r, a.Slug, page.Past, after, before, most)
			}
			listing := directory.MemberListing{Limit: most}
			for text, place := range map[string]**uuid.UUID{after: &listing.After, before: &listing.Before} {
				if id, wrong := uuid.Parse(text); wrong == nil {
					*place = &id
				} else if text != "" {
					return part, web.WrongPlace()
				}
			}
			members, ok, err := d.Directory.Members(r.Context(), r.Project.Project, a.Slug, listing)
			part.Items = members.List
			part.Pager = web.PagerOf(members.Previous, members.Next, members.Start.String(), members.End.String())
			return part, notFound(err, ok, words.noAudience, a.Slug)
		},
	}.Page(r, "audience.html", &page, &page.Part, func() (err error) {
		page.Events, err = d.History.Latest(r.Context(), r.HistoryViewer(), history.OfAudience+":"+a.ID.String(), lastEvents)
		if err != nil {
			return err
		}
		carry := datapoints.ListQuery{Filter: datapoints.Filter{Audience: a.Slug}, Limit: newest}
		page.Points, err = d.Points.List(r.Context(), r.Project.Project.ID, carry)
		return err
	})
}

// found finds the audience of the path.
func (d Deps) found(r *web.Request) (directory.AudienceHead, error) {
	slug := r.PathValue("slug")
	a, ok, err := d.Directory.AudienceHead(r.Context(), r.Project.Project, slug)
	return a, notFound(err, ok, words.noAudience, slug)
}

func (d Deps) recomputeAudience(r *web.Request) error {
	slug := r.PathValue("slug")
	_, err := d.Commands.RecomputeAudience(r.Context(), r.Command(), slug)
	return r.Did(err, r.ProjectPath("audiences", slug), "saved")
}

func (d Deps) deleteAudience(r *web.Request) error {
	if err := r.AskFirst("delete-audience"); err != nil {
		return err
	}
	err := d.Commands.DeleteAudience(r.Context(), r.Command(), r.PathValue("slug"))
	return r.Did(err, r.ProjectPath("audiences"), "deleted")
}
