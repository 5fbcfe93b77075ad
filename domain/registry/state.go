package registry

import (
	"maps"
	"strings"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
)

// State is what decisions need of the registry.
type State struct {
	// Events is how many events were folded, which is the revision that the next one will have.
	Events        int64
	Organizations []OrganizationCreated
	// HashKeyCheck is the check of the hash key (HashKeySet).
	HashKeyCheck string
	lastNumber   int64
	projects     map[slugKey]ProjectCreated
}

type slugKey struct {
	organization uuid.UUID
	slug         string
}

// Evolve folds one event.
func (s *State) Evolve(e event.Event) {
	s.Events++
	switch e := e.(type) {
	case *HashKeySet:
		s.HashKeyCheck = e.Check
	case *OrganizationCreated:
		s.Organizations = append(s.Organizations, *e)
	case *ProjectCreated:
		if s.projects == nil {
			s.projects = make(map[slugKey]ProjectCreated)
		}
		s.projects[slugKey{e.OrganizationID, e.Slug}] = *e
		s.lastNumber = max(s.lastNumber, e.Number)
	}
}

// Clone is a copy that shares nothing.
func (s *State) Clone() State {
	c := *s
	c.Organizations = append([]OrganizationCreated(nil), s.Organizations...)
	c.projects = maps.Clone(s.projects)
	return c
}

// Project is the project of an organization that a slug names.
func (s *State) Project(organization uuid.UUID, slug string) (ProjectCreated, bool) {
	p, ok := s.projects[slugKey{organization, slug}]
	return p, ok
}

// NextNumber is the number that the next project gets: from 1, across all organizations.
func (s *State) NextNumber() int64 { return s.lastNumber + 1 }

// Projects is how many projects an organization has, archived ones too.
func (s *State) Projects(organization uuid.UUID) int {
	n := 0
	for key := range s.projects {
		if key.organization == organization {
			n++
		}
	}
	return n
}

// Organization finds an organization by its name, without regard to case, or by its id.
func (s *State) Organization(nameOrID string) (OrganizationCreated, bool) {
	for _, o := range s.Organizations {
		if strings.EqualFold(o.Name, nameOrID) || o.OrganizationID.String() == nameOrID {
			return o, true
		}
	}
	return OrganizationCreated{}, false
}
