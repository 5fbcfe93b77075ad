package access_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/projections/access"
)

func agents(t *testing.T) access.Queries {
	t.Helper()
	w := &writer{}
	w.organization("org")
	w.plan("org", metering.Flex)
	w.prepared("org")
	w.organization("next door")
	for n, slug := range []string{"one", "two", "three"} {
		w.project("org", slug, int64(n+1))
	}
	w.project("next door", "theirs", 4)
	w.archive("one", true)
	for _, email := range []string{"ana", "bo", "cy", "gone", "left"} {
		w.person(email)
		w.member("org", email, organization.Member)
	}
	w.setRole("org", "ana", organization.Owner)
	w.setAccess("org", "bo", "one", organization.ReadAccess)
	w.setAccess("org", "bo", "two", organization.ReadAccess)
	w.setAccess("org", "left", "two", organization.WriteAccess)
	w.approve("org", "ana", "of ana", "", "memory:read", "memory:write")
	w.approve("org", "ana", "of one project", "three", "memory:read")
	w.approve("org", "bo", "of bo", "", "memory:write")
	w.approve("org", "cy", "of cy", "two", "memory:read")
	w.approve("org", "gone", "of gone", "", "memory:read")
	w.approve("org", "left", "of left", "", "memory:read")
	w.approve("org", "ana", "revoked", "", "memory:read")
	w.approve("org", "ana", "stopped", "", "memory:read")
	w.of("org", &organization.AgentDenied{OrganizationID: id("org"), AgentID: id("denied"), MemberID: id("ana")})
	w.endAgent("org", "revoked", false)
	w.endAgent("org", "stopped", true)
	w.removePerson("gone")
	w.removeMember("org", "left")
	w.member("org", "left", organization.Member) // the agent does not come back
	return applied(t, w)
}

func TestQuery_Agent(t *testing.T) {
	q := agents(t)
	type answer struct {
		Person           string
		Scopes           string
		Only             uuid.UUID
		Revoked, Stopped bool
		Role             organization.Role
		Projects         string
	}
	for agent, want := range map[string]*answer{
		"of ana":         {"ana", "memory:read memory:write", uuid.Nil, false, false, organization.Owner, "two three "},
		"of one project": {"ana", "memory:read", id("three"), false, false, organization.Owner, "three "},
		"of bo":          {"bo", "memory:write", uuid.Nil, false, false, organization.Member, "two "},
		"of cy":          {"cy", "memory:read", id("two"), false, false, organization.Member, ""},
		"revoked":        {"ana", "memory:read", uuid.Nil, true, false, organization.Owner, "two three "},
		"stopped":        {"ana", "memory:read", uuid.Nil, true, true, organization.Owner, "two three "},
		"of left":        {"left", "memory:read", uuid.Nil, true, true, organization.Member, ""},
		"of gone":        nil,
		"denied":         nil,
		"unknown":        nil,
	} {
		h, ok, err := q.Agent(t.Context(), id(agent))
		if err != nil {
			t.Fatalf("%s: %v", agent, err)
		}
		if want == nil {
			if ok || h.ID != uuid.Nil {
				t.Errorf("%s is found: %+v", agent, h)
			}
			continue
		}
		var projects string
		for _, p := range h.Projects {
			projects += p.Project.Slug + " "
		}
		got := &answer{
			Scopes: auth.JoinScopes(h.Scopes), Only: h.Only, Revoked: h.Revoked, Stopped: h.Stopped, Role: h.Role, Projects: projects,
		}
		if got.Person = "?"; h.Person == id(want.Person) {
			got.Person = want.Person
		}
		if diff := cmp.Diff(want, got); diff != "" || !ok || h.ID != id(agent) || h.Organization != id("org") || h.Preparing ||
			h.Limits.Plan != metering.Flex {
			t.Errorf("%s: %+v (-want +got):\n%s", agent, h, diff)
		}
	}
}

// What an agent may do is what its person may do now.
func TestQuery_AgentMayWhatItsPersonMay(t *testing.T) {
	q := agents(t)
	for _, c := range []struct {
		agent, project string
		want           organization.Access
	}{
		{"of ana", "two", organization.WriteAccess},
		{"of one project", "three", organization.WriteAccess},
		{"of one project", "two", organization.NoAccess},
		{"of bo", "two", organization.ReadAccess},
		{"of bo", "three", organization.NoAccess},
		{"of cy", "two", organization.NoAccess},
	} {
		h, _, err := q.Agent(t.Context(), id(c.agent))
		if got := h.In(id(c.project)); err != nil || got != c.want {
			t.Errorf("%s may %q in %s, want %q (%v)", c.agent, got, c.project, c.want, err)
		}
	}
	for agent, want := range map[string]organization.Access{
		"of ana": organization.WriteAccess, "of bo": organization.ReadAccess, "of cy": organization.NoAccess,
	} {
		if h, _, err := q.Agent(t.Context(), id(agent)); err != nil || h.Best() != want {
			t.Errorf("%s may at best %q, want %q (%v)", agent, h.Best(), want, err)
		}
	}
}

func TestQuery_Agents(t *testing.T) {
	q := agents(t)
	list := func(org, member string) (names []string) {
		t.Helper()
		of := uuid.Nil
		if member != "" {
			of = id(member)
		}
		found, err := q.Agents(t.Context(), id(org), of)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range found {
			names = append(names, a.Email+" "+a.Scopes+" "+a.Project)
		}
		return names
	}
	if got := list("org", ""); len(got) != 6 {
		t.Errorf("all agents: %q", got)
	}
	if diff := cmp.Diff([]string{"bo memory:write "}, list("org", "bo")); diff != "" {
		t.Error(diff)
	}
	if got := list("next door", ""); got != nil {
		t.Errorf("agents of a neighbour: %q", got)
	}
	ended, err := q.EndedAgents(t.Context(), []uuid.UUID{id("of ana"), id("revoked"), id("unknown")})
	if diff := cmp.Diff([]uuid.UUID{id("revoked")}, ended); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

// A grant ends with the membership in which it was made, also if the person returns.
func TestQuery_Grants(t *testing.T) {
	w := &writer{}
	approve := func(org, email, grant string) {
		w.of(org, &organization.GrantApproved{
			OrganizationID: id(org), MemberID: id(email), GrantID: id(grant), ApprovedAt: noon,
		})
	}
	for _, org := range []string{"org", "next door"} {
		w.organization(org)
		w.member(org, "ana", organization.Admin)
		w.member(org, "bo", organization.Admin)
	}
	approve("org", "ana", "before")
	approve("org", "bo", "of bo")
	approve("org", "bo", "revoked")
	approve("next door", "ana", "elsewhere")
	w.setRole("org", "bo", organization.Member)
	w.of("org", &organization.GrantRevoked{OrganizationID: id("org"), MemberID: id("bo"), GrantID: id("revoked")})
	w.removeMember("org", "ana")
	w.member("org", "ana", organization.Admin)
	approve("org", "ana", "after")
	approve("org", "bo", "of bo") // more scopes
	q := applied(t, w)
	ids := []uuid.UUID{
		id("before"), id("of bo"), id("revoked"), id("elsewhere"), id("after"), id("unknown"),
	}
	live, err := q.LiveGrants(t.Context(), ids)
	if len(live) != 3 || err != nil || slices.Contains(live, id("before")) || slices.Contains(live, id("revoked")) ||
		slices.Contains(live, id("unknown")) {
		t.Errorf("%v, %v", live, err)
	}
	ended, err := q.EndedGrants(t.Context(), ids)
	if len(ended) != 2 || err != nil || !slices.Contains(ended, id("before")) || !slices.Contains(ended, id("revoked")) {
		t.Errorf("%v, %v", ended, err)
	}
}
