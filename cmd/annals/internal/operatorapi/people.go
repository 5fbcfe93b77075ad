package operatorapi

import (
	"context"
	"errors"
	"net/http"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/erasure"
	"github.com/annals-project/annals/internal/erasures"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/internal/work"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/access"
)

// The operations that erase a person. ErasePerson begins a process that the service continues by itself, or finds the
// one that erases the person already; PersonErasure returns its state.
var (
	FindPerson    = Operation[PersonRequest, erasure.Person]{http.MethodPost, "/operator/people/find"}
	ErasePerson   = Operation[PersonRequest, PersonErasureID]{http.MethodPost, "/operator/people/erase"}
	PersonErasure = Operation[PersonErasureID, PersonStatus]{http.MethodPost, "/operator/people/status"}
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

// PersonStatus is the state of an erasure of a person. Erased is what the last purge did, nil before it and if another
// process erases.
type PersonStatus struct {
	erasure.PersonStatus
	Erased *erasure.Report `json:"erased"`
}

// People serves the operations.
type People struct {
	Erasing  *erasure.People
	Projects interface {
		OnlyProject(ctx context.Context, organization, slug string) (access.Project, error)
	}
	Head projections.Head
	// Pending counts what this process has yet to erase; nil if another one erases.
	Pending func(context.Context) (work.Open, error)
}

// Routes returns the routes of the operations.
func (p People) Routes() []Route {
	return []Route{FindPerson.Serve(p.find), ErasePerson.Serve(p.erase), PersonErasure.Serve(p.status)}
}

// project finds the project of a request, once the tables show the head of the log.
func (p People) project(ctx context.Context, in PersonRequest) (access.Project, error) {
	if in.Identity == "" {
		return access.Project{}, &refusedError{errInvalid, "an identity must be named"}
	}
	if _, err := p.Head.Await(ctx, projection.Access); err != nil {
		return access.Project{}, err
	}
	return p.Projects.OnlyProject(ctx, in.Organization, in.Project)
}

func (p People) find(ctx context.Context, in PersonRequest) (out erasure.Person, err error) {
	project, err := p.project(ctx, in)
	if err != nil {
		return out, err
	}
	return p.Erasing.Find(ctx, project.Project, in.Identity)
}

func (p People) erase(ctx context.Context, in PersonRequest) (out PersonErasureID, err error) {
	project, err := p.project(ctx, in)
	if err != nil {
		return out, err
	}
	out.Project = project.ID
	out.ID, err = p.Erasing.Start(ctx, erasures.Person{
		ProjectID: project.ID, Identity: in.Identity, By: in.By,
	})
	if errors.Is(err, erasures.ErrTooMany) {
		err = Refuse("%s", err)
	}
	return out, err
}

func (p People) status(ctx context.Context, in PersonErasureID) (out PersonStatus, err error) {
	found := false
	out.PersonStatus, found, err = p.Erasing.Status(ctx, in.Project, in.ID)
	if err == nil && !found {
		err = Refuse("the project has no erasure %s", in.ID)
	}
	if err != nil || out.Purge == nil || p.Pending == nil {
		return out, err
	}
	open, err := p.Pending(ctx)
	did := out.Purge
	out.Erased = &erasure.Report{
		Deletions: did.Deletions, Identities: did.Identities, Streams: did.Streams, Blobs: did.Blobs,
		Tables: did.Tables, Indexes: did.Indexes, Store: did.Store, Left: open,
	}
	return out, err
}
