package recall

import (
	"bytes"
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"
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
	// sourceScores and memoryScores are of the hits, in their order.
	sourceScores, memoryScores []float64
	// order is the data points that were found, the most promising first.
	order  []uuid.UUID
	places map[uuid.UUID]place
}

// place is where a data point may come at best: the most that it can be ranked by, and before others of that since when.
type place struct {
	score float64
	day   int
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
	f.arrange()
	return f, nil
}

// arrange scores the hits and puts their data points into order.
func (f *found) arrange() {
	f.sourceScores, f.memoryScores = make([]float64, len(f.sources.Hits)), make([]float64, len(f.memories.Hits))
	f.places = make(map[uuid.UUID]place, len(f.sources.Hits)+len(f.memories.Hits))
	add := func(id uuid.UUID, score float64, day int) {
		best, known := f.places[id]
		if !known {
			f.order = append(f.order, id)
			best.day = day
		}
		f.places[id] = place{max(best.score, score), min(best.day, day)}
	}
	for i, h := range f.sources.Hits {
		f.sourceScores[i] = score(f.weights, h.Counts, h.Length)
		add(h.DataPoint, f.sourceScores[i], h.Day)
	}
	for i, h := range f.memories.Hits {
		f.memoryScores[i] = score(f.memoryWeights, h.Counts, h.Length)
		// The source of a memory may have another time.
		add(h.DataPoint, mostWorth*f.memoryScores[i], math.MinInt)
	}
	slices.SortFunc(f.order, func(a, b uuid.UUID) int {
		x, y := f.places[a], f.places[b]
		return cmp.Or(cmp.Compare(y.score, x.score), cmp.Compare(x.day, y.day), bytes.Compare(a[:], b[:]))
	})
}

// floor bounds the places of all but the first n data points; nil where there are no more.
func (f *found) floor(n int) *recall.Floor {
	if n >= len(f.order) {
		return nil
	}
	p := f.places[f.order[n]]
	if p.day == math.MinInt {
		return &recall.Floor{Score: p.score}
	}
	return &recall.Floor{Score: p.score, From: time.Unix(int64(p.day)*24*60*60, 0)}
}
