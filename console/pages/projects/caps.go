package projects

import (
	"cmp"
	"encoding/json"
	"html/template"
	"strings"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/console/svg"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/amounts"
	"github.com/annals-project/annals/internal/tenants"
)

func (d Deps) caps(r *web.Request) error { return d.showCaps(r, nil) }

// capsPage is the caps of a project, with what counts for them this month, metered or not.
type capsPage struct {
	IngestionCap    *int64       `json:"ingestionCap"`
	MonthIngestions int64        `json:"monthIngestions"`
	CreditCap       *json.Number `json:"creditCap"`
	MonthCredits    json.Number  `json:"monthCredits"`

	IngestionBar, CreditBar template.HTML `json:"-"`
}

func (d Deps) showCaps(r *web.Request, problem error) error {
	p, err := d.project(r)
	if err != nil {
		return err
	}
	page := capsPage{
		IngestionCap: p.IngestionCap, MonthIngestions: p.Used.Ingestions,
		CreditCap: tenants.Cap(p.CreditCapTenths), MonthCredits: metering.Credits(p.Used.CreditTenths),
	}
	if p.IngestionCap != nil {
		page.IngestionBar = svg.Progress("of the ingestion cap", p.Used.Ingestions, *p.IngestionCap)
	}
	if p.CreditCapTenths != nil {
		page.CreditBar = svg.Progress("of the credit cap", p.Used.CreditTenths, *p.CreditCapTenths)
	}
	if problem != nil {
		return r.Invalid(problem, "caps.html", page)
	}
	return r.Render("caps.html", page)
}

func (d Deps) setCaps(r *web.Request) error {
	ingestion, err := amounts.Cap(cmp.Or(r.Field("ingestionCap"), amounts.None))
	if err != nil {
		return d.showCaps(r, wrong("data points", r.Field("ingestionCap"), "a whole number such as 10000"))
	}
	credits, err := amounts.CreditCap(cmp.Or(r.Field("creditCap"), amounts.None))
	if err != nil {
		return d.showCaps(r, wrong("credits", r.Field("creditCap"), "a number with at most one decimal digit, such as 0.5"))
	}
	_, err = d.Commands.SetCaps(r.Context(), r.Command(), r.Membership.Organization.String(), r.Project.Project.Slug,
		commands.Caps{SetIngestion: true, Ingestion: ingestion, SetCredit: true, CreditTenths: credits})
	if err != nil {
		return d.showCaps(r, err)
	}
	return r.Done(r.ProjectPath("caps"), "saved")
}

func wrong(what, is, want string) error {
	return fault.New(fault.Invalid, fault.CodeInvalidRequest, "the cap of %s is %q: want %s, or nothing for no cap",
		what, web.Cut(strings.ToValidUTF8(is, "?"), 40), want)
}
