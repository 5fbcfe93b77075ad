package recall

import (
	"context"

	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/projections/embeddings"
)

// nearest is the semantic search of a recall. It runs in parallel with the search by words and the look-up of what that
// found: to encode the query takes as long as both.
type nearest struct {
	cancel context.CancelFunc
	done   chan struct{}
	found  *embeddings.Found
	err    error
}

// startNearest starts the semantic search, if the service has one. The caller must stop it.
func (s *Service) startNearest(ctx context.Context, question *question) *nearest {
	ctx, cancel := context.WithCancel(ctx)
	n := &nearest{cancel: cancel, done: make(chan struct{})}
	if s.config.Semantic == nil {
		close(n.done)
		return n
	}
	q := embeddings.Query{
		Project: question.Project.ID, Audiences: question.Audiences, From: question.From, To: question.until(),
		Size: maxSemantic,
	}
	text := question.Text
	go func() {
		defer close(n.done)
		n.err = panics.Call(ctx, s.config.Log, "search panicked", func() error {
			n.found = s.config.Semantic.Find(ctx, q, text)
			return nil
		}, "part", "semantic")
	}()
	return n
}

// wait returns what was found, nil if there is no semantic search now. The error is that of a panic.
func (n *nearest) wait() (*embeddings.Found, error) {
	<-n.done
	return n.found, n.err
}

// stop ends the search.
func (n *nearest) stop() {
	n.cancel()
	<-n.done
}
