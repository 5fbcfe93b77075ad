package commands

import (
	"context"
	"sync"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

// audienceReader folds the audiences of projects at the leader, remembering the last state of each: a stream grows with definitions,
// not with use. A state that was handed out is never changed.
type audienceReader struct {
	log   *Log
	mu    sync.Mutex
	known map[uuid.UUID]*audience.State
	// audiences is how many are known of all projects.
	audiences int
}

// The bounds of the memory; what is forgotten is folded again. An audience takes at most about a KiB.
const (
	maxAudienceProjects = 1000
	maxKnownAudiences   = 50_000
)

func newAudienceReader(log *Log) *audienceReader {
	return &audienceReader{log: log, known: make(map[uuid.UUID]*audience.State)}
}

// read is the audiences of a project as of now. What was folded before an error is remembered, so that a stream of any length ends.
func (r *audienceReader) read(ctx context.Context, project uuid.UUID) (*audience.State, error) {
	r.mu.Lock()
	state := r.known[project]
	r.mu.Unlock()
	if state == nil {
		state = &audience.State{}
	}
	next, err := r.fold(ctx, project, state)
	if next.Events > state.Events {
		r.keep(project, next)
	}
	return next, err
}

// fold returns the state up to the last event that could be read.
func (r *audienceReader) fold(ctx context.Context, project uuid.UUID, state *audience.State) (*audience.State, error) {
	shared := true
	err := r.log.Scan(ctx, stream.Name(stream.Audiences, project), eventstore.Revision(state.Events), func(f eventstore.Fact) (bool, error) {
		if shared {
			own := state.Clone()
			state, shared = &own, false
		}
		state.Evolve(f.Event)
		return true, nil
	})
	return state, err
}

func (r *audienceReader) keep(project uuid.UUID, state *audience.State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.known[project]
	if known != nil {
		if known.Events >= state.Events {
			return
		}
		r.audiences -= known.Len()
		delete(r.known, project)
	}
	for other, s := range r.known { // any: the project that asks again is folded again
		if len(r.known) < maxAudienceProjects && r.audiences+state.Len() <= maxKnownAudiences {
			break
		}
		r.audiences -= s.Len()
		delete(r.known, other)
	}
	r.known[project] = state
	r.audiences += state.Len()
}

// audienceNames finds the audiences that the items of one call name: all of them in one state, read when the first is asked for.
type audienceNames struct {
	reader  *audienceReader
	project uuid.UUID
	state   *audience.State
}

// audienceNames are those of the project that a call is about.
func (s *Service) audienceNames(call Call) *audienceNames {
	return &audienceNames{reader: s.audiences, project: call.Principal.Project.ID}
}

// id is the id of the audience that a slug names: zero for project-visible. The fault is audience-unknown.
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
	return uuid.Nil, fault.New(fault.Invalid, fault.CodeAudienceUnknown, "the project has no audience %q", *slug).With("audience", *slug)
}
