package e2e

import (
	"maps"
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
