package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// directoryModel is what a worker's own identities, audiences and data points are, by what was
// acknowledged. It is never changed: what a call makes of it is another one.
type directoryModel struct {
	peopleModel
	// points are the data points by id, each with the audience that it is scoped to, nil for the
	// project.
	points map[string]*audienceModel
}

func newDirectoryModel() directoryModel {
	return directoryModel{newPeople(), map[string]*audienceModel{}}
}

func (t directoryModel) clone() directoryModel {
	people, of := t.peopleModel.clone()
	points := map[string]*audienceModel{}
	for id, a := range t.points {
		points[id] = of(a)
	}
	return directoryModel{people, points}
}

// view is what the reads show of a directory.
type view struct {
	// People are the records of the list, Alone those that were read one by one, with the slugs that
	// they belong to.
	People, Alone map[string]string
	// Marked are those that the list finds by a trait, by its value.
	Marked map[string]string
	// Audiences say who belongs, and how many.
	Audiences map[string]string
	// Recalled are the data points that recall shows, by who asks.
	Recalled map[string]string
}

func (t directoryModel) view(everybody, cities []string) view {
	v := view{
		People:    map[string]string{},
		Alone:     map[string]string{},
		Marked:    map[string]string{},
		Audiences: map[string]string{},
		Recalled:  map[string]string{},
	}
	for person, record := range t.people {
		v.People[person] = shownTraits(record)
		v.Alone[person] = fmt.Sprint(v.People[person], " ", t.belongs(person))
	}
	for _, city := range cities {
		v.Marked[city] = some(everybody, func(person string) bool { return t.people[person]["city"] == city })
	}
	for slug, a := range t.audiences {
		members := t.members(a)
		if a.rule == nil {
			v.Audiences[slug] = shownAudience("fixed", len(members), strings.Join(members, " "))
		} else {
			v.Audiences[slug] = shownAudience("rule "+a.rule.Conditions[0].Values[0], len(members), "")
		}
	}
	for _, person := range everybody {
		v.Recalled[person] = some(
			slices.Sorted(maps.Keys(t.points)), func(id string) bool { return t.reaches(person, t.points[id]) },
		)
	}
	return v
}

func shownAudience(kind string, members int, names string) string {
	return fmt.Sprintf("%s, %d: %s", kind, members, names)
}

func shownTraits(traits map[string]string) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(traits)) {
		fmt.Fprintf(&b, "%s=%s ", key, traits[key])
	}
	return b.String()
}

// some are those of a list that are wanted, sorted.
func some(list []string, want func(string) bool) string {
	var found []string
	for _, one := range list {
		if want(one) {
			found = append(found, one)
		}
	}
	slices.Sort(found)
	return strings.Join(found, " ")
}
