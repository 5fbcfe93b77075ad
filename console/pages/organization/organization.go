// Package organization is the pages of an organization: its settings and members, the events of its management, and the
// erasure of what an identity wrote.
package organization

import (
	"cmp"
	"context"
	"embed"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/commands/erasure"
	"github.com/annals-project/annals/console/pages/webhooks"
	"github.com/annals-project/annals/console/signin"
	"github.com/annals-project/annals/console/web"
	process "github.com/annals-project/annals/domain/erasure"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/amounts"
	"github.com/annals-project/annals/internal/erasures"
	"github.com/annals-project/annals/internal/tenants"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/history"
	"github.com/annals-project/annals/projections/why"
)

//go:embed *.html
var templates embed.FS

// Deps are what the pages read and change.
type Deps struct {
	Access    access.Queries
	Commands  *commands.Service
	History   history.Reader
	Links     Links
	Erasures  *erasure.People
	Takes     why.Takes
	Names     erasures.Names
	PlanTerms metering.PlanTerms
	// OfferLife is how long an offer is open.
	OfferLife time.Duration
	People    People
}

// Links lets people sign in who cannot yet, or no more.
type Links interface {
	// Invite returns an address at which somebody accepts an offer, sets a password and is signed in, once. The offer is
	// mailed too, where mail is set; mailed reports it. The answer is the same whether the address has an account or not.
	Invite(ctx context.Context, offer signin.Link) (address string, expires time.Time, mailed bool, err error)
	// Reset returns an address at which the person sets another password, once. No address counts as proved then.
	Reset(ctx context.Context, of, person uuid.UUID, email string) (address string, expires time.Time, err error)
	// Revoke ends the links of a person that the organization made.
	Revoke(ctx context.Context, of, person uuid.UUID) error
	// ResetSecondFactor ends the second factor of a person, all sessions, and what programs may do for the person.
	ResetSecondFactor(ctx context.Context, person uuid.UUID) error
	// CountSecondFactors counts the people who have a second factor.
	CountSecondFactors(ctx context.Context, people []uuid.UUID) (int, error)
	// End ends all with which a person signs in, and the sessions at once.
	End(ctx context.Context, person uuid.UUID) error
}

// Area returns the pages.
func Area(d Deps) web.Area {
	settings, erasure := web.NewPage("settings.html", d.settings), web.NewPage("erasures.html", d.erasure)
	return web.Area{Templates: templates, Routes: []web.Route{
		{Pattern: "GET /settings/organization", Needs: web.Admin, Auditors: web.Audited, Serve: settings.Show},
		{Pattern: "POST " + settingsPath + "/spend-cap", Needs: web.Owner, Serve: settings.After("saved", d.setSpendCap)},
		{Pattern: "POST " + settingsPath + "/second-factor", Needs: web.Owner, Serve: settings.After("saved", d.setSecondFactor)},
		{Pattern: "POST " + settingsPath + "/visits", Needs: web.Owner, Serve: settings.After("saved", d.setVisitsKept)},
		{Pattern: "POST " + settingsPath + "/auditor-texts", Needs: web.Owner, Serve: settings.After("saved", d.setAuditorTexts)},
		{Pattern: "POST /settings/organization/management-key", Needs: web.Admin, Serve: d.rotateKey},
		{Pattern: "GET /settings/members", Needs: web.Admin, Auditors: web.Audited, Serve: d.members},
		{Pattern: "POST /settings/members", Needs: web.Admin, Serve: d.invite},
		{Pattern: "POST /settings/offers/{offer}", Needs: web.Admin, Serve: d.withdraw},
		{Pattern: "GET /settings/members/{member}", Needs: web.Admin, Auditors: web.Audited, Serve: web.NewPage("member.html", d.member).Show},
		{Pattern: "POST /settings/members/{member}", Needs: web.Admin, Serve: d.change},
		{Pattern: "GET /settings/events", Needs: web.Admin, Auditors: web.Audited, Serve: d.events},
		{Pattern: "GET /p/{project}/erasures", Needs: web.Manage, Auditors: web.Audited, Serve: web.NewPage("erasures.html", d.erasures).Show},
		{Pattern: "POST /p/{project}/erasures", Needs: web.Manage, Serve: d.erase},
		{Pattern: "GET /p/{project}/erasures/{erasure}", Needs: web.Manage, Auditors: web.Audited, Serve: erasure.Show},
	}}
}

const settingsPath = "/settings/organization"

// settings is the page of the organization. Rotated is set on the one page that shows a new management key.
type settings struct {
	ID                string         `json:"id"`
	Name              string         `json:"name"`
	Plan              metering.Plan  `json:"plan"`
	Terms             metering.Terms `json:"terms"`
	SpendCap          string         `json:"spendCap"`
	NeedsSecondFactor bool           `json:"needsSecondFactor"`
	// WithSecondFactor is how many of the Members have one.
	WithSecondFactor int                   `json:"withSecondFactor"`
	Members          int                   `json:"members"`
	HasManagementKey bool                  `json:"hasManagementKey"`
	VisitDays        int                   `json:"visitDays"`
	AuditorTexts     bool                  `json:"auditorTexts"`
	Events           []history.Event       `json:"events"`
	IsOwner          bool                  `json:"-"`
	Rotated          *tenants.Organization `json:"-"`
}

// lastEvents is how many changes a page shows of a thing.
const lastEvents = 10

func (d Deps) settings(r *web.Request) (v settings, err error) {
	o, ok, err := d.Access.OrganizationByID(r.Context(), r.Membership.Organization)
	if err == nil && !ok {
		err = fault.New(fault.NotFound, fault.CodeNotFound, "there is no such organization")
	}
	if err != nil {
		return v, err
	}
	v = settings{
		ID: o.ID.String(), Name: o.Name, Plan: cmp.Or(o.Plan, metering.SelfHosted), Terms: d.PlanTerms.Of(o.Plan),
		NeedsSecondFactor: r.Membership.SecondFactor, HasManagementKey: o.ManagementKeyID != nil, IsOwner: r.May(web.Owner),
		VisitDays: o.VisitDays, AuditorTexts: r.Membership.AuditorTexts,
	}
	if o.SpendCapTenths != nil {
		v.SpendCap = metering.Credits(*o.SpendCapTenths).String()
	}
	members, err := d.Access.Members(r.Context(), o.ID)
	if err != nil {
		return v, err
	}
	ids := make([]uuid.UUID, len(members))
	for i, m := range members {
		ids[i] = m.PersonID
	}
	v.Members = len(members)
	if v.WithSecondFactor, err = d.Links.CountSecondFactors(r.Context(), ids); err != nil {
		return v, err
	}
	if v.Rotated, err = web.Once[*tenants.Organization](r); err != nil {
		return v, err
	}
	v.HasManagementKey = v.HasManagementKey || v.Rotated != nil
	v.Events, err = d.History.Latest(r.Context(), r.HistoryViewer(), "", lastEvents)
	return v, err
}

func (d Deps) setSpendCap(r *web.Request) (path string, err error) {
	text := strings.ReplaceAll(r.Field("spendCap"), ",", "")
	tenths, err := amounts.CreditCap(cmp.Or(text, amounts.None))
	if err != nil {
		return "", fault.New(fault.Invalid, fault.CodeInvalidRequest,
			"%q is not a number of credits: write one from 0 with at most one digit after the point", web.Cut(text, 20))
	}
	_, err = d.Commands.SetSpendCap(r.Context(), r.Command(), r.Membership.Organization.String(), tenths)
	return settingsPath, err
}

func (d Deps) setSecondFactor(r *web.Request) (path string, err error) {
	required := r.Field("required") != ""
	return settingsPath, d.Commands.SetSecondFactor(r.Context(), r.Command(), r.Membership.Organization, required)
}

func (d Deps) setVisitsKept(r *web.Request) (path string, err error) {
	days, err := strconv.Atoi(r.Field("days"))
	if err != nil {
		return "", fault.New(fault.Invalid, fault.CodeInvalidRequest, "%q is no number of days", web.Cut(r.Field("days"), 20))
	}
	return settingsPath, d.Commands.SetVisitsKept(r.Context(), r.Command(), r.Membership.Organization, days)
}

func (d Deps) setAuditorTexts(r *web.Request) (path string, err error) {
	allowed := r.Field("allowed") != ""
	return settingsPath, d.Commands.SetAuditorTexts(r.Context(), r.Command(), r.Membership.Organization, allowed)
}

// rotateKey leads to the settings, which show the new key once.
func (d Deps) rotateKey(r *web.Request) error {
	if err := r.AskFirst("management-key"); err != nil {
		return err
	}
	rotated, err := d.Commands.RotateManagementKey(r.Context(), r.Command(), r.Membership.Organization.String())
	if err != nil {
		return err
	}
	return web.ShowOnce(r, settingsPath, rotated)
}

// events leads from the former address of History to the present one.
func (d Deps) events(r *web.Request) error {
	r.Redirect(r.HistoryPath(""))
	return nil
}

// erasureList is the erasures of a project, one of them at its path, and what it holds of the identity of the query.
type erasureList struct {
	Open     []openErasure         `json:"open"`
	Ended    []erasures.Ended      `json:"ended"`
	Status   *erasure.PersonStatus `json:"status,omitempty"`
	Identity string                `json:"identity,omitempty"`
	Found    *erasure.Person       `json:"found,omitempty"`
	// Taken is what the erasure of Found takes besides, and what it leaves.
	Taken *why.Taken `json:"taken,omitempty"`
	// Replayed is what a replay of the dropped events did, nil for none.
	Replayed *webhooks.Replayed `json:"-"`
	// By is who began the erasure of Status.
	By *history.Principal `json:"by,omitempty"`
	// Stays is what no erasure takes, with the reason.
	Stays []string `json:"stays,omitempty"`
	// Step of Steps is how far the erasure of Status is, DataPoints how many it deleted.
	Step       int  `json:"-"`
	Steps      int  `json:"-"`
	DataPoints int  `json:"-"`
	IsDone     bool `json:"-"`
}

type openErasure struct {
	ID       uuid.UUID `json:"id"`
	Identity string    `json:"identity"`
}

// AtOnce is how many of the dropped events one form replays.
func (v erasureList) AtOnce() int { return min(v.Taken.Dropped, webhooks.MostReplayed) }

// phases are those of an erasure, in order.
var phases = []process.Phase{process.Deleting, process.Purging, process.Checking, process.Done}

// erasures shows what the project holds of an identity.
func (d Deps) erasures(r *web.Request) (v erasureList, err error) {
	if v.Identity = r.FormValue("identity"); v.Identity != "" {
		found, err := d.Erasures.Find(r.Context(), r.Project.Project.ID, v.Identity)
		if err != nil {
			return v, err
		}
		taken, err := d.Takes.Taken(r.Context(), r.Membership.Organization, r.Project.Project, v.Identity, r.Now())
		if err != nil {
			return v, err
		}
		v.Found, v.Taken = &found, &taken
	}
	if v.Replayed, err = web.Once[*webhooks.Replayed](r); err != nil {
		return v, err
	}
	return v, d.list(r, &v)
}

// list adds the erasures of the project.
func (d Deps) list(r *web.Request, v *erasureList) (err error) {
	if v.Ended, err = d.Names.Ended(r.Context(), r.Project.Project.ID); err != nil {
		return err
	}
	open, err := d.Names.OfProject(r.Context(), r.Project.Project.ID)
	v.Open = make([]openErasure, len(open))
	for i, p := range open {
		v.Open[i] = openErasure{p.ID, p.Identity}
	}
	return err
}

// erasure shows the state of one. It reads that first: an erasure whose state is the last one has no name in the list.
func (d Deps) erasure(r *web.Request) (v erasureList, err error) {
	id, err := uuid.Parse(r.PathValue("erasure"))
	if err != nil {
		return v, fault.New(fault.NotFound, fault.CodeNotFound, "the project has no such erasure")
	}
	status, err := d.Erasures.Status(r.Context(), r.Project.Project.ID, id)
	if err != nil {
		return v, err
	}
	v.Status, v.Steps, v.IsDone = &status, len(phases)-1, status.Phase == process.Done
	v.Step = max(0, slices.Index(phases, status.Phase))
	for _, receipt := range status.Receipts {
		v.DataPoints += receipt.DataPoints
	}
	named, err := d.History.Principals(r.Context(), []string{status.By})
	if err != nil {
		return v, err
	}
	v.By, v.Stays = new(named[status.By]), stays
	return v, d.list(r, &v)
}

// stays is what an erasure of a person leaves, with the reason.
var stays = []string{
	"ids, sizes, times and credits of the deleted data points: usage is counted by them, and they hold no text",
	"the leaf record of each event that went: it proves that the event was there, and does not show its content",
	"texts of others, also those that name the person: they are theirs; search the name and correct or delete them",
	"what other projects have of the identity: each project is erased for itself",
	"backups from before: they go when they are deleted",
}

// erase begins an erasure. The name is written a second time, since nothing brings back what is erased.
func (d Deps) erase(r *web.Request) error {
	identity := r.PostForm.Get("identity")
	if identity == "" || identity != r.PostForm.Get("again") {
		return web.NewPage("erasures.html", d.erasures).Again(r, fault.New(fault.Invalid, fault.CodeInvalidRequest,
			"write the identity exactly as it is, to confirm that all of it is to be erased"))
	}
	id, err := d.Erasures.Start(r.Context(), erasures.Person{
		ProjectID: r.Project.Project.ID, Identity: identity, By: r.Command().Principal.Name(),
	})
	if err != nil {
		return err
	}
	r.Redirect(r.ProjectPath("erasures", id.String()))
	return nil
}
