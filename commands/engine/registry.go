package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

// RegistryReader folds the registry and caches the state. The stream grows with projects, not with
// use.
type RegistryReader struct {
	Journal *Journal
	mu      sync.Mutex
	state   registry.State
}

// Read returns the registry as of now.
func (r *RegistryReader) Read(ctx context.Context) (registry.State, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	events, err := r.Journal.ReadFrom(ctx, stream.Registry, eventstore.Revision(r.state.Events))
	if err != nil {
		return registry.State{}, err
	}
	state := r.state.Clone()
	for _, f := range events {
		state.Evolve(f.Event)
	}
	r.state = state
	return state.Clone(), nil
}

// ReadHead is read for a decision.
func (r *RegistryReader) ReadHead(ctx context.Context) (registry.State, Head, error) {
	state, err := r.Read(ctx)
	return state, HeadAfter(state.Events), err
}

// ProjectBySlug finds a live or archived project of an organization in the log.
func (r *RegistryReader) ProjectBySlug(
	ctx context.Context, organization uuid.UUID, slug string,
) (registry.ProjectCreated, bool, error) {
	state, err := r.Read(ctx)
	if err != nil {
		return registry.ProjectCreated{}, false, err
	}
	p, ok := state.Project(organization, slug)
	return p, ok, nil
}

// registered caches what never changes of the projects and organizations of the registry. The zero value is empty.
type registered struct {
	mu       sync.Mutex
	projects map[uuid.UUID]KnownProject
	owners   map[uuid.UUID]uuid.UUID // of each organization when it was created, zero for none
	next     eventstore.Revision     // of the registry
}

// KnownProject is what never changes of a project.
type KnownProject struct {
	Namespace    uuid.UUID // as the log stores it
	Organization uuid.UUID
}

// ProjectOf returns what the registry has of a project. ok is false if it has no such project.
func (l *Journal) ProjectOf(ctx context.Context, project uuid.UUID) (KnownProject, bool, error) {
	return knownOf(ctx, l, project, func(r *registered) map[uuid.UUID]KnownProject { return r.projects })
}

// CreatorOf returns the owner that an organization was created with, zero for none.
func (l *Journal) CreatorOf(ctx context.Context, organization uuid.UUID) (uuid.UUID, error) {
	owner, _, err := knownOf(ctx, l, organization, func(r *registered) map[uuid.UUID]uuid.UUID { return r.owners })
	return owner, err
}

// knownOf finds an id in one of the maps, and reads what the registry has since if it is not there.
func knownOf[T any](
	ctx context.Context, l *Journal, id uuid.UUID, of func(*registered) map[uuid.UUID]T,
) (found T, ok bool, err error) {
	r := &l.registered
	r.mu.Lock()
	defer r.mu.Unlock()
	if found, ok = of(r)[id]; ok {
		return found, true, nil
	}
	events, err := l.ReadFrom(ctx, stream.Registry, r.next)
	if err != nil {
		return found, false, err
	}
	if r.projects == nil {
		r.projects, r.owners = make(map[uuid.UUID]KnownProject), make(map[uuid.UUID]uuid.UUID)
	}
	for _, f := range events {
		switch e := f.Event.(type) {
		case *registry.ProjectCreated:
			r.projects[e.ProjectID] = KnownProject{e.Namespace, e.OrganizationID}
		case *registry.OrganizationCreated:
			r.owners[e.OrganizationID] = e.OwnerID
		}
		r.next = f.Revision + 1
	}
	found, ok = of(r)[id]
	return found, ok, nil
}

// NamespaceOf returns the namespace of a project. ok is false if the registry has no such project.
func (l *Journal) NamespaceOf(ctx context.Context, project uuid.UUID) (namespace uuid.UUID, ok bool, err error) {
	p, ok, err := l.ProjectOf(ctx, project)
	if err != nil || !ok {
		return uuid.Nil, false, err
	}
	namespace, err = l.Namespaces.Of(p.Namespace)
	return namespace, err == nil, err
}

// AuthorID returns the identity record of an author, zero if there is none. A project that the
// registry does not know has no records.
func (l *Journal) AuthorID(ctx context.Context, project uuid.UUID, author string) (uuid.UUID, error) {
	if author == "" {
		return uuid.Nil, nil
	}
	namespace, ok, err := l.NamespaceOf(ctx, project)
	if err != nil || !ok {
		return uuid.Nil, err
	}
	return stream.IdentityID(namespace, author), nil
}

// ErrNoProject is returned for a project that the registry does not have.
var ErrNoProject = errors.New("the registry has no such project")

// OrganizationOf returns the organization of a project. It is ErrNoProject if the registry does not know the
// project.
func (l *Journal) OrganizationOf(ctx context.Context, project uuid.UUID) (uuid.UUID, error) {
	p, ok, err := l.ProjectOf(ctx, project)
	if err == nil && !ok {
		err = fmt.Errorf("project %s: %w", project, ErrNoProject)
	}
	return p.Organization, err
}

// ReadOrganization folds the stream of an organization.
func ReadOrganization(ctx context.Context, l *Journal, id uuid.UUID) (organization.State, error) {
	state, _, err := Fold[organization.State](ctx, l, stream.Name(stream.Organization, id))
	return state, err
}

// DecideOrganization decides on an organization. The position is that of its last event.
func (l *Journal) DecideOrganization(
	ctx context.Context, id uuid.UUID, meta func() event.Meta, decide func(organization.State) ([]event.Event, error),
) (eventstore.Position, error) {
	name := stream.Name(stream.Organization, id)
	done, err := Decide(ctx, l, Decision[organization.State]{
		Stream: name, Read: Folded[organization.State](l, name), Meta: meta,
		Decide: func(_ context.Context, state organization.State) ([]event.Event, error) { return decide(state) },
	})
	return done.Position, err
}
