package directory

import (
	"encoding/json"
	"slices"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/fields"
	"github.com/annals-project/annals/internal/requestlog"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/directory"
	"github.com/annals-project/annals/projections/history"
)

// identityList is a page of the list, with its filter.
type identityList struct {
	web.Part[directory.Identity]
	Prefix, Trait, Value string
	TraitKeys            []string
}

func (d Deps) identities(r *web.Request) (err error) {
	query := r.URL.Query()
	page := identityList{Prefix: query.Get("prefix"), Trait: query.Get("trait"), Value: query.Get("value")}
	if page.TraitKeys, err = d.Directory.TraitKeys(r.Context(), r.Project.Project); err != nil {
		return err
	}
	return web.List[directory.Identity]{
		Name: "identities", Columns: []string{"identity", "origin", "lastSeenAt", "createdAt", "updatedAt", "traits"},
		Cells: func(i directory.Identity) []any {
			return []any{i.Identity, i.Origin, i.LastSeenAt, i.CreatedAt, i.UpdatedAt, string(i.Traits)}
		},
		Read: func(after, before string, most int) (part web.Part[directory.Identity], err error) {
			listing, err := page.listing(after, before, most)
			if err == nil && listing.Value != nil && !r.SeesTexts() {
				err = web.NoTexts()
			}
			if err != nil {
				return part, err
			}
			found, err := d.Directory.IdentityPage(r.Context(), r.Project.Project, listing)
			if part.Items = found.List; !r.SeesTexts() {
				for i := range part.Items {
					part.Items[i].Traits = json.RawMessage(`{}`)
				}
			}
			part.Pager = web.PagerOf(found.Newer, found.Older, placeOf(found.Start), placeOf(found.End))
			if part.Pager.Total = web.Total(found.Total); found.TotalMore {
				part.Pager.Total = "at least " + part.Pager.Total
			}
			return part, err
		},
	}.Serve(r, "identities.html", &page, &page.Part)
}

// placeOf is a place in the list as a cursor, "" for none.
func placeOf(c *directory.Cursor) string {
	if c == nil {
		return ""
	}
	return requestlog.Cursor{At: c.CreatedAt, ID: c.ID}.String()
}

// listing is what the list asks for.
func (l identityList) listing(after, before string, most int) (directory.Listing, error) {
	listing := directory.Listing{Limit: most, Prefix: l.Prefix, Key: l.Trait}
	var problems fields.Problems
	check := func(name, value string, most int) bool {
		if value != "" {
			problems.CheckParameter(name, value, most)
		}
		return value != ""
	}
	check("prefix", l.Prefix, limit.Identity)
	if hasKey := check("trait", l.Trait, limit.TraitKey); check("value", l.Value, limit.TraitValue) {
		if listing.Value = &l.Value; !hasKey {
			problems.Add("value", "%s", words.valueWithoutKey)
		}
	}
	for text, place := range map[string]**directory.Cursor{after: &listing.After, before: &listing.Before} {
		if at, err := requestlog.ParseCursor(text); err == nil {
			*place = &directory.Cursor{CreatedAt: at.At, ID: at.ID}
		} else if text != "" {
			return listing, web.WrongPlace()
		}
	}
	return listing, problems.Err()
}

// identityPage is an identity, or the form of a new one.
type identityPage struct {
	directory.Identity
	IsNew bool `json:"-"`
	// Rows are the traits in the form, and TraitKeys what it suggests.
	Rows      []trait  `json:"-"`
	TraitKeys []string `json:"-"`
	// Audiences are those that it belongs to, with why. MoreAudiences is true if there are others.
	Audiences     []directory.Judgement `json:"audiences"`
	MoreAudiences bool                  `json:"moreAudiences"`
	// Wrote are the data points whose newest revision it wrote.
	Wrote datapoints.List `json:"wrote"`
	// Private are the data points that it alone may read.
	Private datapoints.List `json:"private"`
	// Recalls are the newest recalls as it.
	Recalls []requestlog.Hit `json:"recalls"`
	Events  []history.Event  `json:"events"`
	// Thing is the record in history.
	Thing string `json:"-"`
}

// trait is a trait in the form. Was and Before are its key and value when the form was shown, "" for a new one: a
// change by somebody else meanwhile stays.
type trait struct{ Key, Value, Was, Before string }

// emptyRows are the rows of a form for further traits.
const emptyRows = 3

// showIdentity shows an identity, or the form of a new one, with what is wrong with the form.
func (d Deps) showIdentity(r *web.Request, page identityPage, wrong error) (err error) {
	project, name := r.Project.Project, page.Identity.Identity
	if page.TraitKeys, err = d.Directory.TraitKeys(r.Context(), project); err != nil {
		return err
	}
	if !page.IsNew {
		var ok bool
		page.Identity, ok, err = d.Directory.Identity(r.Context(), project, name)
		if err = notFound(err, ok, words.noIdentity, name); err != nil {
			return err
		}
		if page.Audiences, page.MoreAudiences, err = d.Directory.Memberships(r.Context(), project, name); err != nil {
			return err
		}
		page.Thing = history.OfIdentity + ":" + stream.IdentityID(project.Namespace, name).String()
		if page.Events, err = d.History.Latest(r.Context(), r.HistoryViewer(), page.Thing, lastEvents); err != nil {
			return err
		}
		wrote := datapoints.ListQuery{Filter: datapoints.Filter{Author: name}, Limit: newest}
		if page.Wrote, err = d.Points.List(r.Context(), project.ID, wrote); err != nil {
			return err
		}
		private := datapoints.ListQuery{Filter: datapoints.Filter{AudienceID: page.PrivateAudience}, Limit: newest}
		if page.Private, err = d.Points.List(r.Context(), project.ID, private); err != nil {
			return err
		}
		from, to := r.Now().AddDate(0, 0, -recallDays), r.Now()
		page.Recalls, err = d.Calls.RecalledAs(r.Context(), project.ID, name, from, to, recalls)
		if err != nil {
			return err
		}
	}
	if wrong == nil && !page.IsNew {
		pairs, err := page.Pairs()
		if err != nil {
			return err
		}
		for _, p := range pairs {
			page.Rows = append(page.Rows, trait{p.Key, p.Value, p.Key, p.Value})
		}
	}
	page.Rows = append(page.Rows, make([]trait, emptyRows)...)
	return r.Form(wrong, "identity.html", page)
}

func (d Deps) identity(r *web.Request) error {
	return d.showIdentity(r, identityPage{Identity: directory.Identity{Identity: r.Part("identity")}}, nil)
}

func (d Deps) newIdentity(r *web.Request) error {
	return d.showIdentity(r, identityPage{IsNew: true}, nil)
}

// saveIdentity creates an identity, or changes the traits that the form changes.
func (d Deps) saveIdentity(r *web.Request) error {
	page := identityPage{Identity: directory.Identity{Identity: r.Raw("identity")}, IsNew: r.PostForm.Has("new")}
	name := page.Identity.Identity
	set, removed, err := page.read(r)
	if err == nil && page.IsNew {
		_, exists, found := d.Directory.Identity(r.Context(), r.Project.Project, name)
		err = notNew(found, exists, name)
	}
	if err == nil {
		_, err = d.Commands.PatchIdentity(r.Context(), r.Command(), name, set, removed)
	}
	if err == nil {
		return r.Done(r.ProjectPath("identities", name), "saved")
	}
	return d.showIdentity(r, page, err)
}

// read reads the rows of the form, and which traits it sets and removes. A row without a key or value is no trait.
func (p *identityPage) read(r *web.Request) (set map[string]string, removed []string, err error) {
	var problems fields.Problems
	problems.CheckParameter("identity", p.Identity.Identity, limit.Identity)
	set, has := map[string]string{}, map[string]bool{}
	for n := range r.PostForm["key"] {
		row := trait{at(r, "key", n), at(r, "value", n), at(r, "was", n), at(r, "before", n)}
		if row == (trait{}) {
			continue
		}
		p.Rows = append(p.Rows, row)
		same := row.Key == row.Was && row.Value == row.Before
		if !same && row.Was != "" {
			removed = append(removed, row.Was)
		}
		switch {
		case row.Key == "" && row.Value != "":
			problems.Add("a trait", "has a value and no name")
		case has[row.Key]:
			problems.Add("a trait", "%.80q is there twice", row.Key)
		case !same && row.Key != "" && row.Value != "":
			problems.CheckParameter("a trait", row.Key, limit.TraitKey)
			problems.CheckParameter("the value of "+row.Key, row.Value, limit.TraitValue)
			set[row.Key] = row.Value
		}
		has[row.Key] = has[row.Key] || same || row.Key != "" && row.Value != ""
	}
	removed = slices.DeleteFunc(removed, func(key string) bool { return has[key] })
	return set, removed, problems.Err()
}

// at is a field of a row of a form, "" for none.
func at(r *web.Request, name string, n int) string {
	if list := r.PostForm[name]; n < len(list) {
		return list[n]
	}
	return ""
}

func (d Deps) deleteIdentity(r *web.Request) error {
	err := d.Commands.DeleteIdentity(r.Context(), r.Command(), r.Raw("identity"))
	return r.Did(err, r.ProjectPath("identities"), "deleted")
}
