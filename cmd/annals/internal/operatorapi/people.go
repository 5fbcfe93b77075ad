package operatorapi

import (
	"context"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/erasure"
	"github.com/annals-project/annals/internal/erasures"
	"github.com/annals-project/annals/projections/access"
)

// The operations that erase a person. ErasePerson begins a process that the service continues by itself, or finds the
// one that erases the person already; PersonErasure returns its state.
var (
	FindPerson    = Operation[PersonRequest, erasure.Person]{http.MethodPost, "/operator/people/find"}
	ErasePerson   = Operation[PersonRequest, PersonErasureID]{http.MethodPost, "/operator/people/erase"}
	PersonErasure = Operation[PersonErasureID, erasure.PersonStatus]{http.MethodPost, "/operator/people/status"}
)

// PersonRequest names an identity of a project. Target.Organization is a name or an id, "" for any.
type PersonRequest struct {
	Target
	Project  string `json:"project"`
	Identity string `json:"identity"`
}

// PersonErasureID names an erasure of a person.
type PersonErasureID struct {
	Project uuid.UUID `json:"project"`
	ID      uuid.UUID `json:"id"`
}

// PeopleRoutes returns the routes of the operations.
func PeopleRoutes(people *erasure.People, of access.Tenancy, now func() time.Time) []Route {
	return []Route{
		FindPerson.Serve(func(ctx context.Context, in PersonRequest) (erasure.Person, error) {
			project, err := of.Project(ctx, in.Organization, in.Project)
			if err != nil {
				return erasure.Person{}, err
			}
			return people.Find(ctx, project.ID, in.Identity)
		}),
		ErasePerson.ServeAs(now, func(
			ctx context.Context, call caller, in PersonRequest,
		) (out PersonErasureID, err error) {
			project, err := of.Project(ctx, in.Organization, in.Project)
			if err != nil {
				return out, err
			}
			out.Project = project.ID
			out.ID, err = people.Start(ctx, erasures.Person{
				ProjectID: project.ID, Identity: in.Identity, By: call.Principal.Name(),
			})
			return out, err
		}),
		PersonErasure.Serve(func(ctx context.Context, in PersonErasureID) (erasure.PersonStatus, error) {
			return people.Status(ctx, in.Project, in.ID)
		}),
	}
}
