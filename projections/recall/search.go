package recall

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/projections/recallindex"
)

// question is a query with its terms and how many candidates of each part the index is asked for.
type question struct {
	Query
	terms             []string
	sources, memories int
}

// found is what the index answered.
type found struct {
	sources, memories recallindex.Found
	// weights rank a passage, memoryWeights a line.
	weights, memoryWeights recall.Weights
}

// more says whether the index may hold more sources than it was asked for.
func (f *found) more(ask *question) bool { return len(f.sources.Hits) >= ask.sources }

// search asks the index for both parts at once.
func (s *Service) search(ctx context.Context, ask *question) (*found, error) {
	f := new(found)
	if len(ask.terms) == 0 {
		return f, nil
	}
	to := ask.At
	if ask.To != nil && (to == nil || ask.To.Before(*to)) {
		to = ask.To
	}
	query := recallindex.Query{Project: ask.Project.ID, Terms: ask.terms, Audiences: ask.Audiences, From: ask.From, To: to}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		q := query
		q.Part, q.Size = recallindex.Sources, ask.sources
		f.sources, err = s.config.Index.Search(ctx, q)
		return err
	})
	group.Go(func() (err error) {
		q := query
		q.Part, q.Size = recallindex.Memories, ask.memories
		f.memories, err = s.config.Index.Search(ctx, q)
		return err
	})
	if err := group.Wait(); err != nil {
		return nil, err
	}
	f.weights = f.sources.Statistics.Weights()
	f.memoryWeights = f.sources.Statistics.OfMemories(f.memories.Statistics).Weights()
	return f, nil
}
