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
	// people are the traits of the records; one without a record is not there.
	people map[string]traits
	// rings are the audiences by slug.
	rings map[string]*audienceModel
	// points are the data points by id, each with the audience that it is scoped to, nil for the
	// project.
	points map[string]*audienceModel
}

type traits map[string]string

// audienceModel is one audience from its first put to its end; another one under its slug reaches
// nothing of it.
type audienceModel struct {
	slug string
	// members of a fixed one, whether or not they have a record now; nil for a rule.
	members map[string]bool
	// city is what the rule asks for.
	city string
	// gone is set in an audience that has ended.
	gone bool
}

func (t directoryModel) clone() directoryModel {
	c := directoryModel{
		people: maps.Clone(t.people),
		rings:  map[string]*audienceModel{},
		points: map[string]*audienceModel{},
	}
	// What is scoped to an audience stays so when that changes, so that each is copied once.
	copies := map[*audienceModel]*audienceModel{nil: nil}
	of := func(k *audienceModel) *audienceModel {
		if _, done := copies[k]; !done {
			copied := *k
			copied.members = maps.Clone(k.members)
			copies[k] = &copied
		}
		return copies[k]
	}
	for slug, k := range t.rings {
		c.rings[slug] = of(k)
	}
	for id, k := range t.points {
		c.points[id] = of(k)
	}
	return c
}

// reaches reports whether what is scoped to an audience is reached as a person.
func (t directoryModel) reaches(k *audienceModel, person string) bool {
	record, there := t.people[person]
	switch {
	case k == nil:
		return true
	case k.gone || !there:
		return false
	case k.members != nil:
		return k.members[person]
	default:
		return record["city"] == k.city
	}
}

// remove takes a record, and its membership with it.
func (t directoryModel) remove(person string) {
	delete(t.people, person)
	for _, k := range t.rings {
		delete(k.members, person)
	}
}

// put puts an audience, with a record for every member.
func (t directoryModel) put(k audienceModel) {
	for person := range k.members {
		if t.people[person] == nil {
			t.people[person] = traits{}
		}
	}
	if standing := t.rings[k.slug]; standing != nil {
		*standing = k
		return
	}
	t.rings[k.slug] = &k
}

// view is what the reads show of a directory.
type view struct {
	// People are the records of the list, Alone those that were read one by one, with the slugs that
	// they belong to.
	People, Alone map[string]string
	// Marked are those that the list finds by a trait, by its value.
	Marked map[string]string
	// Rings say who belongs, and how many.
	Rings map[string]string
	// Recalled are the data points that recall shows, by who asks.
	Recalled map[string]string
}

func (t directoryModel) view(everybody, cities []string) view {
	v := view{
		People:   map[string]string{},
		Alone:    map[string]string{},
		Marked:   map[string]string{},
		Rings:    map[string]string{},
		Recalled: map[string]string{},
	}
	for person, record := range t.people {
		v.People[person] = record.String()
		var slugs []string
		for slug, k := range t.rings {
			if t.reaches(k, person) {
				slugs = append(slugs, slug)
			}
		}
		slices.Sort(slugs)
		v.Alone[person] = fmt.Sprint(record, " ", slugs)
	}
	for _, city := range cities {
		v.Marked[city] = some(everybody, func(person string) bool { return t.people[person]["city"] == city })
	}
	for slug, k := range t.rings {
		reached := some(everybody, func(person string) bool { return t.reaches(k, person) })
		if k.members != nil {
			v.Rings[slug] = shownRing("fixed", len(strings.Fields(reached)), reached)
		} else {
			v.Rings[slug] = shownRing("rule "+k.city, len(strings.Fields(reached)), "")
		}
	}
	for _, person := range everybody {
		v.Recalled[person] = some(
			slices.Sorted(maps.Keys(t.points)), func(id string) bool { return t.reaches(t.points[id], person) },
		)
	}
	return v
}

func shownRing(kind string, members int, names string) string {
	return fmt.Sprintf("%s, %d: %s", kind, members, names)
}

func (t traits) String() string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(t)) {
		fmt.Fprintf(&b, "%s=%s ", key, t[key])
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
