package directory

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/identities"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/internal/fields"
	"github.com/annals-project/annals/internal/httpx"
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

// audienceForm is the form of an audience: of a new one, or of the one with the slug.
type audienceForm struct {
	IsNew      bool
	Slug, Name string
	Kind       audience.Kind
	// Add and Remove are identities, one a line. A list may be too long for a page, so the form changes it.
	Add, Remove string
	Rule        audience.Rule
	// Operators and TraitKeys are what the form suggests.
	Operators []audience.Operator
	TraitKeys []string
	// Preview is what the rule of the form reaches, and Listed what its list would be. Nil before that is asked.
	Preview *directory.RulePreview
	Listed  *listed
	// Change is who gains and who loses by a change, nil for a new audience and before that is asked.
	Change *change
	// Confirm is what was previewed: a change of who reads is saved once the person has seen it.
	Confirm string
	// Wrong is why there is no preview.
	Wrong string
}

// listed is what a list of identities would be: Members in all, of which Unknown get a record.
type listed struct{ Members, Unknown int }

// change is who gains and who loses if an audience is saved, and how many data points carry it. Gained and Lost are
// some of them. IsPart is true if not all identities were looked at.
type change struct {
	Gains, Losses int
	Points        int64
	Gained, Lost  []string
	IsPart        bool
}

// changesReaders reports whether somebody may gain or lose.
func (c change) changesReaders() bool { return c.Gains > 0 || c.Losses > 0 || c.IsPart }

// showForm shows a form with some conditions more, and with what is wrong with it.
func (d Deps) showForm(r *web.Request, f audienceForm, more int, wrong error) (err error) {
	f.Operators = audience.Operators()
	f.Rule.Conditions = append(f.Rule.Conditions, make([]audience.Condition, more)...)
	if f.TraitKeys, err = d.Directory.TraitKeys(r.Context(), r.Project.Project); err != nil {
		return err
	}
	return r.Form(wrong, "audience_form.html", f)
}

func (d Deps) newAudience(r *web.Request) error {
	f := audienceForm{IsNew: true, Kind: audience.KindRule}
	if r.URL.Query().Get("kind") == string(audience.KindFixed) {
		f.Kind = audience.KindFixed
	}
	return d.showForm(r, f, 1, nil)
}

func (d Deps) editAudience(r *web.Request) error {
	a, err := d.found(r)
	if err != nil {
		return err
	}
	f := audienceForm{Slug: a.Slug, Name: a.Name, Kind: a.Kind}
	if f.Rule, err = a.Definition(); err != nil {
		return err
	}
	return d.showForm(r, f, 1, nil)
}

// saveAudience puts the audience of the form, or shows the form again with its preview.
func (d Deps) saveAudience(r *web.Request) (err error) {
	f, more, do := formOf(r), 1, r.Field("do")
	in := identities.AudiencePut{Slug: f.Slug, Kind: f.Kind, Name: &f.Name, Rule: &f.Rule}
	if do == "more" {
		more = 2
	}
	switch {
	case f.Kind == audience.KindFixed:
		in.Rule = nil
		in.Identities, err = d.members(r, &f)
	case do == "preview":
		err = d.previewNew(r, &f)
	}
	seen := f.IsNew
	if err == nil && !f.IsNew && do != "more" {
		seen, err = d.compare(r, &f, do == "save")
	}
	if err == nil && do == "save" && seen {
		if err = d.put(r, f, in); err == nil {
			return r.Done(r.ProjectPath("audiences", f.Slug), "saved")
		}
	}
	if err != nil && do != "save" && httpx.Fault(err).Kind == fault.Invalid {
		// Where scripts run, only the preview is shown, and none of a refused form.
		f.Wrong, err = httpx.Fault(err).Msg, nil
	}
	return d.showForm(r, f, more, err)
}

// previewNew adds to the form of a new rule what it reaches.
func (d Deps) previewNew(r *web.Request, f *audienceForm) error {
	if !f.IsNew {
		return nil // it is compared
	}
	preview, err := d.Directory.PreviewRule(r.Context(), r.Project.Project, f.Rule)
	f.Preview = &preview
	return err
}

// compare adds to a form who gains and who loses by it. seen is true if the person was shown that, or nobody does.
func (d Deps) compare(r *web.Request, f *audienceForm, saves bool) (seen bool, err error) {
	a, ok, err := d.Directory.AudienceHead(r.Context(), r.Project.Project, f.Slug)
	if err = notFound(err, ok, words.noAudience, f.Slug); err != nil {
		return false, err
	}
	form, err := json.Marshal([]any{a.PutAt, f.Kind, f.Rule, f.Add, f.Remove})
	if err != nil {
		return false, err
	}
	f.Confirm = datapoint.Digest(form)
	if saves && r.Field("confirm") == f.Confirm {
		return true, nil
	}
	if f.Kind == audience.KindRule {
		was, err := a.Definition()
		if err != nil {
			return false, err
		}
		p, err := d.Directory.PreviewChange(r.Context(), r.Project.Project, &was, f.Rule)
		if err != nil {
			return false, err
		}
		f.Preview = &p
		f.Change = &change{Gains: int(p.Gains), Losses: int(p.Losses), Gained: p.Gained, Lost: p.Lost, IsPart: p.More}
	}
	if f.Change == nil {
		return true, nil
	}
	carry := datapoints.ListQuery{Filter: datapoints.Filter{Audience: f.Slug}, Limit: 1}
	list, err := d.Points.List(r.Context(), r.Project.Project.ID, carry)
	f.Change.Points = list.Total
	return !f.Change.changesReaders(), err
}

// put puts the audience of a form. A new one must not replace another.
func (d Deps) put(r *web.Request, f audienceForm, in identities.AudiencePut) error {
	if err := fields.CheckName(f.Name, 0, limit.AudienceName); err != nil {
		return fields.Invalid("name", "%v", err)
	}
	if f.IsNew {
		_, exists, err := d.Directory.AudienceHead(r.Context(), r.Project.Project, f.Slug)
		if err = notNew(err, exists, f.Slug); err != nil {
			return err
		}
	}
	if f.Name == "" {
		in.Name = nil
	}
	_, err := d.Commands.PutAudience(r.Context(), r.Command(), in)
	return err
}

// formOf reads the form. Conditions without a trait and values are left out.
func formOf(r *web.Request) audienceForm {
	f := audienceForm{
		IsNew: r.PostForm.Has("new"), Slug: r.Field("slug"), Name: r.Field("name"), Kind: audience.Kind(r.Field("kind")),
		Add: r.Raw("add"), Remove: r.Raw("remove"), Rule: audience.Rule{Match: audience.Match(r.Field("match"))},
	}
	for n, key := range r.PostForm["trait"] {
		c := audience.Condition{Trait: key, Operator: audience.Operator(at(r, "operator", n)), Values: []string{}}
		if c.Operator != audience.Exists && c.Operator != audience.DoesNotExist {
			c.Values = append(c.Values, lines(at(r, "values", n))...)
		}
		if (key != "" || at(r, "values", n) != "") && len(f.Rule.Conditions) <= limit.RuleConditions {
			f.Rule.Conditions = append(f.Rule.Conditions, c)
		}
	}
	return f
}

// lines are the lines of a text that are not empty, each once.
func lines(text string) (list []string) {
	seen := map[string]bool{}
	for line := range strings.Lines(text) {
		if line = strings.TrimRight(line, "\r\n"); line != "" && !seen[line] {
			list, seen[line] = append(list, line), true
		}
	}
	return list
}

// namedChanges is how many of those who gain or lose are named.
const namedChanges = 20

// without returns the names of one list that another one does not have. Both are sorted.
func without(list, other []string) (rest []string) {
	for _, name := range list {
		if _, has := slices.BinarySearch(other, name); !has {
			rest = append(rest, name)
		}
	}
	return rest
}

// members are those that a fixed audience has after the changes of the form. It is not nil.
func (d Deps) members(r *web.Request, f *audienceForm) (list []string, err error) {
	for _, name := range lines(f.Add) {
		if err := fields.CheckName(name, 1, limit.Identity); err != nil {
			return nil, fields.Invalid("an identity", "%v", err)
		}
	}
	if list = []string{}; !f.IsNew {
		a, ok, err := d.Directory.Audience(r.Context(), r.Project.Project, f.Slug)
		if err = notFound(err, ok, words.noAudience, f.Slug); err != nil {
			return nil, err
		}
		list = append(list, a.Identities...)
	}
	was, removed := slices.Sorted(slices.Values(list)), map[string]bool{}
	for _, name := range lines(f.Remove) {
		removed[name] = true
	}
	list = slices.DeleteFunc(list, func(name string) bool { return removed[name] })
	list = append(list, lines(f.Add)...)
	slices.Sort(list)
	if list = slices.Compact(list); len(list) > limit.AudienceMembers {
		return nil, invalid(words.tooMany, limit.AudienceMembers)
	}
	if !f.IsNew {
		gained, lost := without(list, was), without(was, list)
		f.Change = &change{
			Gains: len(gained), Losses: len(lost), Gained: gained[:min(len(gained), namedChanges)],
			Lost: lost[:min(len(lost), namedChanges)],
		}
	}
	f.Listed = &listed{Members: len(list)}
	f.Listed.Unknown, err = d.Directory.Unknown(r.Context(), r.Project.Project, list)
	return list, err
}
