package organization_test

import (
	"errors"
	"testing"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/organization"
)

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
		var code string
		if f, is := errors.AsType[*fault.Error](err); is {
			code = f.Code
		}
		if code != c.code || (len(events) == 1) != (c.code == "") {
			t.Errorf("%s: %v, %v, want code %q", name, events, err, c.code)
		}
	}
}
