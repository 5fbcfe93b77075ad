package directory

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/internal/fields"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/directory"
	"github.com/annals-project/annals/projections/history"
)

// identityPage is an identity, or the form of a new one.
type identityPage struct {
	directory.Identity
	Shown map[string]string `json:"-"`
	// Audiences are those that it belongs to, with why. MoreAudiences is true if there are others.
	Audiences     []judged `json:"audiences"`
	MoreAudiences bool     `json:"moreAudiences"`
	// Wrote are the data points whose newest revision it wrote.
	Wrote     points       `json:"wrote"`
	History   history.Page `json:"history"`
	Rows      []trait      `json:"-"`
	TraitKeys []string     `json:"-"`
	IsNew     bool         `json:"-"`
	MayWrite  bool         `json:"-"`
}

// trait is a trait in the form. Before is its value when the form was shown, by which a change of somebody else stays.
type trait struct{ Key, Value, Before string }

func rowsOf(traits map[string]string) (rows []trait) {
	for _, key := range slices.Sorted(maps.Keys(traits)) {
		rows = append(rows, trait{key, traits[key], traits[key]})
	}
	return rows
}

// emptyRows are the rows of a form for further traits.
const emptyRows = 3

func (d Deps) identity(r *web.Request) error {
	page, err := d.identityPage(r, identityOf(r))
	if err != nil {
		return err
	}
	return r.Render("identity.html", page)
}

func (d Deps) identityPage(r *web.Request, name string) (page identityPage, err error) {
	project := r.Project.Project
	found, ok, err := d.Directory.Identity(r.Context(), project, name)
	if err != nil {
		return page, err
	}
	if !ok {
		return page, notFound(words.noIdentity, name)
	}
	page.MayWrite = r.May(web.Write)
	page.Identity = found
	if err := json.Unmarshal(found.Traits, &page.Shown); err != nil {
		return page, err
	}
	page.Rows = append(rowsOf(page.Shown), make([]trait, emptyRows)...)
	if page.TraitKeys, err = d.Directory.TraitKeys(r.Context(), project); err != nil {
		return page, err
	}
	of, more, err := d.Directory.Memberships(r.Context(), project, name)
	if err != nil {
		return page, err
	}
	for page.MoreAudiences = more; len(of) > 0; of = of[1:] {
		page.Audiences = append(page.Audiences, judgedOf(of[0]))
	}
	page.History, err = d.History.Of(r.Context(), history.Identity(project, name), r.URL.Query().Get("events"))
	if err != nil {
		return page, err
	}
	page.Wrote, err = d.points(r, datapoints.Filter{Author: name})
	return page, err
}

func (d Deps) newIdentity(r *web.Request) error {
	keys, err := d.Directory.TraitKeys(r.Context(), r.Project.Project)
	if err != nil {
		return err
	}
	return r.Render("identity.html", identityPage{
		IsNew: true, MayWrite: true, TraitKeys: keys, Rows: make([]trait, emptyRows),
	})
}

// saveIdentity creates an identity, or changes the traits that the form changes.
func (d Deps) saveIdentity(r *web.Request) error {
	name, isNew := r.Raw("identity"), r.PostForm.Has("new")
	rows, set, removed := changesOf(r)
	err := checkTraits(name, rows)
	if err == nil && isNew {
		if _, exists, found := d.Directory.Identity(r.Context(), r.Project.Project, name); found != nil {
			return found
		} else if exists {
			err = fault.New(fault.Conflict, fault.CodeConflict, "the project has an identity %.80q: change that one", name)
		}
	}
	if err == nil {
		_, err = d.Commands.PatchIdentity(r.Context(), r.Command(), name, set, removed)
	}
	if err == nil {
		return r.Done(linksOf(r).To(name), "saved")
	}
	page := identityPage{IsNew: true, MayWrite: true, Identity: directory.Identity{Identity: name}}
	if !isNew {
		shown, found := d.identityPage(r, name)
		if found != nil {
			return found
		}
		page = shown
	}
	page.Rows = append(rows, make([]trait, emptyRows)...)
	return r.Invalid(err, "identity.html", page)
}

// changesOf reads the traits of the form, and which of them it changes. An empty key or value is no trait.
func changesOf(r *web.Request) (rows []trait, set map[string]string, removed []string) {
	set, before := map[string]string{}, map[string]string{}
	for n, key := range r.PostForm["was"] {
		before[key] = at(r.PostForm["before"], n)
	}
	has := map[string]bool{}
	for n, key := range r.PostForm["key"] {
		value := at(r.PostForm["value"], n)
		if key == "" && value == "" {
			continue
		}
		was, had := before[key]
		rows = append(rows, trait{key, value, was})
		if key == "" || value == "" {
			continue
		}
		if has[key] = true; !had || was != value {
			set[key] = value
		}
	}
	for _, key := range slices.Sorted(maps.Keys(before)) {
		if !has[key] {
			removed = append(removed, key)
		}
	}
	return rows, set, removed
}

func at(list []string, n int) string {
	if n < len(list) {
		return list[n]
	}
	return ""
}

// checkTraits returns the fault of a name, or of a trait that is no pair.
func checkTraits(name string, rows []trait) error {
	if err := fields.CheckName(name, 1, limit.Identity); err != nil {
		return invalid(words.field, "identity", err)
	}
	seen := map[string]bool{}
	for _, t := range rows {
		if err := fields.CheckName(t.Key, 1, limit.TraitKey); err != nil {
			return invalid(words.field, "a trait", err)
		}
		if err := fields.CheckName(t.Value, 0, limit.TraitValue); err != nil {
			return invalid(words.field, "the value of "+t.Key, err)
		}
		if seen[t.Key] {
			return invalid("the trait %.80q is there twice", t.Key)
		}
		seen[t.Key] = true
	}
	return nil
}

func (d Deps) deleteIdentity(r *web.Request) error {
	if err := d.Commands.DeleteIdentity(r.Context(), r.Command(), r.Raw("identity")); err != nil {
		return err
	}
	return r.Done(r.ProjectPath("identities"), "deleted")
}
