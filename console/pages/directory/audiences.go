package directory

import (
	"encoding/json"
	"strconv"

	"github.com/google/uuid"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/directory"
	"github.com/annals-project/annals/projections/history"
)

// audienceList is a page of the list.
type audienceList struct {
	Audiences []directory.AudienceHead `json:"audiences"`
	Pager     web.Pager                `json:"pager"`
	Prefix    string                   `json:"prefix,omitempty"`
	MayWrite  bool                     `json:"-"`
}

func (d Deps) audiences(r *web.Request) error {
	query := r.URL.Query()
	page := audienceList{Prefix: query.Get("prefix"), MayWrite: r.May(web.Write)}
	after, before := query.Get("after"), query.Get("before")
	if after != "" && !audience.ValidSlug(after) || before != "" && !audience.ValidSlug(before) {
		return r.Invalid(invalid("%s", words.noCursor), "audiences.html", page)
	}
	if len(page.Prefix) > limit.AudienceSlug {
		return r.Invalid(invalid(words.field, "a slug", "has at most 40 characters"), "audiences.html", page)
	}
	listing := directory.AudienceListing{Prefix: page.Prefix, After: after, Before: before, Limit: pageSize}
	if r.Format() == "csv" {
		listing.Limit = limit.Audiences
	}
	found, err := d.Directory.AudienceHeads(r.Context(), r.Project.Project, listing)
	if err != nil {
		return err
	}
	if page.Audiences = found.List; r.Format() == "csv" {
		return audienceRows(r, page.Audiences)
	}
	if len(found.List) > 0 && found.Previous {
		page.Pager.Previous = found.List[0].Slug
	}
	if len(found.List) > 0 && found.Next {
		page.Pager.Next = found.List[len(found.List)-1].Slug
	}
	return r.Render("audiences.html", page)
}

func audienceRows(r *web.Request, list []directory.AudienceHead) error {
	columns := []string{"slug", "name", "kind", "members", "memories", "createdAt", "putAt"}
	return rows(r, "audiences", columns, func() (part [][]string, more bool, err error) {
		for _, a := range list {
			part = append(part, []string{
				a.Slug, a.Name, string(a.Kind), web.Total(int(a.Members)), strconv.FormatInt(a.Memories, 10), stamp(a.CreatedAt),
				stamp(a.PutAt),
			})
		}
		return part, false, nil
	})
}

// audiencePage is an audience with a page of its members.
type audiencePage struct {
	links
	directory.AudienceHead
	Match      audience.Match     `json:"-"`
	Conditions []string           `json:"-"`
	List       []directory.Member `json:"list"`
	Pager      web.Pager          `json:"pager"`
	Points     points             `json:"points"`
	History    history.Page       `json:"history"`
	MayWrite   bool               `json:"-"`
}

func (d Deps) audience(r *web.Request) error {
	a, err := d.found(r)
	if err != nil {
		return err
	}
	listing := directory.MemberListing{Limit: pageSize}
	for name, place := range map[string]**uuid.UUID{"after": &listing.After, "before": &listing.Before} {
		if text := r.URL.Query().Get(name); text != "" {
			id, err := uuid.Parse(text)
			if err != nil {
				return invalid("%s", words.noCursor)
			}
			*place = &id
		}
	}
	if r.Format() == "csv" {
		return d.memberRows(r, a.Slug)
	}
	page := audiencePage{links: linksOf(r), AudienceHead: a, MayWrite: r.May(web.Write)}
	if a.Rule != nil {
		var rule audience.Rule
		if err := json.Unmarshal(a.Rule, &rule); err != nil {
			return err
		}
		page.Match = rule.Match
		for _, c := range rule.Conditions {
			page.Conditions = append(page.Conditions, textOf(c))
		}
	}
	members, ok, err := d.Directory.Members(r.Context(), r.Project.Project, a.Slug, listing)
	if err != nil {
		return err
	}
	if !ok {
		return notFound(words.noAudience, a.Slug)
	}
	of := history.Audience(r.Project.Project.ID, a.ID)
	if page.History, err = d.History.Of(r.Context(), of, r.URL.Query().Get("events")); err != nil {
		return err
	}
	if page.Points, err = d.points(r, datapoints.Filter{Audience: a.Slug}); err != nil {
		return err
	}
	if page.List = members.List; members.Previous {
		page.Pager.Previous = members.Start.String()
	}
	if members.Next {
		page.Pager.Next = members.End.String()
	}
	return r.Render("audience.html", page)
}

// found finds the audience of the path.
func (d Deps) found(r *web.Request) (directory.AudienceHead, error) {
	slug := r.PathValue("slug")
	a, ok, err := d.Directory.AudienceHead(r.Context(), r.Project.Project, slug)
	if err == nil && !ok {
		err = notFound(words.noAudience, slug)
	}
	return a, err
}

// memberRows writes the members of an audience as a file.
func (d Deps) memberRows(r *web.Request, slug string) error {
	l := directory.MemberListing{Limit: limit.IdentityPage}
	return rows(r, slug, []string{"identity", "memberSince", "isExact"}, func() (part [][]string, more bool, err error) {
		page, _, err := d.Directory.Members(r.Context(), r.Project.Project, slug, l)
		for _, m := range page.List {
			part = append(part, []string{m.Identity, stamp(m.Since), strconv.FormatBool(m.Exact)})
		}
		l.After = &page.End
		return part, page.Next, err
	})
}

// total shows how many members an audience of a list has.
func (audienceList) Total(n int64) string { return web.Total(int(n)) }

func (d Deps) recomputeAudience(r *web.Request) error {
	slug := r.PathValue("slug")
	if _, err := d.Commands.RecomputeAudience(r.Context(), r.Command(), slug); err != nil {
		return err
	}
	return r.Done(r.ProjectPath("audiences", slug), "saved")
}

func (d Deps) deleteAudience(r *web.Request) error {
	if err := d.Commands.DeleteAudience(r.Context(), r.Command(), r.PathValue("slug")); err != nil {
		return err
	}
	return r.Done(r.ProjectPath("audiences"), "deleted")
}
