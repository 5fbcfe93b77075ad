package commands

import (
	"context"
	"sync"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

// registryReader folds the registry and caches the state. The stream grows with projects, not with
// use.
type registryReader struct {
	journal *Journal
	mu      sync.Mutex
	state   registry.State
}

// read returns the registry as of now.
func (r *registryReader) read(ctx context.Context) (registry.State, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	events, err := r.journal.ReadFrom(ctx, stream.Registry, eventstore.Revision(r.state.Events))
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

// readHead is read for a decision.
func (r *registryReader) readHead(ctx context.Context) (registry.State, head, error) {
	state, err := r.read(ctx)
	return state, headAfter(state.Events), err
}

// projectBySlug finds a live or archived project of an organization in the log.
func (r *registryReader) projectBySlug(
	ctx context.Context, organization uuid.UUID, slug string,
) (registry.ProjectCreated, bool, error) {
	state, err := r.read(ctx)
	if err != nil {
		return registry.ProjectCreated{}, false, err
	}
	p, ok := state.Project(organization, slug)
	return p, ok, nil
}
