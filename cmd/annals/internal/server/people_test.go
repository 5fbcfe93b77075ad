package server

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/person"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/tenants"
)

// people returns the commands on people, and a call.
func (h *harness) people() (*commands.Service, commands.Call) {
	h.t.Helper()
	log := commands.NewJournal(h.storage.store, h.storage.codec, h.cfg.Logger)
	log.Namespaces, log.Now = h.journal.Namespaces, h.cfg.now
	return commands.New(commands.Config{Journal: log, Waiter: h.read.waiter}), commands.Call{
		Principal: auth.Principal{Kind: auth.ManagementKey}, RequestID: uuid.New(), ReceivedAt: h.cfg.now(),
	}
}

// endJoins lets so much time pass that no join is under way for the finisher any more: it would leave the erasure of a
// person for later.
func (h *harness) endJoins() { h.ahead.Add(int64(2 * time.Minute)) }

// managePeople writes the events about people. It leaves one member of an organization besides
// the owner.
func (h *harness) managePeople(acme uuid.UUID) {
	h.t.Helper()
	service, call := h.people()
	add := func(email string) uuid.UUID {
		id, err := service.AddMember(h.t.Context(), call, acme, commands.NewMember{Email: email, Role: organization.Member})
		if err != nil {
			h.t.Fatal(err)
		}
		return id
	}
	offer := func(email string) uuid.UUID {
		in := commands.NewOffer{Email: email, Role: organization.Member}
		made, err := service.OfferMembership(h.t.Context(), call, acme, in, time.Hour)
		runtest.Must(h.t, err)
		return made.ID
	}
	bo := add("bo@acme.example")
	cy, err := service.AcceptOffer(h.t.Context(), call, acme, offer("cy@acme.example"), "cy@acme.example")
	runtest.Must(h.t, err)
	runtest.Must(h.t, service.EndOffer(h.t.Context(), call, acme, offer("dee@acme.example"), organization.Declined))
	h.endJoins()
	call.Principal.OrganizationID = acme
	project, err := service.CreateProject(h.t.Context(), call, "Project")
	if err != nil {
		h.t.Fatal(err)
	}
	for _, err := range []error{
		service.SetProjectAccess(h.t.Context(), call, acme, cy, project.ID, organization.ReadAccess),
		service.ChangeAddress(h.t.Context(), call, bo, "bo@new.example"),
		service.DescribeProject(h.t.Context(), call, project.Slug, "Project", "What Acme does."),
		service.SetMemberRole(h.t.Context(), call, acme, bo, organization.Admin),
		service.RecordReset(h.t.Context(), call, acme, bo, organization.ResetPassword),
		service.ApproveGrant(h.t.Context(), call, organization.GrantApproved{
			OrganizationID: acme, MemberID: bo, GrantID: uuid.New(), ProjectID: project.ID, Scopes: []string{"memory:read"},
		}),
		service.RevokeGrant(h.t.Context(), call, organization.GrantRevoked{OrganizationID: acme, MemberID: bo, GrantID: uuid.New()}),
		h.manageAgents(acme, bo),
		service.SetSecondFactor(h.t.Context(), call, acme, true),
		service.RemoveMember(h.t.Context(), call, acme, cy),
	} {
		if err != nil {
			h.t.Fatal(err)
		}
	}
	runtest.Await(h.t, "nothing is left of the person", func() bool { return h.count("address.released.v1") == 2 })
}

// manageAgents writes the events about agents of a member. One agent is left.
func (h *harness) manageAgents(org, member uuid.UUID) error {
	h.t.Helper()
	service, call := h.people()
	call.Principal = auth.Principal{Kind: auth.Person, KeyID: member, OrganizationID: org}
	revoked, stopped := uuid.New(), uuid.New()
	var all []error
	for _, id := range []uuid.UUID{uuid.New(), revoked, stopped} {
		all = append(all, service.ApproveAgent(h.t.Context(), call, organization.AgentApproved{
			OrganizationID: org, AgentID: id, Scopes: []string{"memory:read"},
		}))
	}
	return errors.Join(append(all, service.DenyAgent(h.t.Context(), call, org, uuid.New()),
		service.RevokeAgent(h.t.Context(), call, org, revoked, member),
		service.StopAgent(h.t.Context(), call, org, stopped))...)
}

// organizations are what the operator sees of organizations.
func (h *harness) organizations() []tenants.ListedOrganization {
	h.t.Helper()
	list, err := operatorapi.ListOrganizations.Call(h.t.Context(), operatorapi.Dial(h.dir), operatorapi.TenancyRequest{})
	if err != nil {
		h.t.Fatal(err)
	}
	return list
}

// wantNoAddress fails for each stored event that holds an address outside of the streams of people: in its
// data, its metadata or the name of its stream, in clear or as a plain SHA-256.
func (h *harness) wantNoAddress(emails ...string) (inside int) {
	h.t.Helper()
	for _, email := range emails {
		sum := sha256.Sum256([]byte(email))
		for _, text := range []string{
			email, hex.EncodeToString(sum[:])[:16], base64.RawStdEncoding.EncodeToString(sum[:])[:16],
			base64.RawURLEncoding.EncodeToString(sum[:])[:16], string(sum[:]),
		} {
			for _, e := range h.events() {
				stored := bytes.ToLower(slices.Concat([]byte(e.Stream), []byte("\n"), e.Data, []byte("\n"), e.Meta))
				switch {
				case !bytes.Contains(stored, bytes.ToLower([]byte(text))):
				case stream.Category(e.Stream) == stream.Person:
					inside++
				default:
					h.t.Errorf("%s of %s holds %q", e.Type, e.Stream, text)
				}
			}
		}
	}
	return inside
}

// The only owner of an organization asks for erasure: nothing is left of the address, the organization is
// without a name, and the address may register again.
func TestPeople_ErasureOfAnOwner(t *testing.T) {
	unraced(t)
	t.Parallel()
	h := newHarness(t)
	h.start()
	service, call := h.people()
	const email = "ana@acme.example"
	acme, err := service.CreateOrganization(t.Context(), call,
		commands.NewOrganization{Name: "Acme", Plan: metering.Flex, OwnerEmail: email})
	if err != nil {
		t.Fatal(err)
	}
	if n := h.wantNoAddress(email); n != 1 {
		t.Errorf("%d events hold the address of the owner", n)
	}
	ana, found, err := service.FindPerson(t.Context(), strings.ToUpper(email))
	if err != nil || !found {
		t.Fatalf("the owner is %s, %v, %v", ana, found, err)
	}
	owner := func() string {
		list := h.organizations()
		at := slices.IndexFunc(list, func(o tenants.ListedOrganization) bool { return o.Name == "Acme" })
		return list[at].OwnerEmail
	}
	if got := owner(); got != email {
		t.Errorf("the owner is %q", got)
	}
	h.endJoins()
	if err := service.RemovePerson(t.Context(), call, ana); err != nil {
		t.Fatal(err)
	}
	if got := owner(); got != person.RemovedName {
		t.Errorf("after the removal the owner is %q", got)
	}
	erased, err := operatorapi.EraseNow.Call(t.Context(), operatorapi.Dial(h.dir), operatorapi.None{})
	if err != nil || erased.Left.Identities != 0 || h.count("address.released.v1") != 1 {
		t.Errorf("erased %+v, %v; %d addresses are released", erased, err, h.count("address.released.v1"))
	}
	if n := h.wantNoAddress(email); n != 0 {
		t.Errorf("%d events hold the address of the erased owner", n)
	}
	var rows int
	err = h.storage.db.QueryRow(t.Context(), `select (select count(*) from access.people) + (select count(*) from access.members)`).
		Scan(&rows)
	if err != nil || rows != 0 {
		t.Errorf("%d rows are left, %v", rows, err)
	}
	if got := owner(); got != person.RemovedName {
		t.Errorf("after the erasure the owner is %q", got)
	}
	service, call = h.people()
	again, err := service.AddMember(t.Context(), call, acme.ID, commands.NewMember{Email: email, Role: organization.Owner})
	if err != nil || again == ana || owner() != email {
		t.Errorf("registered again as %s, %v; the owner is %q", again, err, owner())
	}
}
