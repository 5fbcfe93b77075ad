package recall

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/projections/embeddings"
	"github.com/annals-project/annals/projections/recallindex"
)

// question is a query, what it asks for, and how many candidates of each part the index is asked for.
type question struct {
	Query
	asked             recall.Question
	terms             []string
	own               int
	sources, memories int
	// near is what is nearest in meaning, once it was asked for.
	near []embeddings.Hit
	felt bool
}

// mostNear is how many data points are looked at because of what they mean.
const mostNear = 200

func (s *Service) newQuestion(q Query, now time.Time) question {
	if q.At != nil {
		now = *q.At
	}
	asked := s.config.Analyzer.Question(q.Text, q.Identity, now)
	return question{
		Query: q, asked: asked, terms: asked.Texts(), own: asked.Own(),
		sources: max(firstSources, 3*q.Limit), memories: max(firstMemories, q.Limit),
	}
}

// found is what the index answered.
type found struct {
	sources, memories recallindex.Found
	// weights rank a passage, chooseBy chooses those that are ranked, memoryWeights rank a line.
	weights, chooseBy, memoryWeights recall.Weights
	// sourceScores and memoryScores are of the hits, in their order.
	sourceScores, memoryScores []float64
	// order is the data points that were found, the most promising first, which is told by the score of their best document.
	order  []uuid.UUID
	scores map[uuid.UUID]float64
	// near is what was found by its meaning.
	near map[uuid.UUID]embeddings.Hit
}

// more says whether the index may hold more sources than it was asked for.
func (f *found) more(ask *question) bool { return len(f.sources.Hits) >= ask.sources }

// search asks the index for both parts at once.
func (s *Service) search(ctx context.Context, ask *question) (*found, error) {
	f := new(found)
	if len(ask.terms) == 0 && s.config.Meaning == nil {
		return f, nil
	}
	to := ask.At
	if ask.To != nil && (to == nil || ask.To.Before(*to)) {
		to = ask.To
	}
	query := recallindex.Query{Project: ask.Project.ID, Terms: ask.terms, Own: ask.own, Audiences: ask.Audiences, From: ask.From, To: to}
	group, ctx := errgroup.WithContext(ctx)
	// run starts a part of the search. Its panic is an error of this recall.
	run := func(what string, search func() error) {
		group.Go(func() error { return panics.Call(ctx, s.config.Log, "search panicked", search, "part", what) })
	}
	if s.config.Meaning != nil && !ask.felt {
		ask.felt = true
		run("meaning", func() error {
			ask.near = s.config.Meaning.Near(ctx, embeddings.Query{Project: ask.Project.ID, Audiences: ask.Audiences, From: ask.From, To: to, Size: mostNear}, ask.Text)
			return nil
		})
	}
	run("sources", func() (err error) {
		q := query
		q.Part, q.Size = recallindex.Sources, ask.sources
		f.sources, err = s.config.Index.Search(ctx, q)
		return err
	})
	run("memories", func() (err error) {
		q := query
		// A line of memory is a key to its source by the very words of the query only.
		q.Part, q.Size, q.Terms = recallindex.Memories, ask.memories, ask.terms[:ask.own]
		f.memories, err = s.config.Index.Search(ctx, q)
		return err
	})
	if err := group.Wait(); err != nil {
		return nil, err
	}
	f.weights = f.sources.Statistics.Weights()
	f.chooseBy = f.weights.Lessened(ask.own)
	f.memoryWeights = f.sources.Statistics.OfMemories(f.memories.Statistics).Weights()
	f.arrange()
	f.feel(ask)
	f.sort()
	return f, nil
}

// arrange scores the hits and lists their data points.
func (f *found) arrange() {
	f.sourceScores, f.memoryScores = make([]float64, len(f.sources.Hits)), make([]float64, len(f.memories.Hits))
	f.scores = make(map[uuid.UUID]float64, len(f.sources.Hits)+len(f.memories.Hits))
	add := func(id uuid.UUID, score float64) {
		best, known := f.scores[id]
		if !known {
			f.order = append(f.order, id)
		}
		f.scores[id] = max(best, score)
	}
	for i, h := range f.sources.Hits {
		f.sourceScores[i] = f.chooseBy.Score(h.Counts, h.Length)
		add(h.DataPoint, f.sourceScores[i])
	}
	for i, h := range f.memories.Hits {
		f.memoryScores[i] = f.memoryWeights.Score(h.Counts, h.Length)
		add(h.DataPoint, mostWorth*f.memoryScores[i])
	}
}

// feel adds what is near in meaning to what was found by words.
func (f *found) feel(ask *question) {
	if len(ask.near) == 0 {
		return
	}
	f.near = make(map[uuid.UUID]embeddings.Hit, len(ask.near))
	usual := recall.MeaningWeight * f.weights.Usual(ask.own)
	for _, h := range ask.near {
		f.near[h.DataPoint] = h
		score, known := f.scores[h.DataPoint]
		if !known {
			f.order = append(f.order, h.DataPoint)
		}
		f.scores[h.DataPoint] = score + usual*h.Similarity
	}
}

// meaning is how near a data point is that passed the gate; vectors of a revision that stands no more say nothing.
func (f *found) meaning(id uuid.UUID, p *point) float64 {
	if h, near := f.near[id]; near && h.Revision == p.revision {
		return h.Similarity
	}
	return 0
}

// sort puts the data points that were found into order, the most promising first.
func (f *found) sort() {
	type scored struct {
		id    uuid.UUID
		score float64
	}
	order := make([]scored, len(f.order))
	for i, id := range f.order {
		order[i] = scored{id, f.scores[id]}
	}
	slices.SortFunc(order, func(a, b scored) int { return cmp.Or(cmp.Compare(b.score, a.score), bytes.Compare(a.id[:], b.id[:])) })
	for i, o := range order {
		f.order[i] = o.id
	}
}
