package recall

import (
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

// signal is one thing that a passage is ranked by; its score is the sum of all signals.
type signal func(w recall.Weights, counts []recall.Count, length int) float64

// signals is the list that ranking is made of. What looks at neighbours, dates or speakers joins here, behind the gate.
var signals = []signal{recall.Weights.Score}

func score(w recall.Weights, counts []recall.Count, length int) float64 {
	sum := 0.0
	for _, s := range signals {
		sum += s(w, counts, length)
	}
	return sum
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

// rank makes candidates of what the gate let pass. A data point counts by the best of its passages; one that the index
// knows by another revision counts by its live text.
func (s *Service) rank(ctx context.Context, g *gate, ask *question, f *found) (*ranking, error) {
	scores, stale := make(map[uuid.UUID]float64, len(g.points)), map[uuid.UUID]struct{}{}
	for i, h := range f.sources.Hits {
		p := g.points[h.DataPoint]
		if p == nil || !p.within {
			continue
		}
		if h.Revision != p.revision {
			stale[h.DataPoint] = struct{}{}
			continue
		}
		scores[h.DataPoint] = max(scores[h.DataPoint], f.sourceScores[i])
	}
	if err := s.rankLive(ctx, g, ask, f, stale, scores); err != nil {
		return nil, err
	}
	derived := map[uuid.UUID][]int{}
	for i, h := range f.memories.Hits {
		if l := g.lines[h.Memory]; l != nil && l.dataPoint == h.DataPoint && g.points[h.DataPoint] != nil {
			derived[h.DataPoint] = append(derived[h.DataPoint], i)
		}
	}
	r := new(ranking)
	for id, p := range g.points {
		own, matched := scores[id]
		hits := derived[id]
		if !matched && len(hits) == 0 {
			continue
		}
		c := recall.Candidate{ID: p.node, OccurredAt: p.occurredAt, Score: own, Hidden: !p.within, Least: int(recall.LeastTokens(p.size))}
		var lines []*line
		for _, i := range hits {
			l := g.lines[f.memories.Hits[i].Memory]
			if slices.Contains(lines, l) {
				continue
			}
			value, weight := worth(l)
			c.Memories = append(c.Memories, recall.Derived{
				ID: l.id, OccurredAt: l.occurredAt, Content: l.content, Worth: value, Score: weight * f.memoryScores[i],
			})
			lines = append(lines, l)
		}
		r.candidates, r.ids, r.points, r.lines = append(r.candidates, c), append(r.ids, id), append(r.points, p), append(r.lines, lines)
	}
	return r, nil
}

// liveText is the most text, in bytes, that is analysed for candidates of which the index knows an older revision.
const liveText = 4 << 20

// rankLive scores data points by their live text. Those beyond liveText wait until the index has caught up.
func (s *Service) rankLive(ctx context.Context, g *gate, ask *question, f *found, stale map[uuid.UUID]struct{}, scores map[uuid.UUID]float64) error {
	var wanted []revisionKey
	size := int64(0)
	for id := range stale {
		p := g.points[id]
		if _, known := scores[id]; known || p.big != nil || size+p.size > liveText {
			continue
		}
		size += p.size
		wanted = append(wanted, revisionKey{id, p.revision})
	}
	if len(wanted) == 0 {
		return nil
	}
	bodies, err := g.bodies(ctx, wanted, true)
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
			if value := score(f.weights, recall.Counts(ask.terms, terms), len(terms.Text)); value > 0 {
				scores[key.dataPoint] = max(scores[key.dataPoint], value)
			}
		}
	}
	return nil
}
