package recall

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/recall"
)

// ranking is the candidates of a page with what they stand for: candidates[i] is of points[i], its Memories[j] is lines[i][j].
type ranking struct {
	candidates []recall.Candidate
	ids        []uuid.UUID
	points     []*point
	lines      [][]*line
}

// mostWorth is the most that any line counts.
const mostWorth = 0.9

// worth is what a kind of memory adds to its source, and weight what its line counts as a key to it. A line that only repeats
// its source, shorter, must not outrank another source by being short.
func worth(l *line) (recall.Worth, float64) {
	switch {
	case l.supersededAt != nil:
		return recall.Replaced, mostWorth
	case slices.Contains([]string{memory.Claim, memory.Rule, memory.Membership, memory.Identity, memory.TemporalAnchor}, l.kind):
		return recall.Distilled, mostWorth
	default:
		return recall.Repeated, 0.8
	}
}

// rank makes candidates of what the gate let pass, and of what stands beside the best of it. A data point counts by the best of its
// passages; one that the index knows by another revision counts by its live text.
func (s *Service) rank(ctx context.Context, g *gate, ask *question, f *found) (*ranking, error) {
	best, err := s.passages(ctx, g, ask, f)
	if err != nil {
		return nil, err
	}
	lines := make(map[uuid.UUID][]int)
	keys := make(map[uuid.UUID]float64)
	for i, h := range f.memories.Hits {
		if l := g.lines[h.Memory]; l != nil && l.dataPoint == h.DataPoint && g.points[h.DataPoint] != nil {
			lines[h.DataPoint] = append(lines[h.DataPoint], i)
			_, weight := worth(l)
			keys[h.DataPoint] = max(keys[h.DataPoint], weight*f.memoryScores[i])
		}
	}
	if err := g.lookAround(ctx, promising(g, ask, f, best, keys)); err != nil {
		return nil, err
	}
	scores := s.score(g, ask, f, best, keys)
	r := new(ranking)
	for id, p := range g.points {
		score, ranked := scores[id]
		if !ranked && len(lines[id]) == 0 {
			continue
		}
		c := recall.Candidate{ID: p.node, OccurredAt: p.occurredAt, Score: score, Hidden: !p.within, Least: int(p.leastTokens())}
		own := 0.0
		if passage := best[id]; passage != nil {
			own = f.chooseBy.Score(passage.Counts, passage.Length)
		}
		var shown []*line
		for _, i := range lines[id] {
			l := g.lines[f.memories.Hits[i].Memory]
			if slices.Contains(shown, l) {
				continue
			}
			value, weight := worth(l)
			said := weight * f.memoryScores[i]
			if ranked && said > 0 {
				// What its source is worth but for the room that it takes, as far as the line says what the source says.
				said = score / recall.SizeShare(p.size) * said / max(said, own)
			}
			c.Memories = append(c.Memories, recall.Derived{ID: l.id, OccurredAt: l.occurredAt, Content: l.content, Worth: value, Score: said})
			shown = append(shown, l)
		}
		r.candidates, r.ids, r.points, r.lines = append(r.candidates, c), append(r.ids, id), append(r.points, p), append(r.lines, shown)
	}
	return r, nil
}

// passage is the best passage of a data point, as far as it is ranked by its own words.
type passage struct {
	recall.Turn
	score float64
}

// passages finds the best passage of each data point that passed and lies within the windows.
func (s *Service) passages(ctx context.Context, g *gate, ask *question, f *found) (map[uuid.UUID]*passage, error) {
	best, stale := make(map[uuid.UUID]*passage, len(g.points)), map[uuid.UUID]struct{}{}
	for i, h := range f.sources.Hits {
		p := g.points[h.DataPoint]
		if p == nil || !p.within {
			continue
		}
		if h.Revision != p.revision {
			stale[h.DataPoint] = struct{}{}
			continue
		}
		if known := best[h.DataPoint]; known == nil || f.sourceScores[i] > known.score {
			best[h.DataPoint] = &passage{recall.Turn{Counts: h.Counts, Length: h.Length, Traits: h.Traits}, f.sourceScores[i]}
		}
	}
	return best, s.live(ctx, g, ask, f, stale, best)
}

// promising are the data points whose neighbours are worth a look, the best first.
func promising(g *gate, ask *question, f *found, best map[uuid.UUID]*passage, keys map[uuid.UUID]float64) []uuid.UUID {
	type scored struct {
		id    uuid.UUID
		score float64
	}
	order := make([]scored, 0, len(best))
	usual := recall.MeaningWeight * f.weights.Usual(ask.own)
	for id, p := range g.points {
		score := keys[id]
		if b := best[id]; b != nil {
			score = max(score, b.score)
		}
		score += usual * f.meaning(id, p)
		if p.within && p.author != nil && score > 0 {
			order = append(order, scored{id, score})
		}
	}
	slices.SortFunc(order, func(a, b scored) int { return cmp.Or(cmp.Compare(b.score, a.score), bytes.Compare(a.id[:], b.id[:])) })
	ids := make([]uuid.UUID, min(len(order), lookedAround))
	for i := range ids {
		ids[i] = order[i].id
	}
	return ids
}

// lookedAround is how many data points are looked around.
const lookedAround = 32

// score ranks all data points that are known, whether the query found them or they stand beside one that it did.
func (s *Service) score(g *gate, ask *question, f *found, best map[uuid.UUID]*passage, keys map[uuid.UUID]float64) map[uuid.UUID]float64 {
	ids := make([]uuid.UUID, 0, len(g.points))
	for id, p := range g.points {
		if p.within && (best[id] != nil || keys[id] > 0 || p.beside || f.meaning(id, p) > 0) {
			ids = append(ids, id)
		}
	}
	// Sums of fractions depend on their order, so that has to be the same each time.
	slices.SortFunc(ids, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	places := make(map[uuid.UUID]int, len(ids))
	turns := make([]recall.Turn, len(ids))
	for i, id := range ids {
		places[id] = i
		p := g.points[id]
		turn := recall.Turn{Traits: p.traits}
		if b := best[id]; b != nil {
			turn = b.Turn
		}
		if turn.Meaning = f.meaning(id, p); best[id] == nil && !p.beside {
			if body := g.texts[revisionKey{id, p.revision}]; body != nil {
				turn.Traits = recall.TraitsOf(string(body.content))
			}
		}
		turn.Key, turn.Size, turn.OccurredAt, turn.Before, turn.After = keys[id], p.size, p.occurredAt, recall.None, recall.None
		if p.author != nil {
			turn.Author = *p.author
		}
		turns[i] = turn
	}
	for earlier, later := range g.next {
		a, knownA := places[earlier]
		b, knownB := places[later]
		if knownA && knownB {
			turns[a].After, turns[b].Before = b, a
		}
	}
	scores := make(map[uuid.UUID]float64, len(ids))
	for i, score := range s.config.Analyzer.Rank(ask.asked, f.weights, turns) {
		if score > 0 {
			scores[ids[i]] = score
		}
	}
	return scores
}

// liveText is the most text, in bytes, that is analysed for candidates of which the index knows an older revision.
const liveText = 4 << 20

// live finds the best passage of data points in their live text. Those beyond liveText wait until the index has caught up.
func (s *Service) live(ctx context.Context, g *gate, ask *question, f *found, stale map[uuid.UUID]struct{}, best map[uuid.UUID]*passage) error {
	var wanted []revisionKey
	size := int64(0)
	for id := range stale {
		p := g.points[id]
		if best[id] != nil || p.big != nil || size+p.size > liveText {
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
		p, body := g.points[key.dataPoint], bodies[key]
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
		for _, terms := range s.config.Analyzer.Passages(document) {
			counts := recall.Counts(ask.terms, terms)
			value := f.chooseBy.Score(counts, len(terms.Text))
			if known := best[key.dataPoint]; value > 0 && (known == nil || value > known.score) {
				best[key.dataPoint] = &passage{recall.Turn{Counts: counts, Length: len(terms.Text), Traits: terms.Traits}, value}
			}
		}
	}
	return nil
}
