package commands

import (
	"context"
	"sync"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

// registryReader folds the registry, remembering where it stood: the stream grows with projects, not with use.
type registryReader struct {
	log   *Log
	mu    sync.Mutex
	state registry.State
}

// read is the registry as of now.
func (r *registryReader) read(ctx context.Context) (registry.State, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	facts, err := r.log.ReadFrom(ctx, stream.Registry, eventstore.Revision(r.state.Events))
	if err != nil {
		return registry.State{}, err
	}
	state := r.state.Clone()
	for _, f := range facts {
		state.Evolve(f.Event)
	}
	r.state = state
	return state.Clone(), nil
}

// projectBySlug finds a live or archived project of an organization at the leader.
func (r *registryReader) projectBySlug(ctx context.Context, organization uuid.UUID, slug string) (registry.ProjectCreated, bool, error) {
	state, err := r.read(ctx)
	if err != nil {
		return registry.ProjectCreated{}, false, err
	}
	p, ok := state.Project(organization, slug)
	return p, ok, nil
}
