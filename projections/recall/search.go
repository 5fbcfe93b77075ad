package recall

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/projections/embeddings"
	"github.com/annals-project/annals/projections/recallindex"
)

// question is a query with its analysis, and how many candidates of each part a search asks for.
type question struct {
	Query
	// Analyzer is that of the index, which made Asked.
	Analyzer          *recall.Analyzer
	Asked             recall.Question
	sources, memories int
	// time is what it asks for if it asks for a time alone, else nil.
	time *recall.TimeAsked
	// spelled reports that other spellings of its words were looked for, split that their parts were.
	spelled, split bool
	// semantic holds the nearest embeddings once they are found, nil if there are none.
	semantic *embeddings.Found
}

// maxSemantic is the most candidates that semantic search adds.
const maxSemantic = 200

func (s *Service) newQuestion(q Query, now time.Time) question {
	now = now.UTC() // without a perspective, the query names days of UTC
	if q.At != nil {
		now = *q.At
	}
	analyzer := s.config.Analyzers.Of(s.config.Index.Analysis())
	asked := analyzer.Question(q.Text, q.Identity, now)
	made := question{
		Query: q, Analyzer: analyzer, Asked: asked,
		sources: max(firstSources, 3*q.Limit), memories: max(firstMemories, q.Limit),
	}
	if len(asked.Periods) > 0 || q.From != nil || q.To != nil {
		made.time = analyzer.TimeAsked(q.Text, now, q.From, q.To)
	}
	if made.time != nil {
		made.Asked.Terms, made.Asked.Content, made.Asked.Denials = nil, 0, 0 // none of its words is looked for
	}
	return made
}

// candidates are what a search found.
type candidates struct {
	Sources, Memories recallindex.Result
	// found is how many sources the index returned.
	found int
	// Weights score a passage, ChooseBy chooses which passages are ranked, memoryWeights score a
	// memory.
	Weights, ChooseBy, memoryWeights recall.Weights
	// SourceScores and MemoryScores belong to the hits, in their order.
	SourceScores, MemoryScores []float64
	// Order lists the data points, most promising first: by the score of their best document.
	Order  []uuid.UUID
	scores map[uuid.UUID]float64
	// Semantic holds what semantic search found.
	Semantic map[uuid.UUID]embeddings.Hit
}

// mayHoldMore reports whether the index may hold more sources than the search asked for.
func (q *question) mayHoldMore(f *candidates) bool { return f.found >= q.sources }

// until is the latest time of a source, nil for no limit.
func (q *question) until() *time.Time {
	if q.To != nil && (q.At == nil || q.To.Before(*q.At)) {
		return q.To
	}
	return q.At
}

// search searches the index for the question, and once more if other spellings of its words are there.
func (s *Service) search(ctx context.Context, question *question) (*candidates, error) {
	f := new(candidates)
	if len(question.Asked.Terms) == 0 && s.config.Semantic == nil {
		return f, nil
	}
	if err := s.searchParts(ctx, question, f); err != nil {
		return nil, err
	}
	spelled, err := s.addSpellings(ctx, question, f)
	if err != nil {
		return nil, err
	}
	split, err := s.addSplits(ctx, question, f)
	if err != nil {
		return nil, err
	}
	if spelled || split {
		f = new(candidates)
		if err := s.searchParts(ctx, question, f); err != nil {
			return nil, err
		}
	}
	f.dropParts(question)
	f.dropRelative(question)
	f.Weights = f.Sources.Statistics.Weights(question.Asked.Terms)
	f.ChooseBy = f.Weights.Shared(question.Asked.Terms)
	ofMemories := f.Sources.Statistics.OfMemories(f.Memories.Statistics)
	f.memoryWeights = ofMemories.Weights(question.Asked.Terms).Shared(question.Asked.Terms)
	f.arrange(question)
	f.sort()
	f.addSemantic(question)
	return f, nil
}

// dropRelative drops all hits if none has a word of the question but words such as "yesterday", which are in texts of
// any day.
func (f *candidates) dropRelative(question *question) {
	asked := &question.Asked
	if asked.Relative == 0 || asked.Relative.Contains(recall.AllWords(asked.Own())) {
		return
	}
	has := func(h recallindex.Hit) bool { return asked.HasOther(h.Counts) }
	if !slices.ContainsFunc(f.Sources.Hits, has) && !slices.ContainsFunc(f.Memories.Hits, has) {
		f.Sources.Hits, f.Memories.Hits = nil, nil
	}
}

// searchParts searches both parts of the index.
func (s *Service) searchParts(ctx context.Context, question *question, f *candidates) error {
	found, err := s.config.Index.Search(ctx, recallindex.Query{
		Project: question.Project.ID, Sources: question.sources, Memories: question.memories,
		Terms: question.Asked.Terms, Analysis: question.Analyzer.Version(),
		Audiences: question.Audiences, From: question.From, To: question.until(),
	})
	f.Sources, f.Memories, f.found = found.Sources, found.Memories, len(found.Sources.Hits)
	return err
}

// arrange scores the hits and lists their data points. Which of them are ranked depends on their traits, too.
func (f *candidates) arrange(question *question) {
	usual := f.Weights.Usual(question.Asked.Own())
	f.SourceScores, f.MemoryScores = make([]float64, len(f.Sources.Hits)), make([]float64, len(f.Memories.Hits))
	f.scores = make(map[uuid.UUID]float64, len(f.Sources.Hits)+len(f.Memories.Hits))
	add := func(id uuid.UUID, score float64) {
		best, known := f.scores[id]
		if !known {
			f.Order = append(f.Order, id)
		}
		f.scores[id] = max(best, score)
	}
	for i, h := range f.Sources.Hits {
		f.SourceScores[i] = f.ChooseBy.Score(h.Counts, h.Length)
		add(h.DataPoint, question.Asked.Promise(f.SourceScores[i], usual, h.Traits))
	}
	for i, h := range f.Memories.Hits {
		f.MemoryScores[i] = f.memoryWeights.Score(h.Counts, h.Length)
		add(h.DataPoint, maxWeight*f.MemoryScores[i])
	}
}

// leastNearness is what semantic search must add to a data point that no word found: in a small project the nearest
// ones may be no nearer than any text.
const leastNearness = 0.3

// addSemantic adds the candidates of semantic search, if any, and how near the others are. The order changes.
func (f *candidates) addSemantic(question *question) {
	if question.semantic == nil {
		return
	}
	f.Semantic = make(map[uuid.UUID]embeddings.Hit, len(question.semantic.Hits)+len(f.Order))
	f.noteSimilarities(question.semantic.Of(f.Order))
	for _, h := range question.semantic.Hits {
		if _, known := f.scores[h.DataPoint]; !known && nearness(h) > leastNearness {
			f.Order = append(f.Order, h.DataPoint)
			f.Semantic[h.DataPoint] = h
		}
	}
	usual := f.Weights.Usual(question.Asked.Own())
	for id, h := range f.Semantic {
		f.scores[id] += usual * nearness(h)
	}
	f.sort()
}

// addNeighbours adds how near the neighbours are that were loaded.
func (f *candidates) addNeighbours(g *gate, question *question) {
	if f.Semantic == nil {
		return
	}
	var loaded []uuid.UUID
	for id, p := range g.dataPoints {
		if _, known := f.Semantic[id]; !known && p.isNeighbour {
			loaded = append(loaded, id)
		}
	}
	f.noteSimilarities(question.semantic.Of(loaded))
}

func (f *candidates) noteSimilarities(hits []embeddings.Hit) {
	for _, h := range hits {
		f.Semantic[h.DataPoint] = h
	}
}

// nearness is what semantic search adds to a score, in weights of a usual term.
func nearness(h embeddings.Hit) float64 {
	return recall.SemanticWeight*h.Similarity + recall.WindowWeight*h.Window
}

// similarity is how near an authorized data point is to the query, zero if the embedding is not of its newest revision.
func (f *candidates) similarity(id uuid.UUID, p *dataPointRow) embeddings.Hit {
	if h, near := f.Semantic[id]; near && h.Revision == p.revision {
		return h
	}
	return embeddings.Hit{}
}

// scored is a data point with its score.
type scored struct {
	id    uuid.UUID
	score float64
}

func byScore(a, b scored) int {
	return cmp.Or(cmp.Compare(b.score, a.score), bytes.Compare(a.id[:], b.id[:]))
}

// withTies returns how many data points the first n are with all that are as promising as the last of them, so that
// chance does not decide which of equal texts are ranked.
func (f *candidates) withTies(n int) int {
	for n > 0 && n < len(f.Order) && f.scores[f.Order[n]] == f.scores[f.Order[n-1]] {
		n++
	}
	return n
}

// sort orders the data points, most promising first.
func (f *candidates) sort() {
	order := make([]scored, len(f.Order))
	for i, id := range f.Order {
		order[i] = scored{id, f.scores[id]}
	}
	slices.SortFunc(order, byScore)
	for i, o := range order {
		f.Order[i] = o.id
	}
}
