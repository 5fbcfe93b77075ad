package commands

import (
	"context"
	"sync"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

// namespaces caches the namespaces of projects by id. A namespace never changes. The zero value is
// empty.
type namespaces struct {
	mu    sync.Mutex
	known map[uuid.UUID]uuid.UUID
	next  eventstore.Revision // of the registry
}

// namespaceOf returns the namespace of a project. ok is false if the registry has no such project.
func (l *Journal) namespaceOf(ctx context.Context, project uuid.UUID) (namespace uuid.UUID, ok bool, err error) {
	n := &l.namespaces
	n.mu.Lock()
	defer n.mu.Unlock()
	if namespace, ok = n.known[project]; ok {
		return namespace, true, nil
	}
	events, err := l.ReadFrom(ctx, stream.Registry, n.next)
	if err != nil {
		return uuid.Nil, false, err
	}
	if n.known == nil {
		n.known = make(map[uuid.UUID]uuid.UUID)
	}
	for _, f := range events {
		if e, created := f.Event.(*registry.ProjectCreated); created {
			if n.known[e.ProjectID], err = l.Namespaces.Of(e.Namespace); err != nil {
				return uuid.Nil, false, err
			}
		}
		n.next = f.Revision + 1
	}
	namespace, ok = n.known[project]
	return namespace, ok, nil
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
