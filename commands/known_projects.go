package commands

import (
	"context"
	"fmt"
	"sync"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

// projects caches what never changes of the projects of the registry. The zero value is empty.
type projects struct {
	mu    sync.Mutex
	known map[uuid.UUID]knownProject
	next  eventstore.Revision // of the registry
}

type knownProject struct {
	namespace    uuid.UUID // as the log stores it
	organization uuid.UUID
}

// projectOf returns what the registry has of a project. ok is false if it has no such project.
func (l *Journal) projectOf(ctx context.Context, project uuid.UUID) (p knownProject, ok bool, err error) {
	n := &l.projects
	n.mu.Lock()
	defer n.mu.Unlock()
	if p, ok = n.known[project]; ok {
		return p, true, nil
	}
	events, err := l.ReadFrom(ctx, stream.Registry, n.next)
	if err != nil {
		return p, false, err
	}
	if n.known == nil {
		n.known = make(map[uuid.UUID]knownProject)
	}
	for _, f := range events {
		if e, created := f.Event.(*registry.ProjectCreated); created {
			n.known[e.ProjectID] = knownProject{e.Namespace, e.OrganizationID}
		}
		n.next = f.Revision + 1
	}
	p, ok = n.known[project]
	return p, ok, nil
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

// OrganizationOf returns the organization of a project. It fails if the registry does not know the
// project.
func (l *Journal) OrganizationOf(ctx context.Context, project uuid.UUID) (uuid.UUID, error) {
	p, ok, err := l.projectOf(ctx, project)
	if err == nil && !ok {
		err = fmt.Errorf("the registry has no project %s", project)
	}
	return p.organization, err
}
