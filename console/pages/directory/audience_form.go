package directory

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/fields"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/projections/directory"
)

// audienceForm is the form of an audience: of a new one, or of the one with the slug.
type audienceForm struct {
	IsNew      bool
	Slug, Name string
	Kind       audience.Kind
	// Add and Remove are identities, one a line. A list may be too long for a page, so the form changes it.
	Add, Remove string
	Match       audience.Match
	Conditions  []formCondition
	Operators   []operator
	TraitKeys   []string
	// Preview is what the rule of the form reaches, and Listed what its list would be. Nil before that is asked.
	Preview *directory.RulePreview
	Listed  *listed
	// Wrong is why there is no preview.
	Wrong string
}

// formCondition is a condition with its values, one a line.
type formCondition struct {
	Trait    string
	Operator audience.Operator
	Values   string
}

// operator is an operator in words.
type operator struct {
	Operator audience.Operator
	Words    string
}

// listed is what a list of identities would be: Members in all, of which Unknown get a record.
type listed struct{ Members, Unknown int }

func (d Deps) form(r *web.Request) (f audienceForm, err error) {
	f = audienceForm{IsNew: true, Kind: audience.KindRule, Match: audience.MatchAll}
	for _, o := range audience.Operators() {
		f.Operators = append(f.Operators, operator{o, operatorWords[o]})
	}
	f.TraitKeys, err = d.Directory.TraitKeys(r.Context(), r.Project.Project)
	return f, err
}

func (d Deps) newAudience(r *web.Request) error {
	f, err := d.form(r)
	if err != nil {
		return err
	}
	if r.URL.Query().Get("kind") == string(audience.KindFixed) {
		f.Kind = audience.KindFixed
	}
	f.Conditions = make([]formCondition, 1)
	return r.Render("audience_form.html", f)
}

func (d Deps) editAudience(r *web.Request) error {
	a, err := d.found(r)
	if err != nil {
		return err
	}
	f, err := d.form(r)
	if err != nil {
		return err
	}
	f.IsNew, f.Slug, f.Name, f.Kind = false, a.Slug, a.Name, a.Kind
	if a.Rule != nil {
		var rule audience.Rule
		if err := json.Unmarshal(a.Rule, &rule); err != nil {
			return err
		}
		f.Match = rule.Match
		for _, c := range rule.Conditions {
			f.Conditions = append(f.Conditions, formCondition{c.Trait, c.Operator, strings.Join(c.Values, "\n")})
		}
	}
	f.Conditions = append(f.Conditions, formCondition{})
	return r.Render("audience_form.html", f)
}

// saveAudience puts the audience of the form, or shows the form again with its preview.
func (d Deps) saveAudience(r *web.Request) error {
	f, err := d.form(r)
	if err != nil {
		return err
	}
	f.read(r)
	rule, do := f.rule(), r.Field("do")
	f.Conditions = append(f.Conditions, formCondition{})
	if do == "more" {
		f.Conditions = append(f.Conditions, formCondition{})
	}
	var members []string
	if f.Kind == audience.KindFixed {
		members, err = d.members(r, &f)
	}
	switch {
	case err == nil && do == "save":
		err = d.put(r, f, rule, members)
	case err == nil && do == "preview" && f.Kind == audience.KindRule:
		var preview directory.RulePreview
		if preview, err = d.Directory.PreviewRule(r.Context(), r.Project.Project, rule); err == nil {
			f.Preview = &preview
		}
	}
	switch {
	case err != nil && do == "save":
		return r.Invalid(err, "audience_form.html", f)
	case err != nil && httpx.Fault(err).Kind != fault.Invalid:
		return err
	case err != nil:
		f.Wrong = httpx.Fault(err).Msg // where scripts run, only the preview is shown, and none of a refused form
	case do == "save":
		return r.Done(r.ProjectPath("audiences", f.Slug), "saved")
	}
	return r.Render("audience_form.html", f)
}

// put puts the audience of a form. A new one must not replace another.
func (d Deps) put(r *web.Request, f audienceForm, rule audience.Rule, members []string) error {
	if err := fields.CheckName(f.Name, 0, limit.AudienceName); err != nil {
		return invalid(words.field, "name", err)
	}
	if f.IsNew {
		_, exists, err := d.Directory.AudienceHead(r.Context(), r.Project.Project, f.Slug)
		if err == nil && exists {
			err = fault.New(fault.Conflict, fault.CodeConflict, "the project has an audience %q: choose another slug", f.Slug)
		}
		if err != nil {
			return err
		}
	}
	in := commands.AudiencePut{Slug: f.Slug, Kind: f.Kind}
	if f.Name != "" {
		in.Name = &f.Name
	}
	if f.Kind == audience.KindRule {
		in.Rule = &rule
	} else {
		in.Identities = members
	}
	_, err := d.Commands.PutAudience(r.Context(), r.Command(), in)
	return err
}

// read reads the form. Conditions without a trait are left out.
func (f *audienceForm) read(r *web.Request) {
	f.IsNew, f.Slug, f.Name = r.PostForm.Has("new"), r.Field("slug"), r.Field("name")
	f.Kind, f.Match = audience.Kind(r.Field("kind")), audience.Match(r.Field("match"))
	f.Add, f.Remove = r.Raw("add"), r.Raw("remove")
	for n, key := range r.PostForm["trait"] {
		values := strings.ReplaceAll(at(r.PostForm["values"], n), "\r\n", "\n")
		if key == "" && values == "" || len(f.Conditions) > limit.RuleConditions {
			continue
		}
		f.Conditions = append(f.Conditions, formCondition{key, audience.Operator(at(r.PostForm["operator"], n)), values})
	}
}

// rule is the rule of the form.
func (f *audienceForm) rule() audience.Rule {
	rule := audience.Rule{Match: f.Match}
	for _, c := range f.Conditions {
		condition := audience.Condition{Trait: c.Trait, Operator: c.Operator, Values: []string{}}
		if c.Operator != audience.Exists && c.Operator != audience.DoesNotExist {
			condition.Values = append(condition.Values, lines(c.Values)...)
		}
		rule.Conditions = append(rule.Conditions, condition)
	}
	return rule
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

// members are those that a fixed audience has after the changes of the form. It is not nil.
func (d Deps) members(r *web.Request, f *audienceForm) ([]string, error) {
	added, project := lines(f.Add), r.Project.Project
	for _, name := range added {
		if err := fields.CheckName(name, 1, limit.Identity); err != nil {
			return nil, invalid(words.field, "an identity", err)
		}
	}
	list := []string{}
	if !f.IsNew {
		a, ok, err := d.Directory.Audience(r.Context(), project, f.Slug)
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, notFound(words.noAudience, f.Slug)
		}
		list = append(list, a.Identities...)
	}
	removed := map[string]bool{}
	for _, name := range lines(f.Remove) {
		removed[name] = true
	}
	list = slices.DeleteFunc(list, func(name string) bool { return removed[name] })
	list = append(list, added...)
	slices.Sort(list)
	if list = slices.Compact(list); len(list) > limit.AudienceMembers {
		return nil, invalid(words.tooMany, limit.AudienceMembers)
	}
	ids := make([]uuid.UUID, len(list))
	for n, name := range list {
		ids[n] = stream.IdentityID(project.Namespace, name)
	}
	known, err := d.Directory.Known(r.Context(), project, ids)
	f.Listed = &listed{Members: len(list), Unknown: len(list) - len(known)}
	return list, err
}
