package commands

import (
	"context"
	"fmt"
	"sync"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/erasure"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

// registered caches what never changes of the projects and organizations of the registry. The zero value is empty.
type registered struct {
	mu       sync.Mutex
	projects map[uuid.UUID]knownProject
	owners   map[uuid.UUID]uuid.UUID // of each organization when it was created, zero for none
	next     eventstore.Revision     // of the registry
}

type knownProject struct {
	namespace    uuid.UUID // as the log stores it
	organization uuid.UUID
}

// projectOf returns what the registry has of a project. ok is false if it has no such project.
func (l *Journal) projectOf(ctx context.Context, project uuid.UUID) (knownProject, bool, error) {
	return knownOf(ctx, l, project, func(r *registered) map[uuid.UUID]knownProject { return r.projects })
}

// creatorOf returns the owner that an organization was created with, zero for none.
func (l *Journal) creatorOf(ctx context.Context, organization uuid.UUID) (uuid.UUID, error) {
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
		r.projects, r.owners = make(map[uuid.UUID]knownProject), make(map[uuid.UUID]uuid.UUID)
	}
	for _, f := range events {
		switch e := f.Event.(type) {
		case *registry.ProjectCreated:
			r.projects[e.ProjectID] = knownProject{e.Namespace, e.OrganizationID}
		case *registry.OrganizationCreated:
			r.owners[e.OrganizationID] = e.OwnerID
		}
		r.next = f.Revision + 1
	}
	found, ok = of(r)[id]
	return found, ok, nil
}

// namespaceOf returns the namespace of a project. ok is false if the registry has no such project.
func (l *Journal) namespaceOf(ctx context.Context, project uuid.UUID) (namespace uuid.UUID, ok bool, err error) {
	p, ok, err := l.projectOf(ctx, project)
	if err != nil || !ok {
		return uuid.Nil, false, err
	}
	namespace, err = l.Namespaces.Of(p.namespace)
	return namespace, err == nil, err
}

// AuthorID returns the identity record of an author, zero if there is none. A project that the
// registry does not know has no records.
func (l *Journal) AuthorID(ctx context.Context, project uuid.UUID, author string) (uuid.UUID, error) {
	if author == "" {
		return uuid.Nil, nil
	}
	namespace, ok, err := l.namespaceOf(ctx, project)
	if err != nil || !ok {
		return uuid.Nil, err
	}
	return stream.IdentityID(namespace, author), nil
}

// OrganizationOf returns the organization of a project. It is erasure.ErrNoProject if the registry does not know the
// project.
func (l *Journal) OrganizationOf(ctx context.Context, project uuid.UUID) (uuid.UUID, error) {
	p, ok, err := l.projectOf(ctx, project)
	if err == nil && !ok {
		err = fmt.Errorf("project %s: %w", project, erasure.ErrNoProject)
	}
	return p.organization, err
}
