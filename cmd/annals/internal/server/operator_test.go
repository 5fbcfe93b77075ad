package server

import (
	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/tenants"
)

// operate makes a request of an operator to the running service and returns its answer.
func operate[In, Out any](h *harness, operation operatorapi.OrganizationCommand[In, Out], in In) Out {
	h.t.Helper()
	out, err := operation.Call(h.t.Context(), operatorapi.Dial(h.dir), in)
	if err != nil {
		h.t.Fatal(err)
	}
	return out
}

// target names an organization of the test, "" its own.
func (h *harness) target(organization string) operatorapi.Target {
	if organization == "" && h.place != nil {
		organization = "Annals"
	}
	return operatorapi.Target{Organization: h.name(organization), By: "operator test"}
}

func (h *harness) createAcme() tenants.Organization {
	h.t.Helper()
	return operate(h, operatorapi.CreateOrganization,
		operatorapi.NewOrganization{
			NewOrganization: commands.NewOrganization{Name: h.name("Acme"), Plan: "payg", OwnerEmail: h.mail("ana")}, By: "operator test",
		})
}

func (h *harness) setPlan(organization, plan string) {
	h.t.Helper()
	operate(h, operatorapi.SetPlan, operatorapi.PlanRequest{Target: h.target(organization), Plan: metering.Plan(plan)})
}

func (h *harness) grant(organization string, tenths int64) {
	h.t.Helper()
	operate(h, operatorapi.GrantCredits, operatorapi.CreditsRequest{Target: h.target(organization), Tenths: tenths})
}

func (h *harness) setSpendCap(organization string, tenths *int64) {
	h.t.Helper()
	operate(h, operatorapi.SetSpendCap, operatorapi.SpendCapRequest{Target: h.target(organization), Tenths: tenths})
}

func (h *harness) rotateKey(organization string) tenants.Organization {
	h.t.Helper()
	return operate(h, operatorapi.RotateManagementKey, h.target(organization))
}

func (h *harness) setArchived(organization, slug string, archived bool) {
	h.t.Helper()
	operate(h, operatorapi.SetArchived,
		operatorapi.ArchiveRequest{Target: h.target(organization), Slug: slug, Archived: archived})
}

// setCaps sets the caps that are not nil.
func (h *harness) setCaps(organization, slug string, ingestion, creditTenths *int64) {
	h.t.Helper()
	operate(h, operatorapi.SetCaps, operatorapi.CapsRequest{
		Target: h.target(organization), Slug: slug, Caps: commands.Caps{SetIngestion: ingestion != nil, Ingestion: ingestion, SetCredit: creditTenths != nil, CreditTenths: creditTenths},
	})
}
