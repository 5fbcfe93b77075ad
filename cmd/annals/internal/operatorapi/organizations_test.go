package operatorapi_test

import (
	"encoding/json"
	"errors"
	"os/user"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/cmd/annals/internal/operatorapi/operatortest"
	"github.com/annals-project/annals/commands/tenancy"
	"github.com/annals-project/annals/internal/tenants"
)

func serveOrganizations(t *testing.T, o *operatortest.Organizations) *operatorapi.Client {
	t.Helper()
	dir := t.TempDir()
	operatortest.Serve(t, dir, o.Routes()...)
	return operatorapi.Dial(dir)
}

// Every command reaches the service as it was given, and its answer comes back as it was answered.
func TestOrganizations_ReachTheService(t *testing.T) {
	number := func(n int64) *int64 { return &n }
	cap12 := json.Number("12.5")
	o := &operatortest.Organizations{
		Organization: tenants.Organization{
			ID: uuid.UUID{1}, Name: "Acme", Plan: "payg", Granted: "0.5", Left: "7", SpendCap: &cap12, ManagementKey: "k",
			CredentialsFile: "f", Warning: "w",
		},
		Project: tenants.Project{
			ID: uuid.UUID{2}, Organization: "Acme", Slug: "s", Name: "S", IsArchived: true, IngestionCap: number(0), CreditCap: &cap12,
		},
	}
	c, ctx := serveOrganizations(t, o), t.Context()
	current, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	// The name that the client sends is a remark.
	by := "operator " + current.Username
	target := operatorapi.Target{Organization: "acme", By: by}
	for _, tt := range []struct {
		name string
		in   any
		ask  func() (any, error)
		want any
	}{
		{"create", operatorapi.NewOrganization{
			NewOrganization: tenancy.NewOrganization{Name: "Acme", Plan: "payg", OwnerEmail: "a@b.c"}, By: by,
		}, func() (any, error) {
			return operatorapi.CreateOrganization.Call(ctx, c,
				operatorapi.NewOrganization{
					NewOrganization: tenancy.NewOrganization{Name: "Acme", Plan: "payg", OwnerEmail: "a@b.c"}, By: by,
				})
		}, o.Organization},
		{"plan", operatorapi.PlanRequest{Target: target, Plan: "flex"}, func() (any, error) {
			return operatorapi.SetPlan.Call(ctx, c, operatorapi.PlanRequest{Target: target, Plan: "flex"})
		}, o.Organization},
		{"credits", operatorapi.CreditsRequest{Target: target, Tenths: -5}, func() (any, error) {
			return operatorapi.GrantCredits.Call(ctx, c, operatorapi.CreditsRequest{Target: target, Tenths: -5})
		}, o.Organization},
		{"cap", operatorapi.SpendCapRequest{Target: target, Tenths: number(5)}, func() (any, error) {
			return operatorapi.SetSpendCap.Call(ctx, c, operatorapi.SpendCapRequest{Target: target, Tenths: number(5)})
		}, o.Organization},
		{"no cap", operatorapi.SpendCapRequest{Target: target}, func() (any, error) {
			return operatorapi.SetSpendCap.Call(ctx, c, operatorapi.SpendCapRequest{Target: target})
		}, o.Organization},
		{"rotate", target, func() (any, error) {
			return operatorapi.RotateManagementKey.Call(ctx, c, target)
		}, o.Organization},
		{"archive", operatorapi.ArchiveRequest{Target: target, Slug: "a/b", Archived: true}, func() (any, error) {
			return operatorapi.SetArchived.Call(ctx, c, operatorapi.ArchiveRequest{Target: target, Slug: "a/b", Archived: true})
		}, o.Project},
		{"caps", operatorapi.CapsRequest{Target: target, Slug: "s", Caps: tenancy.Caps{
			SetIngestion: true,
			Ingestion:    number(0), SetCredit: true,
		}}, func() (any, error) {
			return operatorapi.SetCaps.Call(ctx, c,
				operatorapi.CapsRequest{Target: target, Slug: "s", Caps: tenancy.Caps{
					SetIngestion: true, Ingestion: number(0),
					SetCredit: true,
				}})
		}, o.Project},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o.Asked = nil
			got, err := tt.ask()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.in, o.Asked); diff != "" {
				t.Errorf("asked (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOrganizations_RefusedAndFailedCommands(t *testing.T) {
	o := &operatortest.Organizations{Refuse: operatorapi.Refuse("there is an organization \"Acme\" already")}
	c := serveOrganizations(t, o)
	_, err := operatorapi.CreateOrganization.Call(t.Context(), c, operatorapi.NewOrganization{})
	if !errors.Is(err, operatorapi.ErrRefused) || err.Error() != o.Refuse.Error() {
		t.Errorf("refused: %v", err)
	}
	o.Refuse = errors.New("database is away")
	_, err = operatorapi.SetArchived.Call(t.Context(), c, operatorapi.ArchiveRequest{})
	if err == nil || errors.Is(err, operatorapi.ErrRefused) || !strings.Contains(err.Error(), "database is away") {
		t.Errorf("failed: %v", err)
	}
}
