package e2e

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"

	audiences "github.com/annals-project/annals/domain/audience"
)

// peopleModel is who has a record, and who belongs to which audience, by what was acknowledged.
type peopleModel struct {
	// people are the traits of the records; one without a record is not there.
	people map[string]map[string]string
	// audiences are by slug.
	audiences map[string]*audienceModel
}

// audienceModel is one audience from its first put to its end. Another one under its slug reaches nothing
// of it.
type audienceModel struct {
	slug string
	// members are of a fixed one; they have a record.
	members map[string]bool
	// rule is of the others.
	rule *audiences.Rule
}

func newPeople() peopleModel {
	return peopleModel{people: map[string]map[string]string{}, audiences: map[string]*audienceModel{}}
}

// appear makes a record where there is none.
func (m peopleModel) appear(name string) {
	if name != "" && m.people[name] == nil {
		m.people[name] = map[string]string{}
	}
}

// forget removes a record, which is the member of nothing from then on.
func (m peopleModel) forget(name string) {
	delete(m.people, name)
	for _, a := range m.audiences {
		delete(a.members, name)
	}
}

// put puts an audience of members, who get a record, or by a rule.
func (m peopleModel) put(slug string, members map[string]bool, rule *audiences.Rule) {
	for name := range members {
		m.appear(name)
	}
	if m.audiences[slug] == nil {
		m.audiences[slug] = &audienceModel{slug: slug}
	}
	a := m.audiences[slug]
	a.members, a.rule = members, rule
}

// reaches reports whether an identity belongs to an audience, nil for the project's. It is written
// independently of the code that it is compared with.
func (m peopleModel) reaches(name string, a *audienceModel) bool {
	if a == nil {
		return true
	}
	traits, known := m.people[name]
	if !known || m.audiences[a.slug] != a {
		return false
	}
	if a.rule == nil {
		return a.members[name]
	}
	hold := 0
	for _, condition := range a.rule.Conditions {
		value, has := traits[condition.Trait]
		among := slices.Contains(condition.Values, value)
		holds := map[audiences.Operator]bool{
			audiences.Is: has && among, audiences.IsOneOf: has && among, audiences.IsNot: has && !among, audiences.IsNotOneOf: has && !among,
			audiences.Exists: has, audiences.DoesNotExist: !has,
		}[condition.Operator]
		if holds {
			hold++
		}
	}
	if a.rule.Match == audiences.MatchAll {
		return hold == len(a.rule.Conditions)
	}
	return hold > 0
}

// members are those who belong to an audience, in order.
func (m peopleModel) members(a *audienceModel) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(m.people)) {
		if m.reaches(name, a) {
			names = append(names, name)
		}
	}
	return names
}

// belongs are the slugs of the audiences that somebody belongs to, in order.
func (m peopleModel) belongs(name string) []string {
	slugs := []string{}
	for _, slug := range slices.Sorted(maps.Keys(m.audiences)) {
		if m.reaches(name, m.audiences[slug]) {
			slugs = append(slugs, slug)
		}
	}
	return slugs
}

// clone returns a copy, and what finds the copy of an audience, also of one that has ended.
func (m peopleModel) clone() (copied peopleModel, of func(*audienceModel) *audienceModel) {
	copied = newPeople()
	maps.Copy(copied.people, m.people)
	// What is scoped to an audience stays so when that changes, so each is copied once.
	copies := map[*audienceModel]*audienceModel{nil: nil}
	of = func(a *audienceModel) *audienceModel {
		if _, done := copies[a]; !done {
			copies[a] = &audienceModel{slug: a.slug, members: maps.Clone(a.members), rule: a.rule}
		}
		return copies[a]
	}
	for slug, a := range m.audiences {
		copied.audiences[slug] = of(a)
	}
	return copied, of
}

// change is a call that changes who has a record or who belongs to an audience: what it asks for, which answer it gets,
// and what it makes of a model.
type change struct {
	method, path string
	body         any
	want         int
	// answer is what the body of the answer holds, "" for anything.
	answer string
	apply  func(peopleModel)
	// appear are those who may have a record though the call did not take effect.
	appear []string
}

func among[V any](rng *rand.Rand, list ...V) V { return list[rng.IntN(len(list))] }

// drawer draws changes of a directory.
type drawer struct {
	rng          *rand.Rand
	names, slugs []string
	// traits are those of a record, patch what changes in some, nil for what goes, and rule is that of an audience.
	traits func() map[string]string
	patch  func() map[string]*string
	rule   func() *audiences.Rule
}

func (d drawer) record() change {
	name, traits := among(d.rng, d.names...), d.traits()
	return change{
		method: http.MethodPut, path: "/identities/" + url.PathEscape(name), body: map[string]any{"traits": traits},
		want: http.StatusOK, apply: func(m peopleModel) { m.people[name] = traits },
	}
}

func (d drawer) patched() change {
	name, patch := among(d.rng, d.names...), d.patch()
	return change{
		method: http.MethodPatch, path: "/identities/" + url.PathEscape(name), body: map[string]any{"traits": patch},
		want: http.StatusOK, apply: func(m peopleModel) {
			traits := map[string]string{}
			maps.Copy(traits, m.people[name])
			for key, value := range patch {
				if delete(traits, key); value != nil {
					traits[key] = *value
				}
			}
			m.people[name] = traits
		},
	}
}

// records writes several, one of them twice.
func (d drawer) records(m peopleModel) change {
	type row struct {
		Identity string            `json:"identity"`
		Traits   map[string]string `json:"traits"`
	}
	var rows []row
	some := d.rng.Perm(len(d.names))[:2+d.rng.IntN(len(d.names)-1)]
	for _, n := range append([]int{some[len(some)-1]}, some...) {
		rows = append(rows, row{d.names[n], d.traits()})
	}
	status := "updated"
	if m.people[rows[0].Identity] == nil {
		status = "created"
	}
	return change{
		method: http.MethodPost, path: "/identities/bulk", body: rows, want: http.StatusOK,
		answer: fmt.Sprintf(`{"identities":[{"identity":%q,"status":%q}`, rows[0].Identity, status),
		apply: func(m peopleModel) {
			for _, r := range rows {
				m.people[r.Identity] = r.Traits
			}
		},
	}
}

func (d drawer) removal(m peopleModel) change {
	name, want := among(d.rng, d.names...), http.StatusNoContent
	if m.people[name] == nil {
		want = http.StatusNotFound
	}
	return change{
		method: http.MethodDelete, path: "/identities/" + url.PathEscape(name), want: want,
		apply: func(m peopleModel) { m.forget(name) },
	}
}

// fixed puts an audience of the names of some.
func (d drawer) fixed(m peopleModel) change {
	members, names := map[string]bool{}, []string{}
	for _, name := range d.names {
		if d.rng.IntN(5) < 2 {
			members[name], names = true, append(names, name)
		}
	}
	c := d.audience(m, members, nil, map[string]any{"kind": "fixed", "identities": names})
	c.appear = names
	return c
}

func (d drawer) ruled(m peopleModel) change {
	rule := d.rule()
	var conditions []any
	for _, c := range rule.Conditions {
		conditions = append(conditions, map[string]any{"trait": c.Trait, "operator": c.Operator, "values": c.Values})
	}
	return d.audience(m, nil, rule, map[string]any{
		"kind": "rule", "rule": map[string]any{"match": rule.Match, "conditions": conditions},
	})
}

func (d drawer) audience(m peopleModel, members map[string]bool, rule *audiences.Rule, body any) change {
	slug, want := among(d.rng, d.slugs...), http.StatusOK
	if m.audiences[slug] == nil {
		want = http.StatusCreated
	}
	return change{
		method: http.MethodPut, path: "/audiences/" + slug, body: body, want: want,
		apply: func(m peopleModel) { m.put(slug, members, rule) },
	}
}

func (d drawer) audienceRemoval(m peopleModel) change {
	slug, want := among(d.rng, d.slugs...), http.StatusNoContent
	if m.audiences[slug] == nil {
		want = http.StatusNotFound
	}
	return change{
		method: http.MethodDelete, path: "/audiences/" + slug, want: want,
		apply: func(m peopleModel) { delete(m.audiences, slug) },
	}
}

// recomputation changes nothing.
func (d drawer) recomputation(m peopleModel) change {
	slug, want := among(d.rng, d.slugs...), http.StatusOK
	if m.audiences[slug] == nil {
		want = http.StatusNotFound
	}
	return change{
		method: http.MethodPost, path: "/audiences/" + slug + "/recompute", want: want, apply: func(peopleModel) {},
	}
}
