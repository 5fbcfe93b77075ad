package operatorapi

import (
	"context"

	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/tenants"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/audit/state"
)

// The operations on the audit log. AuditStatus returns the states of all trees, or that of an organization.
var AuditStatus = Stream[AuditRequest, state.State]{"/operator/audit/status"}

// AuditRequest names an organization, "" for all and the deployment.
type AuditRequest struct {
	Organization string `json:"organization,omitempty"`
}

// Audit is what the operations call.
type Audit struct {
	Tenancy access.Tenancy
	States  state.Reader
}

// AuditRoutes returns the routes of the operations.
func AuditRoutes(a Audit) []Route {
	return []Route{AuditStatus.Serve(a.status)}
}

func (a Audit) status(ctx context.Context, in AuditRequest, _ func(), emit func(state.State) error) error {
	if in.Organization != "" {
		o, err := a.Tenancy.Organization(ctx, in.Organization)
		if err != nil {
			return err
		}
		one, err := a.States.One(ctx, o.ID)
		if err != nil {
			return err
		}
		one.Name = o.Name
		return emit(one)
	}
	list, err := a.Tenancy.Organizations(ctx, "")
	if err != nil {
		return err
	}
	names := map[uuid.UUID]tenants.ListedOrganization{}
	for _, o := range list {
		names[o.ID] = o
	}
	return a.States.Each(ctx, func(one state.State) error {
		one.Name = names[one.Organization].Name
		return emit(one)
	})
}
