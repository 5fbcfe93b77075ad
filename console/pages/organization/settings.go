package organization

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/history"
)

const settingsPath = "/settings/organization"

// settingsView is the settings. ManagementKey is set on the one page that shows the new key.
type settingsView struct {
	ID                 string          `json:"id"`
	Name               string          `json:"name"`
	Plan               metering.Plan   `json:"plan"`
	Terms              metering.Terms  `json:"terms"`
	SpendCap           *string         `json:"spendCap"`
	NeedsSecondFactor  bool            `json:"needsSecondFactor"`
	HasManagementKey   bool            `json:"hasManagementKey"`
	Events             []history.Event `json:"events"`
	IsOwner            bool            `json:"-"`
	ManagementKey      string          `json:"-"`
	Warning, InAFileOf string          `json:"-"`
}

func (d Deps) settings(r *web.Request) error {
	view, err := d.settingsOf(r)
	if err != nil {
		return err
	}
	return r.Render("settings.html", view)
}

func (d Deps) settingsOf(r *web.Request) (v settingsView, err error) {
	o, err := d.organization(r)
	if err != nil {
		return v, err
	}
	v = settingsView{
		ID: o.ID.String(), Name: o.Name, Plan: cmp.Or(o.Plan, metering.SelfHosted), Terms: d.PlanTerms.Of(o.Plan),
		NeedsSecondFactor: r.Membership.SecondFactor, HasManagementKey: o.ManagementKeyID != nil, IsOwner: r.May(web.Owner),
	}
	if o.SpendCapTenths != nil {
		v.SpendCap = new(metering.Credits(*o.SpendCapTenths).String())
	}
	v.Events, err = d.latest(r, history.Organization(o.ID))
	return v, err
}

func (d Deps) organization(r *web.Request) (access.Organization, error) {
	o, ok, err := d.Access.OrganizationByID(r.Context(), r.Membership.Organization)
	if err == nil && !ok {
		err = fault.New(fault.NotFound, fault.CodeNotFound, "there is no such organization")
	}
	return o, err
}

func (d Deps) setSpendCap(r *web.Request) error {
	var tenths *int64
	var err error
	if text := r.Field("spendCap"); text != "" {
		tenths, err = tenthsOf(text)
	}
	if err == nil {
		_, err = d.Commands.SetSpendCap(r.Context(), r.Command(), r.Membership.Organization.String(), tenths)
	}
	return d.changed(r, err)
}

func (d Deps) setSecondFactor(r *web.Request) error {
	required := r.Field("required") != ""
	return d.changed(r, d.Commands.SetSecondFactor(r.Context(), r.Command(), r.Membership.Organization, required))
}

// changed shows the settings again, with what was wrong.
func (d Deps) changed(r *web.Request, err error) error {
	if err == nil {
		return r.Done(settingsPath, "saved")
	}
	view, failed := d.settingsOf(r)
	if failed != nil {
		return failed
	}
	return r.Invalid(err, "settings.html", view)
}

// rotateKey answers with the new key instead of a redirect: it is shown only here.
func (d Deps) rotateKey(r *web.Request) error {
	rotated, err := d.Commands.RotateManagementKey(r.Context(), r.Command(), r.Membership.Organization.String())
	if err != nil {
		return err
	}
	view, err := d.settingsOf(r)
	if err != nil {
		return err
	}
	view.HasManagementKey, view.ManagementKey = true, rotated.ManagementKey
	view.Warning, view.InAFileOf = rotated.Warning, rotated.CredentialsFile
	return r.Render("settings.html", view)
}

// tenthsOf reads credits with at most one digit after the point.
func tenthsOf(text string) (*int64, error) {
	whole, digit, has := strings.Cut(strings.ReplaceAll(text, ",", ""), ".")
	if !has {
		digit = "0"
	}
	n, err := strconv.ParseUint(whole+digit, 10, 62)
	if err != nil || len(digit) != 1 {
		return nil, fault.New(fault.Invalid, fault.CodeInvalidRequest,
			"%q is not a number of credits: write one from 0 with at most one digit after the point", web.Cut(text, 20))
	}
	return new(int64(n)), nil //nolint:gosec // of 62 bits
}

// latest are the last events of a thing, for its page.
func (d Deps) latest(r *web.Request, t history.Thing) ([]history.Event, error) {
	page, err := d.History.Of(r.Context(), t, "")
	return page.Events[:min(len(page.Events), latestEvents)], err
}

const latestEvents = 10
