// Package organization is the pages of an organization: its settings and members, the events of its management, and the
// erasure of what an identity wrote.
package organization

import (
	"context"
	"embed"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/commands/erasure"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/erasures"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/history"
)

//go:embed *.html
var templates embed.FS

// Deps are what the pages read and change.
type Deps struct {
	Access   access.Queries
	Commands *commands.Service
	History  history.Queries
	Links    Links
	Erasures *erasure.People
	// Open lists the people of a project who are being erased.
	Open      func(ctx context.Context, project uuid.UUID) ([]erasures.Person, error)
	PlanTerms metering.PlanTerms
}

// Links lets people sign in who cannot yet, or no more.
type Links interface {
	// Invite returns an address at which somebody new sets a password and is signed in, once. It is the page to sign in
	// for somebody who can sign in. Links of the person that were made before work no more. Until the address of the
	// person is verified, only the organization that invites is opened.
	Invite(ctx context.Context, of, person uuid.UUID, email string) (address string, expires time.Time, err error)
	// Reset returns an address at which the person sets another password, once. The address counts as not verified then.
	Reset(ctx context.Context, of, person uuid.UUID, email string) (address string, expires time.Time, err error)
	// Revoke ends the links of a person.
	Revoke(ctx context.Context, person uuid.UUID) error
	// ResetSecondFactor ends the second factor of a person, and all sessions.
	ResetSecondFactor(ctx context.Context, person uuid.UUID) error
}

// Area returns the pages.
func Area(d Deps) web.Area {
	if d.PlanTerms == nil {
		d.PlanTerms = metering.DefaultPlanTerms()
	}
	return web.Area{Templates: templates, Routes: []web.Route{
		{Pattern: "GET /settings/organization", Needs: web.Admin, Serve: d.settings},
		{Pattern: "POST /settings/organization/spend-cap", Needs: web.Owner, Serve: d.setSpendCap},
		{Pattern: "POST /settings/organization/second-factor", Needs: web.Owner, Serve: d.setSecondFactor},
		{Pattern: "POST /settings/organization/management-key", Needs: web.Admin, Serve: d.rotateKey},

		{Pattern: "GET /settings/members", Needs: web.Admin, Serve: d.members},
		{Pattern: "POST /settings/members", Needs: web.Admin, Serve: d.invite},
		{Pattern: "POST /settings/members/role", Needs: web.Admin, Serve: d.setRole},
		{Pattern: "POST /settings/members/access", Needs: web.Admin, Serve: d.setAccess},
		{Pattern: "POST /settings/members/remove", Needs: web.Admin, Serve: d.remove},
		{Pattern: "POST /settings/members/password", Needs: web.Admin, Serve: d.resetPassword},
		{Pattern: "POST /settings/members/second-factor", Needs: web.Admin, Serve: d.resetSecondFactor},

		{Pattern: "GET /settings/events", Needs: web.Admin, Serve: d.events},

		{Pattern: "GET /p/{project}/erasures", Needs: web.Manage, Serve: d.erasures},
		{Pattern: "POST /p/{project}/erasures", Needs: web.Manage, Serve: d.erase},
	}}
}
