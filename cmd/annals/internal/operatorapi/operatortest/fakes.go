package operatortest

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/commands/erasure"
	"github.com/annals-project/annals/internal/tenants"
	"github.com/annals-project/annals/internal/work"
	"github.com/annals-project/annals/projections/datapoints"
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
	Stopped []datapoints.StoppedSend
	Retried []uuid.UUID
	// RetriedBy are the operators of the calls in Retried.
	RetriedBy []string
	Refuse    error
}

// Routes are the operations on stopped sends.
func (s *Sends) Routes() []operatorapi.Route { return operatorapi.SendRoutes(s, s, time.Now) }

// Each implements operatorapi.Sends.
func (s *Sends) Each(_ context.Context, _ uuid.UUID, emit func(datapoints.StoppedSend) error) error {
	for _, f := range s.Stopped {
		if err := emit(f); err != nil {
			return err
		}
	}
	return s.Refuse
}

// RetryOf implements operatorapi.Retrier.
func (s *Sends) RetryOf(_ context.Context, call commands.Call, id uuid.UUID) error {
	s.Retried, s.RetriedBy = append(s.Retried, id), append(s.RetriedBy, call.Principal.Name())
	return s.Refuse
}
