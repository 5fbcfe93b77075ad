// Package operatortest serves routes of the operator API to tests.
package operatortest

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/erasure"
	domain "github.com/annals-project/annals/domain/erasure"
	"github.com/annals-project/annals/internal/peersocket"
	"github.com/annals-project/annals/internal/tenants"
	"github.com/annals-project/annals/internal/work"
	"github.com/annals-project/annals/projections/datapoints"
)

// Serve serves routes on the socket of a data folder until the test ends.
func Serve(t testing.TB, dataDir string, routes ...operatorapi.Route) {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	l, err := peersocket.Listen(t.Context(), operatorapi.Socket(dataDir), logger)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- peersocket.Serve(ctx, l, operatorapi.Handler(logger, routes...)) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

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
func (s *Sends) RetryOf(_ context.Context, call engine.Call, id uuid.UUID) error {
	s.Retried, s.RetriedBy = append(s.Retried, id), append(s.RetriedBy, call.Principal.Name())
	return s.Refuse
}

// People is a service with one person, whose erasure goes a step on each time somebody looks.
type People struct {
	Eraser
	// Points and Record are what the project holds of the person, NamedIn how many calls name the person, and Logged how
	// many others the request log holds.
	Points, NamedIn, Logged int
	Record                  bool
	// Writes is how many data points the person writes after each round.
	Writes int
	// Waits is how many deletions have to wait for another operation. Failure is that of a step.
	Waits   int
	Failure string

	// Begun counts the requests to erase. Rounds are those of the erasure.
	Begun, Rounds int
	status        erasure.PersonStatus
}

// Routes are the operations on the person, and those of erasure.
func (p *People) Routes() []operatorapi.Route {
	return append(p.Eraser.Routes(),
		operatorapi.FindPerson.Serve(func(context.Context, operatorapi.PersonRequest) (erasure.Person, error) {
			return erasure.Person{Newest: p.Points, HasRecord: p.Record}, nil
		}),
		operatorapi.ErasePerson.Serve(func(
			context.Context, operatorapi.PersonRequest,
		) (operatorapi.PersonErasureID, error) {
			p.Begun++
			if p.status.Phase == "" || p.status.Phase == domain.Done {
				p.status, p.Rounds = erasure.PersonStatus{Phase: domain.Deleting}, 0
			}
			return operatorapi.PersonErasureID{ID: uuid.UUID{1}}, nil
		}),
		operatorapi.PersonErasure.Serve(func(
			_ context.Context, in operatorapi.PersonErasureID,
		) (erasure.PersonStatus, error) {
			if in.ID != (uuid.UUID{1}) {
				return p.status, operatorapi.Refuse("there is no erasure %s", in.ID)
			}
			if p.step(); p.Rounds > 0 {
				p.status.Erased = &p.Erased
			}
			return p.status, p.Refuse
		}))
}

func (p *People) step() {
	s := &p.status
	switch {
	case p.Failure != "":
		s.Failure = p.Failure
	case p.Points > 0 && p.Rounds == domain.Rounds:
		s.WroteAgain, s.Phase = true, domain.Done
	case p.Points > 0:
		n := min(p.Points, 2)
		s.Receipts = append(s.Receipts, domain.Receipt{OperationID: uuid.UUID{1}, DataPoints: n})
		s.Phase, p.Points = domain.Deleting, p.Points-n
	case s.Phase == domain.Checking && p.Waits > 0:
		s.Uncleaned, s.Waits = p.Waits, true
	case s.Phase == domain.Checking && !p.Record:
		s.Phase = domain.Done
	default:
		s.Record, s.Called, s.Calls = s.Record || p.Record, s.Called || p.NamedIn > 0, s.Calls+p.NamedIn+p.Logged
		p.Record, p.NamedIn, p.Logged = false, 0, 0
		s.Phase, p.Points, p.Rounds = domain.Checking, p.Writes, p.Rounds+1
	}
}
