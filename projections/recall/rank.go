package recall

import (
	"cmp"
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/recall"
)

// ranking holds the candidates of a response with their rows: candidates[i] is dataPoints[i], its
// Memories[j] is memories[i][j].
type ranking struct {
	candidates []recall.Candidate
	ids        []uuid.UUID
	dataPoints []*dataPointRow
	memories   [][]*memoryRow
	// moves are the candidates that are not where their scores put them.
	moves map[int]recall.Place
}

// maxWeight is the most weight of any memory.
const maxWeight = 0.9

// worthOf returns what a kind of memory adds to its source, and its weight as a key to that source. A
// memory that only repeats its source in fewer words must not outrank another source.
func worthOf(l *memoryRow) (recall.Worth, float64) {
	if l.supersededAt != nil {
		return recall.Superseded, maxWeight
	}
	switch l.kind {
	case memory.Claim, memory.Rule, memory.Membership, memory.Identity, memory.TemporalAnchor:
		return recall.Distilled, maxWeight
	default:
		return recall.Repeated, 0.8
	}
}

// rank makes candidates of what passed the gate and of the neighbours of the best of it. The score
// of a data point is that of its best passage; if the index knows another revision of it, its
// current text is scored.
func (s *Service) rank(ctx context.Context, g *gate, question *question, f *candidates) (*ranking, error) {
	best, err := s.passages(ctx, g, question, f)
	if err != nil {
		return nil, err
	}
	memories := make(map[uuid.UUID][]int)
	keys := make(map[uuid.UUID]float64)
	for i, h := range f.memories.Hits {
		if l := g.memories[h.Memory]; l != nil && l.dataPoint == h.DataPoint && g.dataPoints[h.DataPoint] != nil {
			memories[h.DataPoint] = append(memories[h.DataPoint], i)
			_, weight := worthOf(l)
			keys[h.DataPoint] = max(keys[h.DataPoint], weight*f.memoryScores[i])
		}
	}
	if err := g.loadNeighbours(ctx, mostPromising(g, question, f, best, keys)); err != nil {
		return nil, err
	}
	f.addNeighbours(g, question)
	scores := s.score(g, question, f, best, keys)
	r := new(ranking)
	for id, p := range g.dataPoints {
		ranked := scores[id].total > 0
		score := scores[id].total
		if !ranked && (p.inWindow || len(memories[id]) == 0) {
			continue // it has nothing of the question, or too little
		}
		c := recall.Candidate{
			ID: p.node, OccurredAt: p.occurredAt, Score: score, Hidden: !p.inWindow, Least: int(p.leastTokens()),
		}
		own := 0.0
		if passage := best[id]; passage != nil {
			own = f.chooseBy.Score(passage.Counts, passage.Length)
		}
		var shown []*memoryRow
		for _, i := range memories[id] {
			l := g.memories[f.memories.Hits[i].Memory]
			if slices.Contains(shown, l) {
				continue
			}
			value, weight := worthOf(l)
			key := weight * f.memoryScores[i]
			if ranked && key > 0 {
				// The score of its source without the size factor, scaled by how much of it the memory covers.
				key = score / recall.SizeShare(p.size) * key / max(key, own)
			}
			c.Memories = append(c.Memories,
				recall.Derived{ID: l.id, OccurredAt: l.occurredAt, Content: l.content, Worth: value, Score: key})
			shown = append(shown, l)
		}
		r.candidates, r.ids = append(r.candidates, c), append(r.ids, id)
		r.dataPoints, r.memories = append(r.dataPoints, p), append(r.memories, shown)
	}
	return r, s.arrange(ctx, r, g, question, best, scores)
}

// passage is the best passage of a data point, with the score of its words. held are the words of the question that any
// of its passages has.
type passage struct {
	recall.Turn
	score float64
	held  recall.Words
	// states is what the text states, zero if the index does not know that.
	states recall.States
}

// better returns the passage, or another one of the same data point if that has a higher score. The passage may be nil.
func (p *passage) better(q *recall.Question, turn recall.Turn, score float64) *passage {
	held := q.Held(turn.Counts)
	if p == nil {
		return &passage{Turn: turn, score: score, held: held}
	}
	p.held |= held
	if score > p.score {
		p.Turn, p.score = turn, score
	}
	return p
}

// passages finds the best passage of each data point that passed and is in the window.
func (s *Service) passages(
	ctx context.Context, g *gate, question *question, f *candidates,
) (map[uuid.UUID]*passage, error) {
	best, stale := make(map[uuid.UUID]*passage, len(g.dataPoints)), map[uuid.UUID]struct{}{}
	for i, h := range f.sources.Hits {
		p := g.dataPoints[h.DataPoint]
		if p == nil || !p.inWindow {
			continue
		}
		if h.Revision != p.revision {
			stale[h.DataPoint] = struct{}{}
			continue
		}
		best[h.DataPoint] = best[h.DataPoint].better(&question.asked,
			recall.Turn{Counts: h.Counts, Length: h.Length, Traits: h.Traits}, f.sourceScores[i])
		best[h.DataPoint].states = h.States // of a text that is one passage, so there is no other hit
	}
	return best, s.scoreLive(ctx, g, question, f, stale, best)
}

// mostPromising returns the data points whose neighbours are worth loading, best first.
func mostPromising(
	g *gate, question *question, f *candidates, best map[uuid.UUID]*passage, keys map[uuid.UUID]float64,
) []uuid.UUID {
	order := make([]scored, 0, len(best))
	usual := f.weights.Usual(question.asked.Own())
	for id, p := range g.dataPoints {
		score := keys[id]
		if b := best[id]; b != nil {
			score = max(score, b.score)
		}
		score += usual * nearness(f.similarity(id, p))
		if p.inWindow && p.author != nil && score > 0 {
			order = append(order, scored{id, score})
		}
	}
	slices.SortFunc(order, func(a, b scored) int {
		return cmp.Or(cmp.Compare(b.score, a.score), g.dataPoints[a.id].compare(g.dataPoints[b.id]))
	})
	ids := make([]uuid.UUID, min(len(order), maxWithNeighbours))
	for i := range ids {
		ids[i] = order[i].id
	}
	return ids
}

// maxWithNeighbours is for how many data points neighbours are loaded.
const maxWithNeighbours = 32

// score ranks all known data points: candidates and neighbours.
func (s *Service) score(
	g *gate, question *question, f *candidates, best map[uuid.UUID]*passage, keys map[uuid.UUID]float64,
) map[uuid.UUID]turnScore {
	ids := make([]uuid.UUID, 0, len(g.dataPoints))
	for id, p := range g.dataPoints {
		if p.inWindow && (best[id] != nil || keys[id] > 0 || p.isNeighbour || f.similarity(id, p).Revision > 0) {
			ids = append(ids, id)
		}
	}
	// A sum of floats depends on the order of its terms, so keep that order the same in every run.
	slices.SortFunc(ids, func(a, b uuid.UUID) int { return g.dataPoints[a].compare(g.dataPoints[b]) })
	places := make(map[uuid.UUID]int, len(ids))
	turns := make([]recall.Turn, len(ids))
	for i, id := range ids {
		places[id] = i
		p := g.dataPoints[id]
		var turn recall.Turn
		if b := best[id]; b != nil {
			turn = b.Turn
		} else if text := g.texts[revisionKey{id, p.revision}]; text != nil {
			turn.Traits = recall.TraitsOf(string(text.content))
		}
		near := f.similarity(id, p)
		turn.Similarity, turn.Window = near.Similarity, near.Window
		turn.Key, turn.Size, turn.OccurredAt = keys[id], p.size, p.occurredAt
		turn.Before, turn.After = recall.None, recall.None
		if p.author != nil {
			turn.Author = *p.author
		}
		turns[i] = turn
	}
	for a, id := range ids {
		if b, known := places[g.next[id]]; known {
			turns[a].After, turns[b].Before = b, a
		}
	}
	totals, byWords := s.rankTurns(question, f, ids, turns)
	scores := make(map[uuid.UUID]turnScore, len(ids))
	for i, id := range ids {
		if totals[i] > 0 {
			scores[id] = turnScore{totals[i], byWords[i]}
		}
	}
	return scores
}

// turnScore is the score of a data point, and what it would be without similarity.
type turnScore struct{ total, byWords float64 }

func (s *Service) rankTurns(
	question *question, f *candidates, ids []uuid.UUID, turns []recall.Turn,
) (scores, byWords []float64) {
	if s.explainer == nil {
		return question.analyzer.RankByWords(question.asked, f.weights, turns, s.config.Without...)
	}
	ranked := question.analyzer.RankExplained(question.asked, f.weights, turns, s.config.Without...)
	return s.explainer.note(ids, turns, ranked)
}

// maxLiveText is the most text, in bytes, that is analysed for candidates of which the index has an
// older revision.
const maxLiveText = 4 << 20

// scoreLive finds the best passage of data points in their current text. What exceeds maxLiveText
// is not ranked until the index has caught up.
func (s *Service) scoreLive(
	ctx context.Context, g *gate, question *question, f *candidates, stale map[uuid.UUID]struct{},
	best map[uuid.UUID]*passage,
) error {
	var wanted []revisionKey
	size := int64(0)
	for id := range stale {
		p := g.dataPoints[id]
		if best[id] != nil || p.big != nil || size+p.size > maxLiveText {
			continue
		}
		size += p.size
		wanted = append(wanted, revisionKey{id, p.revision})
	}
	if len(wanted) == 0 {
		return nil
	}
	parts := make([]part, len(wanted))
	for i, key := range wanted {
		parts[i] = part{revisionKey: key, content: true}
	}
	bodies, err := g.bodies(ctx, parts)
	if err != nil {
		return err
	}
	for _, key := range wanted {
		p, body := g.dataPoints[key.dataPoint], bodies[key]
		if body == nil {
			continue
		}
		document := recall.Document{Content: string(body.content)}
		if p.label != nil {
			document.Label = *p.label
		}
		if p.author != nil {
			document.Author = *p.author
		}
		for _, terms := range question.analyzer.Passages(document) {
			counts := recall.Counts(question.asked.Terms, terms)
			value := f.chooseBy.Score(counts, len(terms.Text))
			if value > 0 {
				best[key.dataPoint] = best[key.dataPoint].better(&question.asked,
					recall.Turn{Counts: counts, Length: len(terms.Text), Traits: terms.Traits}, value)
			}
		}
	}
	return nil
}
