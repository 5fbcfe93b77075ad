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

// audienceReader folds the audiences of projects at the leader, remembering where each stood: a stream grows with definitions, not
// with use. A state that was handed out is never changed.
type audienceReader struct {
	log   *Log
	mu    sync.Mutex
	known map[uuid.UUID]*audience.State
}

// maxAudienceProjects bounds the memory; what is forgotten is folded again.
const maxAudienceProjects = 1000

func newAudienceReader(log *Log) *audienceReader {
	return &audienceReader{log: log, known: make(map[uuid.UUID]*audience.State)}
}

// read is the audiences of a project as of now.
func (r *audienceReader) read(ctx context.Context, project uuid.UUID) (*audience.State, error) {
	r.mu.Lock()
	state := r.known[project]
	r.mu.Unlock()
	if state == nil {
		state = &audience.State{}
	}
	facts, err := r.log.ReadFrom(ctx, stream.Name(stream.Audiences, project), eventstore.Revision(state.Events))
	if err != nil || len(facts) == 0 {
		return state, err
	}
	next := state.Clone()
	for _, f := range facts {
		next.Evolve(f.Event)
	}
	r.keep(project, &next)
	return &next, nil
}

func (r *audienceReader) keep(project uuid.UUID, state *audience.State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.known[project]; known != nil && known.Events >= state.Events {
		return
	}
	makeRoom(r.known, maxAudienceProjects)
	r.known[project] = state
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
