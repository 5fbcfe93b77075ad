package operator_test

import (
	"context"
	"encoding/json"
	"errors"
	"os/user"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/annals-project/annals/internal/operator"
	"github.com/annals-project/annals/internal/operator/operatortest"
)

// organizations is a service with organizations that answers what is set, and remembers what it was asked.
type organizations struct {
	asked        any
	organization operator.Organization
	project      operator.Project
	refuse       error
}

func (o *organizations) answer(in any) (operator.Organization, error) {
	o.asked = in
	return o.organization, o.refuse
}

func (o *organizations) CreateOrganization(_ context.Context, in operator.NewOrganization) (operator.Organization, error) {
	return o.answer(in)
}

func (o *organizations) SetPlan(_ context.Context, in operator.PlanRequest) (operator.Organization, error) {
	return o.answer(in)
}

func (o *organizations) GrantCredits(_ context.Context, in operator.CreditsRequest) (operator.Organization, error) {
	return o.answer(in)
}

func (o *organizations) SetSpendCap(_ context.Context, in operator.SpendCapRequest) (operator.Organization, error) {
	return o.answer(in)
}

func (o *organizations) RotateManagementKey(_ context.Context, in operator.RotateRequest) (operator.Organization, error) {
	return o.answer(in)
}

func (o *organizations) SetArchived(_ context.Context, in operator.ArchiveRequest) (operator.Project, error) {
	o.asked = in
	return o.project, o.refuse
}

func (o *organizations) SetCaps(_ context.Context, in operator.CapsRequest) (operator.Project, error) {
	o.asked = in
	return o.project, o.refuse
}

func serveOrganizations(t *testing.T, o *organizations) *operator.Client {
	t.Helper()
	dir := t.TempDir()
	operatortest.Serve(t, dir, &sends{}, operator.OrganizationRoutes(o))
	return operator.Dial(dir)
}

// Every command reaches the service as it was given, and its answer comes back as it was answered.
func TestCommandsOnOrganizationsReachTheService(t *testing.T) {
	number := func(n int64) *int64 { return &n }
	cap12 := json.Number("12.5")
	o := &organizations{
		organization: operator.Organization{ID: "i", Name: "Acme", Plan: "payg", Granted: "0.5", Left: "7", SpendCap: &cap12, ManagementKey: "k", CredentialsFile: "f", Warning: "w"},
		project:      operator.Project{ID: "p", Organization: "Acme", Slug: "s", Name: "S", IsArchived: true, IngestionCap: number(0), CreditCap: &cap12},
	}
	c, ctx := serveOrganizations(t, o), t.Context()
	current, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	// What the client says of itself is a remark.
	by := "operator " + current.Username
	whom := operator.Whom{Organization: "acme", By: by}
	for _, tt := range []struct {
		name string
		in   any
		ask  func() (any, error)
		want any
	}{
		{"create", operator.NewOrganization{Name: "Acme", Plan: "payg", OwnerEmail: "a@b.c", By: by}, func() (any, error) {
			return c.CreateOrganization(ctx, operator.NewOrganization{Name: "Acme", Plan: "payg", OwnerEmail: "a@b.c", By: by})
		}, o.organization},
		{"plan", operator.PlanRequest{Whom: whom, Plan: "flex"}, func() (any, error) { return c.SetPlan(ctx, operator.PlanRequest{Whom: whom, Plan: "flex"}) }, o.organization},
		{"credits", operator.CreditsRequest{Whom: whom, Tenths: -5}, func() (any, error) { return c.GrantCredits(ctx, operator.CreditsRequest{Whom: whom, Tenths: -5}) }, o.organization},
		{"cap", operator.SpendCapRequest{Whom: whom, Tenths: number(5)}, func() (any, error) {
			return c.SetSpendCap(ctx, operator.SpendCapRequest{Whom: whom, Tenths: number(5)})
		}, o.organization},
		{"no cap", operator.SpendCapRequest{Whom: whom}, func() (any, error) { return c.SetSpendCap(ctx, operator.SpendCapRequest{Whom: whom}) }, o.organization},
		{"rotate", operator.RotateRequest{Whom: whom}, func() (any, error) { return c.RotateManagementKey(ctx, operator.RotateRequest{Whom: whom}) }, o.organization},
		{"archive", operator.ArchiveRequest{Whom: whom, Slug: "a/b", Archived: true}, func() (any, error) {
			return c.SetArchived(ctx, operator.ArchiveRequest{Whom: whom, Slug: "a/b", Archived: true})
		}, o.project},
		{"caps", operator.CapsRequest{Whom: whom, Slug: "s", SetIngestion: true, Ingestion: number(0), SetCredit: true}, func() (any, error) {
			return c.SetCaps(ctx, operator.CapsRequest{Whom: whom, Slug: "s", SetIngestion: true, Ingestion: number(0), SetCredit: true})
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

func TestARefusedCommandSaysWhyAndAFailedOneThatItFailed(t *testing.T) {
	o := &organizations{refuse: operator.Refuse("there is an organization \"Acme\" already")}
	c := serveOrganizations(t, o)
	_, err := c.CreateOrganization(t.Context(), operator.NewOrganization{})
	if !errors.Is(err, operator.ErrRefused) || err.Error() != o.refuse.Error() {
		t.Errorf("refused: %v", err)
	}
	o.refuse = errors.New("database is away")
	_, err = c.SetArchived(t.Context(), operator.ArchiveRequest{})
	if err == nil || errors.Is(err, operator.ErrRefused) || !strings.Contains(err.Error(), "database is away") {
		t.Errorf("failed: %v", err)
	}
}
