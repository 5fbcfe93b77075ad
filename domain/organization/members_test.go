package organization_test

import (
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/organization"
)

var second = uuid.MustParse("00000000-0000-4000-8000-0000000000cc")

func added(id uuid.UUID, role organization.Role) organization.MemberAdded {
	return organization.MemberAdded{OrganizationID: org, MemberID: id, Role: role, AddedAt: noon}
}

func roleSet(id uuid.UUID, role organization.Role) organization.MemberRoleSet {
	return organization.MemberRoleSet{OrganizationID: org, MemberID: id, Role: role, SetAt: noon}
}

func accessSet(project uuid.UUID, access organization.Access) organization.ProjectAccessSet {
	return organization.ProjectAccessSet{
		OrganizationID: org, MemberID: member, ProjectID: project, Access: access, SetAt: noon,
	}
}

var memberRemoved = organization.MemberRemoved{OrganizationID: org, MemberID: member, RemovedAt: noon}

func TestState_Members(t *testing.T) {
	type decision func(*organization.State) ([]event.Event, error)
	add := func(role organization.Role) decision {
		return func(s *organization.State) ([]event.Event, error) {
			return s.Add(added(member, role), organization.Limits{Members: 3})
		}
	}
	set := func(role organization.Role) decision {
		return func(s *organization.State) ([]event.Event, error) { return s.SetRole(roleSet(member, role)) }
	}
	remove := func(s *organization.State) ([]event.Event, error) { return s.Remove(member, org, noon) }
	erase := func(s *organization.State) ([]event.Event, error) { return s.Erase(member, uuid.Nil, org, noon), nil }
	eraseCreator := func(s *organization.State) ([]event.Event, error) { return s.Erase(member, member, org, noon), nil }
	access := func(project uuid.UUID, a organization.Access) decision {
		return func(s *organization.State) ([]event.Event, error) { return s.SetAccess(accessSet(project, a)) }
	}
	factor := func(required bool) decision {
		return func(s *organization.State) ([]event.Event, error) {
			return s.SetSecondFactor(organization.SecondFactorSet{OrganizationID: org, Required: required, SetAt: noon}), nil
		}
	}
	reads, ends := accessSet(second, organization.ReadAccess), accessSet(second, organization.NoAccess)
	required := organization.SecondFactorSet{OrganizationID: org, Required: true, SetAt: noon}
	full := []event.Event{new(added(member, organization.Member))}
	for range limit.MemberProjects {
		full = append(full, new(accessSet(uuid.New(), organization.ReadAccess)))
	}
	first, other := added(member, organization.Owner), added(second, organization.Owner)
	plain, left := added(member, organization.Member), memberRemoved
	promoted := roleSet(member, organization.Owner)
	demoted := roleSet(second, organization.Admin)
	for _, c := range []struct {
		name   string
		given  []event.Event
		decide decision
		want   []event.Event
		code   string
	}{
		{"add", nil, add(organization.Member), []event.Event{plain}, ""},
		{"add again", []event.Event{&plain}, add(organization.Member), nil, ""},
		{"add with another role", []event.Event{&plain}, add(organization.Admin), nil, "conflict"},
		{"add after a removal", []event.Event{&plain, &left}, add(organization.Member), []event.Event{plain}, ""},
		{"change a role", []event.Event{&plain}, set(organization.Owner), []event.Event{promoted}, ""},
		{"change to the same role", []event.Event{&plain, &promoted}, set(organization.Owner), nil, ""},
		{"change the role of nobody", nil, set(organization.Owner), nil, "not-found"},
		{"change the role of the last owner", []event.Event{&first}, set(organization.Admin), nil, "conflict"},
		{"change the role of one of two owners", []event.Event{&first, &other}, set(organization.Admin), []event.Event{roleSet(member, organization.Admin)}, ""},
		{"remove", []event.Event{&plain}, remove, []event.Event{memberRemoved}, ""},
		{"remove nobody", nil, remove, nil, "not-found"},
		{"remove twice", []event.Event{&plain, &left}, remove, nil, "not-found"},
		{"remove the last owner", []event.Event{&first}, remove, nil, "conflict"},
		{"remove one of two owners", []event.Event{&first, &other}, remove, []event.Event{memberRemoved}, ""},
		{"remove the owner that is left", []event.Event{&first, &other, &demoted}, remove, nil, "conflict"},
		{"erase the last owner", []event.Event{&first}, erase, []event.Event{memberRemoved}, ""},
		{"erase nobody", []event.Event{&first, &left}, erase, nil, ""},
		{"erase the creator before the preparation", nil, eraseCreator, []event.Event{memberRemoved}, ""},
		{"erase the creator twice", []event.Event{&left}, eraseCreator, nil, ""},
		{"access", []event.Event{&plain}, access(second, organization.ReadAccess), []event.Event{reads}, ""},
		{"the same access", []event.Event{&plain, &reads}, access(second, organization.ReadAccess), nil, ""},
		{"another access", []event.Event{&plain, &reads}, access(second, organization.WriteAccess), []event.Event{accessSet(second, organization.WriteAccess)}, ""},
		{"end of an access", []event.Event{&plain, &reads}, access(second, organization.NoAccess), []event.Event{ends}, ""},
		{"end of no access", []event.Event{&plain, &reads, &ends}, access(second, organization.NoAccess), nil, ""},
		{"access of nobody", nil, access(second, organization.ReadAccess), nil, "not-found"},
		{"access of an owner", []event.Event{&first}, access(second, organization.ReadAccess), nil, "conflict"},
		{"access of an admin", []event.Event{new(added(member, organization.Admin))}, access(second, organization.NoAccess), nil, "conflict"},
		{"access after another role", []event.Event{&plain, &reads, &promoted, new(roleSet(member, organization.Member))}, access(second, organization.ReadAccess), []event.Event{reads}, ""},
		{"access after a removal", []event.Event{&plain, &reads, &left, &plain}, access(second, organization.ReadAccess), []event.Event{reads}, ""},
		{"access to too many projects", full, access(second, organization.ReadAccess), nil, "conflict"},
		{"a second factor", nil, factor(true), []event.Event{required}, ""},
		{"a second factor again", []event.Event{&required}, factor(true), nil, ""},
		{"no second factor", []event.Event{&required}, factor(false), []event.Event{organization.SecondFactorSet{OrganizationID: org, SetAt: noon}}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := c.decide(folded(c.given...))
			checkDecided(t, c.want, got, c.code, err)
		})
	}
}

var agent = uuid.MustParse("00000000-0000-4000-8000-0000000000a9")

func approved(id, member uuid.UUID, scopes ...string) organization.AgentApproved {
	return organization.AgentApproved{OrganizationID: org, AgentID: id, MemberID: member, Scopes: scopes, ApprovedAt: noon}
}

func TestState_Agents(t *testing.T) {
	type decision func(*organization.State) ([]event.Event, error)
	approve := func(a organization.AgentApproved) decision {
		return func(s *organization.State) ([]event.Event, error) { return s.ApproveAgent(a) }
	}
	denial := organization.AgentDenied{OrganizationID: org, AgentID: agent, MemberID: member, DeniedAt: noon}
	deny := func(s *organization.State) ([]event.Event, error) { return s.DenyAgent(denial) }
	revocation := organization.AgentRevoked{OrganizationID: org, AgentID: agent, RevokedAt: noon}
	revoke := func(of uuid.UUID) decision {
		return func(s *organization.State) ([]event.Event, error) { return s.RevokeAgent(revocation, of) }
	}
	halt := organization.AgentStopped{OrganizationID: org, AgentID: agent, StoppedAt: noon}
	stop := func(s *organization.State) ([]event.Event, error) { return s.StopAgent(halt) }

	joined, left := added(member, organization.Member), memberRemoved
	plain := approved(agent, member, "memory:read")
	elsewhere := plain
	elsewhere.ProjectID = second
	full := []event.Event{&joined}
	for range limit.OrganizationAgents {
		full = append(full, new(approved(uuid.New(), member)))
	}
	first := full[1].(*organization.AgentApproved).AgentID
	freed := append(full[:len(full):len(full)], &organization.AgentRevoked{AgentID: first})
	one := func(e event.Event) []event.Event { return []event.Event{e} }
	for _, c := range []struct {
		name   string
		given  []event.Event
		decide decision
		want   []event.Event
		code   string
	}{
		{"approve", []event.Event{&joined}, approve(plain), one(plain), ""},
		{"approve for nobody", nil, approve(plain), nil, "not-found"},
		{"approve again", []event.Event{&joined, &plain}, approve(plain), nil, ""},
		{"approve with other scopes", []event.Event{&joined, &plain}, approve(approved(agent, member)), nil, "conflict"},
		{"approve another project", []event.Event{&joined, &plain}, approve(elsewhere), nil, "conflict"},
		{"approve that of another", []event.Event{&joined, new(added(second, organization.Owner)), &plain}, approve(approved(agent, second, "memory:read")), nil, "conflict"},
		{"approve a denied one", []event.Event{&joined, &denial}, approve(plain), nil, "conflict"},
		{"approve a revoked one", []event.Event{&joined, &plain, &revocation}, approve(plain), nil, "conflict"},
		{"approve that of a member who left", []event.Event{&joined, &plain, &left, &joined}, approve(plain), nil, "conflict"},
		{"approve one too many", full, approve(plain), nil, "conflict"},
		{"approve after one was revoked", freed, approve(plain), one(plain), ""},
		{"deny", []event.Event{&joined}, deny, one(denial), ""},
		{"deny as nobody", nil, deny, nil, "not-found"},
		{"deny again", []event.Event{&joined, &denial}, deny, nil, ""},
		{"deny what was approved", []event.Event{&joined, &plain}, deny, one(revocation), ""},
		{"revoke", []event.Event{&joined, &plain}, revoke(uuid.Nil), one(revocation), ""},
		{"revoke one's own", []event.Event{&joined, &plain}, revoke(member), one(revocation), ""},
		{"revoke that of another", []event.Event{&joined, &plain}, revoke(second), nil, "not-found"},
		{"revoke nothing", []event.Event{&joined}, revoke(uuid.Nil), nil, "not-found"},
		{"revoke again", []event.Event{&joined, &plain, &revocation}, revoke(uuid.Nil), nil, ""},
		{"stop", []event.Event{&joined, &plain}, stop, one(halt), ""},
		{"stop a revoked one", []event.Event{&joined, &plain, &revocation}, stop, one(halt), ""},
		{"stop again", []event.Event{&joined, &plain, &halt}, stop, nil, ""},
		{"stop nothing", nil, stop, nil, "not-found"},
		{"revoke a stopped one", []event.Event{&joined, &plain, &halt}, revoke(uuid.Nil), nil, ""},
		{"stop that of a member who left", []event.Event{&joined, &plain, &left}, stop, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := c.decide(folded(c.given...))
			checkDecided(t, c.want, got, c.code, err)
		})
	}
}

func TestAccess_OfARole(t *testing.T) {
	for _, c := range []struct {
		role   organization.Role
		access organization.Access
		want   organization.Access
	}{
		{organization.Owner, organization.NoAccess, organization.WriteAccess},
		{organization.Admin, organization.ReadAccess, organization.WriteAccess},
		{organization.Member, organization.ReadAccess, organization.ReadAccess},
		{organization.Member, organization.WriteAccess, organization.WriteAccess},
		{organization.Member, organization.NoAccess, organization.NoAccess},
		{"", organization.WriteAccess, organization.NoAccess},
	} {
		if got := c.access.Of(c.role); got != c.want {
			t.Errorf("%q of %q is %q, want %q", c.access, c.role, got, c.want)
		}
	}
}
