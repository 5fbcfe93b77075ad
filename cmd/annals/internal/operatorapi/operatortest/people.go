package operatortest

import (
	"context"

	"github.com/google/uuid"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
)

// People is a service with one person, who may go on writing.
type People struct {
	Eraser
	// Points and Record are what the project holds of the person, NamedIn how many calls name the person, and Logged how
	// many others the request log holds.
	Points, NamedIn, Logged int
	Record                  bool
	// Writes is how many data points the person writes after each deletion.
	Writes int
}

// Routes are the operations on the person, and those of erasure.
func (p *People) Routes() []operatorapi.Route {
	return append(p.Eraser.Routes(),
		operatorapi.FindPerson.Serve(func(context.Context, operatorapi.PersonRequest) (operatorapi.Person, error) {
			return operatorapi.Person{Newest: p.Points, HasRecord: p.Record, Position: 7}, nil
		}),
		operatorapi.DeletePerson.Serve(func(context.Context, operatorapi.PersonRequest) (operatorapi.DeletedPerson, error) {
			out := operatorapi.DeletedPerson{Receipts: []operatorapi.PersonReceipt{}}
			if p.Points > 0 {
				n := min(p.Points, 2)
				out.Receipts = append(out.Receipts, operatorapi.PersonReceipt{OperationID: uuid.UUID{1}, DataPoints: n})
				p.Points -= n
				out.More = p.Points > 0
			}
			if !out.More {
				p.Points += p.Writes
			}
			return out, nil
		}),
		operatorapi.ForgetPerson.Serve(func(context.Context, operatorapi.PersonRequest) (operatorapi.ForgottenPerson, error) {
			out := operatorapi.ForgottenPerson{Record: p.Record, Calls: p.NamedIn + p.Logged, Called: p.NamedIn > 0}
			p.Record, p.NamedIn, p.Logged = false, 0, 0
			return out, nil
		}))
}
