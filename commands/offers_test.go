package commands_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/people"
	"github.com/annals-project/annals/domain/audit"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/work"
)

const offerLife = 7 * 24 * time.Hour

func (w *fixture) offer(org, email string, role organization.Role) uuid.UUID {
	w.t.Helper()
	in := people.NewOffer{Email: email, Role: role}
	made, err := w.OfferMembership(w.t.Context(), w.call, w.org(org), in, offerLife)
	runtest.Must(w.t, err)
	return made.ID
}

// offers are the streams of offers that are not tombstoned, as the projection lists them.
func (w *fixture) offers() (open []work.Offer) {
	w.t.Helper()
	records, err := w.store.ReadAll(w.t.Context(), 0, 1<<20)
	runtest.Must(w.t, err)
	for _, r := range records {
		if stream.Category(r.Stream) != stream.Offer {
			continue
		}
		id := stream.Owner(r.Stream)
		_, err := w.log.ReadFrom(w.t.Context(), r.Stream, 0)
		if errors.Is(err, eventstore.ErrDeleted) {
			continue
		}
		runtest.Must(w.t, err)
		open = append(open, work.Offer{ID: id, AddressedAt: w.call.ReceivedAt})
	}
	return open
}

func TestOffer_GivesNothingBeforeItsAcceptance(t *testing.T) {
	w := peopled(t)
	project := w.projectIn("Annals")
	made, err := w.OfferMembership(t.Context(), w.call, w.org("Annals"), people.NewOffer{
		Email: anas, Role: organization.Member,
		Access: map[uuid.UUID]organization.Access{project: organization.WriteAccess},
	}, offerLife)
	if err != nil || made.ExpiresAt != w.call.ReceivedAt.Add(offerLife) {
		t.Fatalf("made %v, %v", made, err)
	}
	if _, found, err := w.FindPerson(t.Context(), anas); err != nil || found || len(w.members("Annals")) > 0 {
		t.Fatalf("found: %t, %v; members %v", found, err, w.members("Annals"))
	}
	id, err := w.AcceptOffer(t.Context(), w.call, w.org("Annals"), made.ID, "ana@acme.example")
	if err != nil || w.emailOf(id) != "ana@acme.example" {
		t.Fatalf("accepted by %s, %v", id, err)
	}
	if again, err := w.AcceptOffer(t.Context(), w.call, w.org("Annals"), made.ID, anas); err != nil || again != id {
		t.Errorf("accepted again by %s, %v", again, err)
	}
	wantTypes(t, typesOf(w.eventsOf("Annals")), planSet, keySet, "organization.member-offered.v1",
		"organization.offer-ended.v1", memberAdded, accessSet)
	if left := w.offers(); len(left) > 0 {
		t.Errorf("the streams of offers %v are left", left)
	}
	kept, err := w.log.ReadFrom(t.Context(), stream.RecordsName(stream.Name(stream.Offer, made.ID)), 0)
	if err != nil || len(kept) != 1 || len(kept[0].Event.(*audit.RecordsKept).Records) != 1 ||
		kept[0].Event.(*audit.RecordsKept).OrganizationID != w.org("Annals") {
		t.Errorf("records %v, %v", kept, err)
	}
}

// The events of an offer are the same whether another organization knows the address or not, and the offer changes
// nothing of the other one.
func TestOffer_ShowsNothingOfOthers(t *testing.T) {
	w := peopled(t)
	before := typesOf(w.eventsOf("Acme"))
	for _, email := range []string{"bo@acme.example", "new@acme.example"} {
		id := w.offer("Annals", email, organization.Member)
		facts := w.eventsOf("Annals")
		made, is := facts[len(facts)-1].Event.(*organization.MemberOffered)
		if !is || made.OfferID != id || len(made.Recipient) != 64 {
			t.Errorf("the last event is %v", facts[len(facts)-1])
		}
	}
	other := w.offer("Acme", "new@acme.example", organization.Member)
	recipients := map[string]bool{}
	for _, org := range []string{"Annals", "Acme"} {
		for _, f := range w.eventsOf(org) {
			if made, is := f.Event.(*organization.MemberOffered); is {
				recipients[made.Recipient] = true
			}
		}
	}
	if len(recipients) != 3 {
		t.Errorf("two organizations have the same hash of an address: %v", recipients)
	}
	wantFault(t, w.EndOffer(t.Context(), w.call, w.org("Annals"), other, organization.Withdrawn), "not-found")
	wantFault(t, errorOf(w.AcceptOffer(t.Context(), w.call, w.org("Annals"), other, "new@acme.example")), "not-found")
	wantTypes(t, typesOf(w.eventsOf("Acme")), append(before, "organization.member-offered.v1")...)
}

func TestOffer_Faults(t *testing.T) {
	w := peopled(t)
	ctx, own, foreign := t.Context(), w.projectIn("Annals"), w.projectIn("Acme")
	offer := func(org, email string, role organization.Role, project uuid.UUID, a organization.Access) error {
		in := people.NewOffer{Email: email, Role: role, Access: map[uuid.UUID]organization.Access{project: a}}
		_, err := w.OfferMembership(ctx, w.call, w.org(org), in, offerLife)
		return err
	}
	accept := func(org string, id uuid.UUID, email string) error {
		_, err := w.AcceptOffer(ctx, w.call, w.org(org), id, email)
		return err
	}
	id := w.offer("Annals", anas, organization.Member)
	for name, c := range map[string]struct {
		err  error
		code string
	}{
		"to no address":             {offer("Annals", "ana", organization.Member, own, ""), "invalid-request"},
		"of no role":                {offer("Annals", anas, "boss", own, ""), "invalid-request"},
		"of no organization":        {offer("Other", anas, organization.Member, own, ""), "not-found"},
		"of a foreign project":      {offer("Annals", anas, organization.Member, foreign, organization.ReadAccess), "not-found"},
		"of no access":              {offer("Annals", anas, organization.Member, own, "none"), "invalid-request"},
		"accepted by somebody else": {accept("Annals", id, "bo@acme.example"), "not-found"},
		"accepted elsewhere":        {accept("Acme", id, anas), "not-found"},
		"never made":                {accept("Annals", uuid.New(), anas), "not-found"},
		"withdrawn elsewhere":       {w.EndOffer(ctx, w.call, w.org("Acme"), id, organization.Withdrawn), "not-found"},
	} {
		t.Run(name, func(t *testing.T) { _ = wantFault(t, c.err, c.code) })
	}
	if _, found, err := w.FindPerson(ctx, anas); err != nil || found {
		t.Errorf("a refused acceptance registers somebody: %t, %v", found, err)
	}
	for _, err := range []error{
		w.EndOffer(ctx, w.call, w.org("Annals"), id, organization.Declined),
		offer("Annals", anas, organization.Admin, foreign, organization.ReadAccess), // ignored for an admin
	} {
		if err != nil {
			t.Error(err)
		}
	}
	wantFault(t, accept("Annals", id, anas), "not-found")
}

// An address that an earlier version compared as the same is somebody else's.
func TestOffer_ToAnAddressOfAnotherForm(t *testing.T) {
	w := peopled(t)
	const kim, kelvin = "kim@acme.example", "\u212aim@acme.example"
	id := w.offer("Annals", kim, organization.Member)
	wantFault(t, errorOf(w.AcceptOffer(t.Context(), w.call, w.org("Annals"), id, kelvin)), "not-found")
	mine, err := w.AddressName("KIM@acme.example")
	runtest.Must(t, err)
	if theirs, err := w.AddressName(kelvin); err != nil || theirs == mine {
		t.Errorf("offers to %s are found for %s: %v", kim, kelvin, err)
	}
}

// An offer that is made again takes the place of the first one, whose address goes.
func TestOffer_Again(t *testing.T) {
	w := peopled(t)
	first := w.offer("Annals", anas, organization.Member)
	next := w.offer("Annals", "ana@ACME.example", organization.Admin)
	if got := w.offers(); len(got) != 1 || got[0].ID != next {
		t.Errorf("the streams of offers %v are left, want %s", got, next)
	}
	wantFault(t, errorOf(w.AcceptOffer(t.Context(), w.call, w.org("Annals"), first, anas)), "not-found")
	runtest.Must(t, errorOf(w.AcceptOffer(t.Context(), w.call, w.org("Annals"), next, anas)))
	w.wantMembers("Annals", anas+" admin")
}

// The process dies before each write in turn. The finisher leaves the address of an offer only while that is open, and
// a repeat of the command completes it.
func TestOffer_CrashAfterEachAppend(t *testing.T) {
	var id uuid.UUID
	for name, c := range map[string]struct {
		prepare func(*fixture)
		act     func(w, c *fixture) error
		want    []string
	}{
		"an offer": {func(*fixture) {}, func(w, c *fixture) error {
			in := people.NewOffer{Email: anas, Role: organization.Member}
			_, err := c.OfferMembership(w.t.Context(), w.call, w.org("Annals"), in, offerLife)
			return err
		}, nil},
		"an acceptance": {func(w *fixture) { id = w.offer("Annals", anas, organization.Member) }, func(w, c *fixture) error {
			_, err := c.AcceptOffer(w.t.Context(), w.call, w.org("Annals"), id, anas)
			return err
		}, []string{anas + " member"}},
		"a withdrawal": {func(w *fixture) { id = w.offer("Annals", anas, organization.Member) }, func(w, c *fixture) error {
			return c.EndOffer(w.t.Context(), w.call, w.org("Annals"), id, organization.Withdrawn)
		}, nil},
	} {
		for survived := range int64(8) {
			t.Run(fmt.Sprintf("%s after %d appends", name, survived), func(t *testing.T) {
				w := peopled(t)
				c.prepare(w)
				victim := w.dying(t, survived)
				victim.at(w.call.ReceivedAt)
				answered := c.act(w, victim) == nil
				if got := w.members("Annals"); answered && !slices.Equal(got, c.want) {
					t.Fatalf("answered, and members are %v", got)
				}
				w.settleOffers(w.call.ReceivedAt.Add(time.Minute))
				if err := c.act(w, w); err != nil && !answered {
					if !strings.Contains(err.Error(), "no such offer") { // it was complete
						t.Fatal(err)
					}
				}
				w.settleOffers(w.call.ReceivedAt.Add(2 * time.Minute))
				w.wantMembers("Annals", c.want...)
				w.settleOffers(w.call.ReceivedAt.Add(offerLife))
				if got := w.offers(); len(got) > 0 {
					t.Errorf("the streams of offers %v are left", got)
				}
			})
		}
	}
}

// settleOffers settles all offers, as a finisher does: those that are left are open.
func (w *fixture) settleOffers(now time.Time) {
	w.t.Helper()
	for _, o := range w.offers() {
		o.Organization = w.org("Annals")
		for range 2 { // a second run changes nothing
			runtest.Must(w.t, errorOf(people.SettleOffer(w.t.Context(), w.log, o, now)))
		}
	}
	var state organization.State
	for _, f := range w.eventsOf("Annals") {
		state.Evolve(f.Event)
	}
	for _, o := range w.offers() {
		if _, open := state.Offers[o.ID]; !open {
			w.t.Errorf("the address of offer %s is left", o.ID)
		}
	}
}

// The address of an offer is left to the command that makes it, for a minute.
func TestSettleOffer_WhileItIsMade(t *testing.T) {
	w := peopled(t)
	id := w.offer("Annals", anas, organization.Member)
	runtest.Must(t, w.EndOffer(t.Context(), w.call, w.org("Annals"), id, organization.Declined))
	o := work.Offer{ID: uuid.New(), Organization: w.org("Annals"), AddressedAt: w.call.ReceivedAt}
	for _, c := range []struct {
		after time.Duration
		want  bool
	}{{59 * time.Second, false}, {time.Minute, true}} {
		erased, err := people.SettleOffer(t.Context(), w.log, o, w.call.ReceivedAt.Add(c.after))
		if err != nil || erased != c.want {
			t.Errorf("%s later: erased %t, %v", c.after, erased, err)
		}
	}
}

// byMember is the call of a member at the console.
func (w *fixture) byMember(org string, member uuid.UUID) engine.Call {
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
		runtest.Must(t, err)
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
	runtest.Must(t, w.ApproveAgent(ctx, call, approval))
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
	runtest.Must(t, w.RemoveMember(ctx, w.call, org, cy))
	cy = w.add("Annals", "cy@acme.example", organization.Member)
	t.Run("the agent of a member who left", func(t *testing.T) {
		_ = wantFault(t, w.ApproveAgent(ctx, w.byMember("Annals", cy), approval), "conflict")
	})
}
