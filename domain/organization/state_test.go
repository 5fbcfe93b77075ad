package organization_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/organization"
)

var (
	org    = uuid.MustParse("00000000-0000-4000-8000-0000000000aa")
	member = uuid.MustParse("00000000-0000-4000-8000-0000000000bb")
	noon   = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
)

func keySet(hash string) *organization.ManagementKeySet {
	return &organization.ManagementKeySet{OrganizationID: org, KeyID: member, Hash: hash, SetAt: noon}
}

func planSet(plan metering.Plan, charged int64) organization.PlanSet {
	return organization.PlanSet{OrganizationID: org, Plan: plan, Month: "2026-11", ChargedTenths: charged, SetAt: noon}
}

func granted(tenths int64) organization.CreditsGranted {
	return organization.CreditsGranted{
		OrganizationID: org,
		Kind:           metering.Starting,
		Tenths:         tenths,
		Month:          "2026-11",
		GrantedAt:      noon,
	}
}

func owner() organization.MemberAdded {
	return organization.MemberAdded{OrganizationID: org, MemberID: member, Role: organization.Owner, AddedAt: noon}
}

func folded(events ...event.Event) *organization.State {
	s := &organization.State{}
	for _, e := range events {
		s.Evolve(e)
	}
	return s
}

// pointer is an event as the codec decodes it.
func pointer(e event.Event) event.Event {
	switch e := e.(type) {
	case organization.MemberAdded:
		return &e
	case organization.PlanSet:
		return &e
	case organization.CreditsGranted:
		return &e
	case organization.ManagementKeySet:
		return &e
	default:
		return e
	}
}

func TestState_MissingParts(t *testing.T) {
	bought := organization.CreditsGranted{
		OrganizationID: org,
		Kind:           metering.Bought,
		Tenths:         10,
		Month:          "2026-11",
		GrantedAt:      noon,
	}
	for _, c := range []struct {
		name  string
		given []event.Event
		parts organization.Parts
		want  []event.Event
	}{
		{"nothing yet, unmetered, nobody", nil, organization.Parts{Plan: metering.SelfHosted}, []event.Event{planSet(metering.SelfHosted, 0)}},
		{
			"nothing yet, metered, with owner and key", nil,
			organization.Parts{Plan: metering.Flex, OwnerID: member, Key: keySet("h")},
			[]event.Event{owner(), planSet(metering.Flex, 0), granted(1_500_000), *keySet("h")},
		},
		{
			"a work email", nil,
			organization.Parts{Plan: metering.PayAsYouGo, OwnerID: member, WorkEmail: true},
			[]event.Event{owner(), planSet(metering.PayAsYouGo, 0), granted(4_000_000)},
		},
		{
			"the owner left",
			[]event.Event{pointer(owner()), &organization.MemberRemoved{MemberID: member}},
			organization.Parts{Plan: metering.SelfHosted, OwnerID: member},
			[]event.Event{planSet(metering.SelfHosted, 0)},
		},
		{
			"the owner was erased",
			[]event.Event{&organization.MemberRemoved{MemberID: member}},
			organization.Parts{Plan: metering.SelfHosted, OwnerID: member},
			[]event.Event{planSet(metering.SelfHosted, 0)},
		},
		{"a log from before", []event.Event{keySet("h")}, organization.Parts{Plan: metering.SelfHosted, Key: keySet("other")}, []event.Event{planSet(metering.SelfHosted, 0)}},
		{"the plan that was set stays", []event.Event{pointer(planSet(metering.Enterprise, 0))}, organization.Parts{Plan: metering.SelfHosted}, []event.Event{granted(1_500_000)}},
		{"bought credits are no start", []event.Event{pointer(planSet(metering.Flex, 0)), &bought}, organization.Parts{Plan: metering.Flex}, []event.Event{granted(1_500_000)}},
		{"a start is once", []event.Event{pointer(planSet(metering.Flex, 0)), pointer(granted(1))}, organization.Parts{Plan: metering.Flex}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.parts.OrganizationID, c.parts.At = org, noon
			s := folded(c.given...)
			got := s.Missing(c.parts)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Fatalf("missing (-want +got):\n%s", diff)
			}
			for _, e := range got {
				s.Evolve(pointer(e))
			}
			if again := s.Missing(c.parts); again != nil {
				t.Errorf("still missing: %v", again)
			}
		})
	}
}

func TestState_ChangeOfPlan(t *testing.T) {
	for _, c := range []struct {
		name  string
		given []event.Event
		plan  metering.Plan
		work  bool
		want  []event.Event
	}{
		{"to a metered plan", []event.Event{pointer(planSet(metering.SelfHosted, 0))}, metering.Flex, false, []event.Event{planSet(metering.Flex, 70), granted(1_500_000)}},
		{"to a metered plan, of an owner with a work email", nil, metering.Flex, true, []event.Event{planSet(metering.Flex, 70), granted(4_000_000)}},
		{"a second start", []event.Event{pointer(planSet(metering.SelfHosted, 0)), pointer(granted(1))}, metering.Flex, true, []event.Event{planSet(metering.Flex, 70)}},
		{"to none", []event.Event{pointer(planSet(metering.Flex, 0))}, metering.SelfHosted, false, []event.Event{planSet(metering.SelfHosted, 70)}},
		{"the same", []event.Event{pointer(planSet(metering.Flex, 0))}, metering.Flex, true, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := folded(c.given...).SetPlan(organization.Change{
				OrganizationID: org, Plan: c.plan, ChargedTenths: 70, WorkEmail: c.work, At: noon,
			})
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

func TestState_ManagementKeys(t *testing.T) {
	s := folded(keySet("first"), keySet("second"), &organization.SpendCapSet{Tenths: new(int64)}, &organization.Prepared{})
	if !s.Held("first") || !s.Held("second") || s.Held("third") || s.KeyHashes[1] != "second" || !s.Prepared ||
		s.SpendCapTenths == nil ||
		s.Events != 4 {
		t.Errorf("state %+v", s)
	}
}

func TestEmail_Work(t *testing.T) {
	for email, want := range map[string]bool{
		"ana@acme.example": true, "ana@mail.acme.example": true, "Ana@ACME.example": true, "ana@notgmail.com": true,
		"ana@gmail.com": false, "Ana@GMail.com": false, "ana@sub.gmail.com": false, "ana@web.de": false, "": false, "ana": false, "ana@localhost": false,
	} {
		if got := organization.WorkEmail(email); got != want {
			t.Errorf("WorkEmail(%q) = %v", email, got)
		}
	}
}

func TestName_Valid(t *testing.T) {
	for name, want := range map[string]bool{
		"Acme": true, "A1": true, "日本": true, strings.Repeat("é", 255): true,
		"": false, "A": false, "--": false, " Acme": false, "Acme ": false, "Ac\nme": false, "Ac\x00me": false, strings.Repeat("é", 256): false,
		org.String(): false,
	} {
		if got := organization.ValidName(name); got != want {
			t.Errorf("ValidName(%.20q) = %v", name, got)
		}
	}
}

// A grant that has ended is approved no more: not after it was revoked, and not after its person left and returned.
func TestState_ApproveGrant(t *testing.T) {
	approved := organization.GrantApproved{OrganizationID: org, MemberID: member, GrantID: agent, ApprovedAt: noon}
	revoked := organization.GrantRevoked{OrganizationID: org, MemberID: member, GrantID: agent, RevokedAt: noon}
	joined, other, left := added(member, organization.Member), added(second, organization.Owner), memberRemoved
	for name, c := range map[string]struct {
		given []event.Event
		code  string
	}{
		"first":                  {[]event.Event{&joined}, ""},
		"again":                  {[]event.Event{&joined, &approved}, ""},
		"nobody's":               {nil, "not-found"},
		"of somebody who left":   {[]event.Event{&joined, &approved, &left}, "not-found"},
		"revoked":                {[]event.Event{&joined, &approved, &revoked}, "conflict"},
		"left and returned":      {[]event.Event{&joined, &approved, &left, &joined}, "conflict"},
		"while another one left": {[]event.Event{&joined, &other, &approved, &organization.MemberRemoved{MemberID: second}}, ""},
	} {
		events, err := folded(c.given...).ApproveGrant(approved)
		if code := codeOf(err); code != c.code || (len(events) == 1) != (c.code == "") {
			t.Errorf("%s: %v, %v, want code %q", name, events, err, c.code)
		}
	}
}

func codeOf(err error) string {
	if f, is := errors.AsType[*fault.Error](err); is {
		return f.Code
	}
	return ""
}

// checkDecided compares what was decided, and the code of its refusal.
func checkDecided(t *testing.T, want, got []event.Event, code string, err error) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" || codeOf(err) != code {
		t.Errorf("code %q, want %q; events (-want +got):\n%s", codeOf(err), code, diff)
	}
}
