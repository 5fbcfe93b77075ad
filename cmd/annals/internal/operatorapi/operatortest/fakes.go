package operatortest

import (
	"context"

	"github.com/google/uuid"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/commands/erasure"
	"github.com/annals-project/annals/internal/tenants"
	"github.com/annals-project/annals/internal/work"
)

// Organizations is a service whose organizations and projects are what is set. Every command returns
// them, or Refuse if it is set.
type Organizations struct {
	// Asked is the last request that the service received.
	Asked        any
	Organization tenants.Organization
	Project      tenants.Project
	Refuse       error
}

// Routes are the commands on organizations and projects.
func (o *Organizations) Routes() []operatorapi.Route {
	return []operatorapi.Route{
		returns(o, &o.Organization, operatorapi.CreateOrganization),
		returns(o, &o.Organization, operatorapi.SetPlan),
		returns(o, &o.Organization, operatorapi.GrantCredits),
		returns(o, &o.Organization, operatorapi.SetSpendCap),
		returns(o, &o.Organization, operatorapi.RotateManagementKey),
		returns(o, &o.Project, operatorapi.SetArchived),
		returns(o, &o.Project, operatorapi.SetCaps),
	}
}

func returns[In, Out any](
	o *Organizations, out *Out, command operatorapi.OrganizationCommand[In, Out],
) operatorapi.Route {
	return command.Serve(func(_ context.Context, in In) (Out, error) {
		o.Asked = in
		return *out, o.Refuse
	})
}

// Eraser is a service with something to erase. Every operation returns what is set, or Refuse.
type Eraser struct {
	Pending work.Open
	Erased  erasure.Report
	Refuse  error
	// Calls counts the requests to erase.
	Calls int
}

// Routes are the operations of erasure.
func (e *Eraser) Routes() []operatorapi.Route {
	return []operatorapi.Route{
		operatorapi.PendingErasures.Serve(func(context.Context, operatorapi.None) (work.Open, error) {
			return e.Pending, e.Refuse
		}),
		operatorapi.EraseNow.Serve(func(context.Context, operatorapi.None) (erasure.Report, error) {
			e.Calls++
			return e.Erased, e.Refuse
		}),
	}
}

// Sends is a service with stopped sends. It refuses every call if Refuse is set.
type Sends struct {
	Stopped []operatorapi.Failed
	Retried []uuid.UUID
	// RetriedBy are the operators of the calls in Retried.
	RetriedBy []string
	Refuse    error
}

// FailedSends implements operatorapi.Sends.
func (s *Sends) FailedSends(_ context.Context, limit int, after uuid.UUID) ([]operatorapi.Failed, error) {
	if s.Refuse != nil {
		return nil, s.Refuse
	}
	from := 0
	for i, f := range s.Stopped {
		if f.IngestionID == after {
			from = i + 1
		}
	}
	return s.Stopped[from:min(from+limit, len(s.Stopped))], nil
}

// Retry implements operatorapi.Sends.
func (s *Sends) Retry(_ context.Context, id uuid.UUID, by string) error {
	s.Retried, s.RetriedBy = append(s.Retried, id), append(s.RetriedBy, by)
	return s.Refuse
}
