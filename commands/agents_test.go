package commands_test

import (
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/internal/auth"
)

// byMember is the call of a member at the console.
func (w *fixture) byMember(org string, member uuid.UUID) commands.Call {
	call := w.call
	call.Principal = auth.Principal{
		Kind: auth.Person, KeyID: member, KeyName: auth.ConsoleName, OrganizationID: w.org(org),
	}
	return call
}

func TestAgents_AMemberDecides(t *testing.T) {
	w := peopled(t)
	cy, agent, denied := w.add("Annals", "cy@acme.example", organization.Member), uuid.New(), uuid.New()
	call, org, ctx := w.byMember("Annals", cy), w.org("Annals"), t.Context()
	approval := organization.AgentApproved{
		OrganizationID: org, AgentID: agent, Scopes: []string{"memory:read"}, ProjectID: w.projectIn("Annals"),
	}
	for _, err := range []error{
		w.ApproveAgent(ctx, call, approval),
		w.ApproveAgent(ctx, call, approval),
		w.DenyAgent(ctx, call, org, denied),
		w.RevokeAgent(ctx, call, org, agent, cy),
		w.RevokeAgent(ctx, call, org, agent, uuid.Nil),
		w.StopAgent(ctx, call, org, agent),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	facts := w.eventsOf("Annals")
	wantTypes(t, typesOf(facts), planSet, keySet, memberAdded, "organization.agent-approved.v1", "organization.agent-denied.v1",
		"organization.agent-revoked.v1", "organization.agent-stopped.v1")
	for _, f := range facts[3:] {
		if f.Details.Principal != "person:"+cy.String() {
			t.Errorf("%s is of %q", f.Type, f.Details.Principal)
		}
	}
	if e := facts[3].Event.(*organization.AgentApproved); e.MemberID != cy || e.ApprovedAt != call.ReceivedAt {
		t.Errorf("approved as %+v", e)
	}
}

func TestAgents_Refusals(t *testing.T) {
	w := peopled(t)
	cy, agent := w.add("Annals", "cy@acme.example", organization.Member), uuid.New()
	other := w.add("Annals", "dee@acme.example", organization.Member)
	call, org, ctx := w.byMember("Annals", cy), w.org("Annals"), t.Context()
	approval := organization.AgentApproved{OrganizationID: org, AgentID: agent, Scopes: []string{"memory:read"}}
	if err := w.ApproveAgent(ctx, call, approval); err != nil {
		t.Fatal(err)
	}
	inTheirs, theirs := approval, approval
	inTheirs.ProjectID, theirs.OrganizationID = w.projectIn("Acme"), w.org("Acme")
	for name, c := range map[string]struct {
		err  error
		code string
	}{
		"a project of another organization": {w.ApproveAgent(ctx, call, inTheirs), "not-found"},
		"in another organization":           {w.ApproveAgent(ctx, call, theirs), "not-found"},
		"the agent of another member":       {w.ApproveAgent(ctx, w.byMember("Annals", other), approval), "conflict"},
		"denied by a stranger":              {w.DenyAgent(ctx, w.byMember("Annals", uuid.New()), org, uuid.New()), "not-found"},
		"denied by another member":          {w.DenyAgent(ctx, w.byMember("Annals", other), org, agent), "not-found"},
		"revoked by another member":         {w.RevokeAgent(ctx, call, org, agent, other), "not-found"},
		"revoked next door":                 {w.RevokeAgent(ctx, call, w.org("Acme"), agent, uuid.Nil), "not-found"},
		"stopped next door":                 {w.StopAgent(ctx, call, w.org("Acme"), agent), "not-found"},
	} {
		t.Run(name, func(t *testing.T) { _ = wantFault(t, c.err, c.code) })
	}
	if err := w.RemoveMember(ctx, w.call, org, cy); err != nil {
		t.Fatal(err)
	}
	cy = w.add("Annals", "cy@acme.example", organization.Member)
	t.Run("the agent of a member who left", func(t *testing.T) {
		_ = wantFault(t, w.ApproveAgent(ctx, w.byMember("Annals", cy), approval), "conflict")
	})
}
