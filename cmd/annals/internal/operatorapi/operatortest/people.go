package operatortest

import (
	"context"

	"github.com/google/uuid"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/commands/erasure"
	domain "github.com/annals-project/annals/domain/erasure"
)

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
