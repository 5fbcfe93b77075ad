package operatorapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"os/user"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/cmd/annals/internal/operatorapi/operatortest"
)

// organizations is a service with organizations that answers what is set, and remembers what it was asked.
type organizations struct {
	asked        any
	organization operatorapi.Organization
	project      operatorapi.Project
	refuse       error
}

func (o *organizations) answer(in any) (operatorapi.Organization, error) {
	o.asked = in
	return o.organization, o.refuse
}

func (o *organizations) CreateOrganization(
	_ context.Context, in operatorapi.NewOrganization,
) (operatorapi.Organization, error) {
	return o.answer(in)
}

func (o *organizations) SetPlan(_ context.Context, in operatorapi.PlanRequest) (operatorapi.Organization, error) {
	return o.answer(in)
}

func (o *organizations) GrantCredits(
	_ context.Context, in operatorapi.CreditsRequest,
) (operatorapi.Organization, error) {
	return o.answer(in)
}

func (o *organizations) SetSpendCap(
	_ context.Context, in operatorapi.SpendCapRequest,
) (operatorapi.Organization, error) {
	return o.answer(in)
}

func (o *organizations) RotateManagementKey(
	_ context.Context, in operatorapi.RotateRequest,
) (operatorapi.Organization, error) {
	return o.answer(in)
}

func (o *organizations) SetArchived(_ context.Context, in operatorapi.ArchiveRequest) (operatorapi.Project, error) {
	o.asked = in
	return o.project, o.refuse
}

func (o *organizations) SetCaps(_ context.Context, in operatorapi.CapsRequest) (operatorapi.Project, error) {
	o.asked = in
	return o.project, o.refuse
}

func (o *organizations) routes() []operatorapi.Route {
	return []operatorapi.Route{
		operatorapi.CreateOrganization.Serve(o.CreateOrganization), operatorapi.SetPlan.Serve(o.SetPlan),
		operatorapi.GrantCredits.Serve(o.GrantCredits), operatorapi.SetSpendCap.Serve(o.SetSpendCap),
		operatorapi.RotateManagementKey.Serve(o.RotateManagementKey), operatorapi.SetArchived.Serve(o.SetArchived),
		operatorapi.SetCaps.Serve(o.SetCaps),
	}
}

func serveOrganizations(t *testing.T, o *organizations) *operatorapi.Client {
	t.Helper()
	dir := t.TempDir()
	operatortest.Serve(t, dir, o.routes()...)
	return operatorapi.Dial(dir)
}

// Every command reaches the service as it was given, and its answer comes back as it was answered.
func TestOrganizations_ReachTheService(t *testing.T) {
	number := func(n int64) *int64 { return &n }
	cap12 := json.Number("12.5")
	o := &organizations{
		organization: operatorapi.Organization{
			ID: "i", Name: "Acme", Plan: "payg", Granted: "0.5", Left: "7", SpendCap: &cap12, ManagementKey: "k",
			CredentialsFile: "f", Warning: "w",
		},
		project: operatorapi.Project{
			ID: "p", Organization: "Acme", Slug: "s", Name: "S", IsArchived: true, IngestionCap: number(0), CreditCap: &cap12,
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
		{"create", operatorapi.NewOrganization{Name: "Acme", Plan: "payg", OwnerEmail: "a@b.c", By: by}, func() (any, error) {
			return operatorapi.CreateOrganization.Call(ctx, c,
				operatorapi.NewOrganization{Name: "Acme", Plan: "payg", OwnerEmail: "a@b.c", By: by})
		}, o.organization},
		{"plan", operatorapi.PlanRequest{Target: target, Plan: "flex"}, func() (any, error) {
			return operatorapi.SetPlan.Call(ctx, c, operatorapi.PlanRequest{Target: target, Plan: "flex"})
		}, o.organization},
		{"credits", operatorapi.CreditsRequest{Target: target, Tenths: -5}, func() (any, error) {
			return operatorapi.GrantCredits.Call(ctx, c, operatorapi.CreditsRequest{Target: target, Tenths: -5})
		}, o.organization},
		{"cap", operatorapi.SpendCapRequest{Target: target, Tenths: number(5)}, func() (any, error) {
			return operatorapi.SetSpendCap.Call(ctx, c, operatorapi.SpendCapRequest{Target: target, Tenths: number(5)})
		}, o.organization},
		{"no cap", operatorapi.SpendCapRequest{Target: target}, func() (any, error) {
			return operatorapi.SetSpendCap.Call(ctx, c, operatorapi.SpendCapRequest{Target: target})
		}, o.organization},
		{"rotate", operatorapi.RotateRequest{Target: target}, func() (any, error) {
			return operatorapi.RotateManagementKey.Call(ctx, c, operatorapi.RotateRequest{Target: target})
		}, o.organization},
		{"archive", operatorapi.ArchiveRequest{Target: target, Slug: "a/b", Archived: true}, func() (any, error) {
			return operatorapi.SetArchived.Call(ctx, c, operatorapi.ArchiveRequest{Target: target, Slug: "a/b", Archived: true})
		}, o.project},
		{"caps", operatorapi.CapsRequest{Target: target, Slug: "s", SetIngestion: true, Ingestion: number(0), SetCredit: true}, func() (any, error) {
			return operatorapi.SetCaps.Call(ctx, c,
				operatorapi.CapsRequest{Target: target, Slug: "s", SetIngestion: true, Ingestion: number(0), SetCredit: true})
		}, o.project},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o.asked = nil
			got, err := tt.ask()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.in, o.asked); diff != "" {
				t.Errorf("asked (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOrganizations_RefusedAndFailedCommands(t *testing.T) {
	o := &organizations{refuse: operatorapi.Refuse("there is an organization \"Acme\" already")}
	c := serveOrganizations(t, o)
	_, err := operatorapi.CreateOrganization.Call(t.Context(), c, operatorapi.NewOrganization{})
	if !errors.Is(err, operatorapi.ErrRefused) || err.Error() != o.refuse.Error() {
		t.Errorf("refused: %v", err)
	}
	o.refuse = errors.New("database is away")
	_, err = operatorapi.SetArchived.Call(t.Context(), c, operatorapi.ArchiveRequest{})
	if err == nil || errors.Is(err, operatorapi.ErrRefused) || !strings.Contains(err.Error(), "database is away") {
		t.Errorf("failed: %v", err)
	}
}
