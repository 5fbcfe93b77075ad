package access_test

import (
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/person"
	"github.com/annals-project/annals/domain/project"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/domain/webhook"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/projectiontest"
)

// writer writes the events of this projection.
type writer struct{ projectiontest.Log }

func (w *writer) organization(name string) {
	w.Append(stream.Registry,
		&registry.OrganizationCreated{OrganizationID: id(name), Name: name, Plan: metering.SelfHosted, CreatedAt: noon})
}

// of writes an event of an organization.
func (w *writer) of(org string, e event.Event) {
	w.Append(stream.Name(stream.Organization, id(org)), e)
}

func (w *writer) prepared(org string) {
	w.of(org, &organization.Prepared{OrganizationID: id(org), PreparedAt: noon})
}

func (w *writer) plan(org string, plan metering.Plan) {
	w.of(org, &organization.PlanSet{OrganizationID: id(org), Plan: plan, Month: "2026-11", SetAt: noon})
}

func (w *writer) spendCap(org string, tenths *int64) {
	w.of(org, &organization.SpendCapSet{OrganizationID: id(org), Tenths: tenths, SetAt: noon})
}

// member makes the person with an address a member.
func (w *writer) member(org, email string, role organization.Role) {
	w.of(org, &organization.MemberAdded{OrganizationID: id(org), MemberID: id(email), Role: role, AddedAt: noon})
}

func (w *writer) setRole(org, email string, role organization.Role) {
	w.of(org, &organization.MemberRoleSet{OrganizationID: id(org), MemberID: id(email), Role: role, SetAt: noon})
}

func (w *writer) removeMember(org, email string) {
	w.of(org, &organization.MemberRemoved{OrganizationID: id(org), MemberID: id(email), RemovedAt: noon})
}

func (w *writer) setAccess(org, email, slug string, access organization.Access) {
	w.of(org, &organization.ProjectAccessSet{
		OrganizationID: id(org), MemberID: id(email), ProjectID: id(slug), Access: access, SetAt: noon,
	})
}

func (w *writer) secondFactor(org string, required bool) {
	w.of(org, &organization.SecondFactorSet{OrganizationID: id(org), Required: required, SetAt: noon})
}

func addressOf(email string) string { return "address-of-" + id(email).String() }

func (w *writer) claim(email string) {
	w.Append(addressOf(email), &person.AddressClaimed{PersonID: id(email), ClaimedAt: noon})
}

// person claims an address and registers a person.
func (w *writer) person(email string) {
	w.claim(email)
	w.register(email)
}

func (w *writer) register(email string) {
	name := stream.Name(stream.Person, id(email))
	w.Append(name, &person.Registered{PersonID: id(email), Email: email, RegisteredAt: noon})
	w.join("org 0", email)
}

// join begins a join of the person who registered with an address.
func (w *writer) join(org, email string) {
	w.Append(stream.Name(stream.Person, id(email)),
		&person.JoinBegun{PersonID: id(email), OrganizationID: id(org), BegunAt: noon})
}

func (w *writer) removePerson(email string) {
	w.Append(stream.Name(stream.Person, id(email)), &person.Removed{PersonID: id(email), RemovedAt: noon})
}

// changeAddress changes the address of the person who registered with an address. The old one stays claimed.
func (w *writer) changeAddress(email, to string) {
	w.Append(addressOf(to), &person.AddressClaimed{PersonID: id(email), ClaimedAt: noon})
	w.Append(stream.Name(stream.Person, id(email)),
		&person.AddressChanged{PersonID: id(email), Email: to, ChangedAt: noon})
}

// leaveAddress releases an address of the person who registered with email.
func (w *writer) leaveAddress(email, address string) {
	w.Append(addressOf(address), &person.AddressReleased{PersonID: id(email), ReleasedAt: noon})
}

func (w *writer) release(email string) {
	w.Append(addressOf(email), &person.AddressReleased{PersonID: id(email), ReleasedAt: noon})
}

// approve lets an agent call for a member, in a project or in all.
func (w *writer) approve(org, email, agent, slug string, scopes ...string) {
	e := &organization.AgentApproved{
		OrganizationID: id(org), AgentID: id(agent), MemberID: id(email), Scopes: scopes, ApprovedAt: noon,
	}
	if slug != "" {
		e.ProjectID = id(slug)
	}
	w.of(org, e)
}

// endAgent revokes an agent, or stops it.
func (w *writer) endAgent(org, agent string, stopped bool) {
	if stopped {
		w.of(org, &organization.AgentStopped{OrganizationID: id(org), AgentID: id(agent), StoppedAt: noon})
	} else {
		w.of(org, &organization.AgentRevoked{OrganizationID: id(org), AgentID: id(agent), RevokedAt: noon})
	}
}

// drawPerson draws a step of a new person or of one of the known, and returns those who are left.
func (w *writer) drawPerson(t *rapid.T, known []string, name string) []string {
	role := rapid.SampledFrom([]organization.Role{organization.Owner, organization.Member}).Draw(t, "role")
	step := rapid.IntRange(0, 12).Draw(t, "step of a person")
	if step == 0 || len(known) == 0 {
		w.claim(name)
		return append(known, name)
	}
	at := rapid.IntRange(0, len(known)-1).Draw(t, "person")
	email := known[at]
	switch step {
	case 1:
		w.register(email)
		w.member("org 0", email, role)
	case 2:
		w.setRole("org 0", email, role)
		w.join("org 0", email)
	case 3:
		w.removeMember("org 0", email)
	case 4:
		to := rapid.SampledFrom([]string{email, email + " a", email + " b"})
		w.changeAddress(email, to.Draw(t, "new address"))
		if left := to.Draw(t, "old address"); left != email {
			w.leaveAddress(email, left)
		}
	case 5, 6:
		access := []organization.Access{organization.NoAccess, organization.ReadAccess, organization.WriteAccess}
		slug := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "project of a member")
		w.setAccess("org 0", email, slug, rapid.SampledFrom(access).Draw(t, "access"))
	case 7:
		w.approve("org 0", email, "agent of "+email, rapid.SampledFrom([]string{"", "a"}).Draw(t, "project of an agent"))
	case 8:
		w.endAgent("org 0", "agent of "+email, rapid.Bool().Draw(t, "stopped"))
	case 9:
		w.export("org 0", email, "a", noon)
	case 10:
		w.signIn("org 0", email, noon)
	case 11:
		w.Append(eventstore.SystemStream, &eventstore.Tombstoned{Stream: visitsOf("org 0", email, noon)})
	default:
		w.removePerson(email)
		w.release(email)
		return slices.Delete(known, at, at+1)
	}
	return known
}

func (w *writer) caps(slug string, ingestion, credit *int64) {
	w.Append(stream.Name(stream.Project, id(slug)),
		&project.CapsSet{ProjectID: id(slug), IngestionCap: ingestion, CreditCapTenths: credit, SetAt: noon})
}

func (w *writer) reads(slug string, mode project.ReadsMode, days int) {
	w.Append(stream.Name(stream.Project, id(slug)),
		&project.ReadsSet{ProjectID: id(slug), Mode: mode, Days: days, SetAt: noon})
}

func (w *writer) managementKey(name, key string) {
	w.Append(stream.Name(stream.Organization, id(name)), &organization.ManagementKeySet{
		OrganizationID: id(name), KeyID: id(key), Hash: hashText(key), Prefix: "svc_mk_", Suffix: "xyz", SetAt: noon,
	})
}

func (w *writer) describe(slug, name, description string) {
	w.Append(stream.Name(stream.Project, id(slug)),
		&project.Described{ProjectID: id(slug), Name: name, Description: description, DescribedAt: noon})
}

func (w *writer) project(org, slug string, number int64) {
	w.Append(stream.Registry, &registry.ProjectCreated{
		OrganizationID: id(
			org,
		), ProjectID: id(slug), Number: number, Slug: slug, Name: strings.ToUpper(slug), Namespace: storedNamespace(slug), CreatedAt: noon,
	})
}

func (w *writer) key(slug, key string) {
	w.Append(stream.Name(stream.Project, id(slug)), &project.KeyCreated{
		ProjectID: id(
			slug,
		), KeyID: id(key), Name: key, Hash: hashText(key), Prefix: "svc_sk_", Suffix: "abc", CreatedAt: noon,
	})
}

func (w *writer) revoke(slug, key string) {
	w.Append(stream.Name(stream.Project, id(slug)),
		&project.KeyRevoked{ProjectID: id(slug), KeyID: id(key), RevokedAt: noon.Add(time.Hour)})
}

// webhook creates a webhook whose id, name and token are of its name.
func (w *writer) webhook(slug, name string) {
	w.Append(stream.Name(stream.Project, id(slug)), &project.WebhookCreated{
		ProjectID: id(slug), WebhookID: name, TokenID: id("token of " + name), TokenHash: hashText("token of " + name),
		Settings: settingsOf(name), CreatedAt: noon,
	})
}

func settingsOf(name string) webhook.Settings {
	return webhook.Settings{
		Name: name, ContentPath: "$.text", Filters: []webhook.Filter{{Path: "$.a", Operator: webhook.Is, Values: []string{"b"}}},
	}
}

func (w *writer) changeWebhook(slug, name, to string) {
	w.Append(stream.Name(stream.Project, id(slug)), &project.WebhookChanged{
		ProjectID: id(slug), WebhookID: name, Settings: settingsOf(to), ChangedAt: noon,
	})
}

func (w *writer) pauseWebhook(slug, name string, paused bool) {
	if paused {
		w.Append(stream.Name(stream.Project, id(slug)),
			&project.WebhookPaused{ProjectID: id(slug), WebhookID: name, PausedAt: noon})
	} else {
		w.Append(stream.Name(stream.Project, id(slug)),
			&project.WebhookResumed{ProjectID: id(slug), WebhookID: name, ResumedAt: noon})
	}
}

func (w *writer) rotateToken(slug, name, token string) {
	w.Append(stream.Name(stream.Project, id(slug)), &project.WebhookTokenRotated{
		ProjectID: id(slug), WebhookID: name, TokenID: id(token), TokenHash: hashText(token), RotatedAt: noon,
	})
}

func (w *writer) deleteWebhook(slug, name string) {
	w.Append(stream.Name(stream.Project, id(slug)),
		&project.WebhookDeleted{ProjectID: id(slug), WebhookID: name, DeletedAt: noon})
}

func (w *writer) archive(slug string, archived bool) {
	if archived {
		w.Append(stream.Name(stream.Project, id(slug)), &project.Archived{ProjectID: id(slug), ArchivedAt: noon})
	} else {
		w.Append(stream.Name(stream.Project, id(slug)), &project.Unarchived{ProjectID: id(slug), UnarchivedAt: noon})
	}
}
