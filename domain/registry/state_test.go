package registry_test

import (
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/registry"
)

func TestState_OrganizationByNameOrID(t *testing.T) {
	one, two, other := uuid.New(), uuid.New(), uuid.New()
	var s registry.State
	s.Evolve(&registry.OrganizationCreated{OrganizationID: one, Name: "Acme"})
	s.Evolve(&registry.OrganizationCreated{OrganizationID: two, Name: "Ümlaut"})
	for ref, want := range map[string]uuid.UUID{"Acme": one, "aCME": one, one.String(): one, "ümlaut": two, two.String(): two} {
		if got, ok := s.Organization(ref); !ok || got.OrganizationID != want {
			t.Errorf("%q: %v, %v", ref, got, ok)
		}
	}
	for _, ref := range []string{"", "Acme ", "Acm", other.String()} {
		if got, ok := s.Organization(ref); ok {
			t.Errorf("%q is %v", ref, got)
		}
	}
}

func TestState_ProjectsOfAnOrganization(t *testing.T) {
	one, two := uuid.New(), uuid.New()
	var s registry.State
	for n, slug := range []string{"a", "b", "c"} {
		s.Evolve(&registry.ProjectCreated{OrganizationID: one, ProjectID: uuid.New(), Number: int64(n + 1), Slug: slug})
	}
	s.Evolve(&registry.ProjectCreated{OrganizationID: two, ProjectID: uuid.New(), Number: 4, Slug: "a"})
	if s.Projects(one) != 3 || s.Projects(two) != 1 || s.Projects(uuid.New()) != 0 || s.NextNumber() != 5 {
		t.Errorf("%d and %d projects, next %d", s.Projects(one), s.Projects(two), s.NextNumber())
	}
}
