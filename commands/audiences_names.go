package commands

import (
	"context"
	"sync"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/lru"
)

// audienceReader folds the audiences of projects and caches the last state of each. A stream grows
// with definitions, not with use. A returned state is never changed.
type audienceReader struct {
	journal *Journal
	mu      sync.Mutex
	known   *lru.Map[uuid.UUID, *audience.State]
	// audiences is how many the cached states have together.
	audiences int
}

// The bounds of the cache. What is evicted is folded again. An audience takes at most about a KiB.
const (
	maxAudienceProjects = 1000
	maxKnownAudiences   = 50_000
)

func newAudienceReader(log *Journal) *audienceReader {
	return &audienceReader{journal: log, known: lru.New[uuid.UUID, *audience.State](maxAudienceProjects)}
}

// read returns the audiences of a project as of now. It caches what was folded before an error, so
// that a stream of any length is read in the end.
func (r *audienceReader) read(ctx context.Context, project uuid.UUID) (*audience.State, error) {
	r.mu.Lock()
	state, ok := r.known.Get(project)
	r.mu.Unlock()
	if !ok {
		state = &audience.State{}
	}
	next, err := r.fold(ctx, project, state)
	if next.Events > state.Events {
		r.remember(project, next)
	}
	return next, err
}

// fold returns the state up to the last event that could be read.
func (r *audienceReader) fold(ctx context.Context, project uuid.UUID, state *audience.State) (*audience.State, error) {
	shared := true
	name, from := stream.Name(stream.Audiences, project), eventstore.Revision(state.Events)
	err := r.journal.Scan(ctx, name, from, func(f eventstore.DecodedEvent) (bool, error) {
		if shared {
			own := state.Clone()
			state, shared = &own, false
		}
		state.Evolve(f.Event)
		return true, nil
	})
	return state, err
}

func (r *audienceReader) remember(project uuid.UUID, state *audience.State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known, ok := r.known.Get(project); ok {
		if known.Events >= state.Events {
			return
		}
		r.audiences -= known.Len()
		r.known.Remove(project)
	}
	r.audiences += state.Len()
	for r.known.Len() > 0 && (r.known.Len() >= maxAudienceProjects || r.audiences > maxKnownAudiences) {
		_, evicted, _ := r.known.RemoveOldest()
		r.audiences -= evicted.Len()
	}
	r.known.Add(project, state)
}

// audienceNames finds the audiences that the items of one call name, all in one state, which is
// read for the first name.
type audienceNames struct {
	reader  *audienceReader
	project uuid.UUID
	state   *audience.State
}

// audienceNames finds the audiences of the project of a call.
func (s *Service) audienceNames(call Call) *audienceNames {
	return &audienceNames{reader: s.audiences, project: call.Principal.Project.ID}
}

// id returns the id of the audience that a slug names, zero for project-visible. The fault is
// audience-unknown.
func (n *audienceNames) id(ctx context.Context, slug *string) (uuid.UUID, error) {
	if slug == nil || *slug == audience.Default {
		return uuid.Nil, nil
	}
	if n.state == nil && audience.ValidSlug(*slug) {
		var err error
		if n.state, err = n.reader.read(ctx, n.project); err != nil {
			return uuid.Nil, err
		}
	}
	if n.state != nil {
		if found, ok := n.state.Find(*slug); ok {
			return found.ID, nil
		}
	}
	unknown := fault.New(fault.Invalid, fault.CodeAudienceUnknown, "the project has no audience %q", *slug)
	return uuid.Nil, unknown.With("audience", *slug)
}
