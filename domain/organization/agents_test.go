package organization_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/organization"
)

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
			var code string
			if f, is := errors.AsType[*fault.Error](err); is {
				code = f.Code
			}
			if diff := cmp.Diff(c.want, got); diff != "" || code != c.code {
				t.Errorf("code %q, want %q; events (-want +got):\n%s", code, c.code, diff)
			}
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
