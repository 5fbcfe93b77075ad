package recall

import (
	"slices"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/recall"
)

// ranking holds the candidates of a response with their rows: Candidates[i] is DataPoints[i], its
// Memories[j] is Memories[i][j].
type ranking struct {
	Candidates []recall.Candidate
	IDs        []uuid.UUID
	DataPoints []*dataPointRow
	Memories   [][]*memoryRow
	// Moves are the candidates that are not where their scores put them.
	Moves map[int]recall.Place
	// Turned are the data points that were scored with their neighbours, each with its turn in Turns.
	Turned []uuid.UUID
	Turns  []recall.Turn
}

// maxWeight is the most weight of any memory.
const maxWeight = 0.9

// Worth returns what the kind of a memory adds to its source, and its weight as a key to that source. A
// memory that only repeats its source in fewer words must not outrank another source.
func (l *memoryRow) Worth() (recall.Worth, float64) {
	if l.supersededAt != nil {
		return recall.Superseded, maxWeight
	}
	if kind, _ := memory.KindOf(l.kind); kind.Distilled {
		return recall.Distilled, maxWeight
	}
	return recall.Repeated, 0.8
}

// rank makes candidates of what passed the gate and of the neighbours of the best of it, with their scores and places.
// It is a function of what the steps before it found.
func (p *Pass) rank() {
	r := new(ranking)
	r.Turned, r.Turns = p.turns()
	scores := p.score(r)
	for id, row := range p.gate.dataPoints {
		score, memories := scores[id].total, p.match.memories[id]
		if score == 0 && (row.inWindow || len(memories) == 0) {
			continue // it has nothing of the question, or too little
		}
		c := recall.Candidate{
			ID: row.node, OccurredAt: row.occurredAt, Score: score, Hidden: !row.inWindow, Least: int(row.leastTokens()),
		}
		shown := p.derived(&c, row, memories, p.match.passages[id])
		r.Candidates, r.IDs = append(r.Candidates, c), append(r.IDs, id)
		r.DataPoints, r.Memories = append(r.DataPoints, row), append(r.Memories, shown)
	}
	p.Ranking = r
	p.arrange(scores)
}

// derived adds the memories of a candidate, given by their hits, and returns their rows.
func (p *Pass) derived(c *recall.Candidate, row *dataPointRow, hits []int, best *passage) (shown []*memoryRow) {
	own := 0.0
	if best != nil {
		own = p.Found.ChooseBy.Score(best.Counts, best.Length)
	}
	for _, i := range hits {
		l := p.gate.memories[p.Found.Memories.Hits[i].Memory]
		if slices.Contains(shown, l) {
			continue
		}
		value, weight := l.Worth()
		key := weight * p.Found.MemoryScores[i]
		if c.Score > 0 && key > 0 {
			// The score of its source without the size factor, scaled by how much of it the memory covers.
			key = c.Score / recall.SizeShare(row.size) * key / max(key, own)
		}
		c.Memories = append(c.Memories,
			recall.Derived{ID: l.ID, OccurredAt: l.occurredAt, Content: l.content, Worth: value, Score: key})
		shown = append(shown, l)
	}
	return shown
}

// score scores the turns: candidates and neighbours.
func (p *Pass) score(r *ranking) map[uuid.UUID]turnScore {
	totals, byWords := p.Analyzer.RankByWords(p.Asked, p.Found.Weights, r.Turns, p.service.config.Without...)
	scores := make(map[uuid.UUID]turnScore, len(r.Turned))
	for i, id := range r.Turned {
		if totals[i] > 0 {
			scores[id] = turnScore{totals[i], byWords[i]}
		}
	}
	return scores
}

// turnScore is the score of a data point, and what it would be without similarity.
type turnScore struct{ total, byWords float64 }

// turns returns the data points that are scored with their neighbours, by their times, and what is scored of each.
func (p *Pass) turns() ([]uuid.UUID, []recall.Turn) {
	g, m := p.gate, p.match
	rows := make([]*dataPointRow, 0, len(g.dataPoints))
	for id, row := range g.dataPoints {
		near := row.isNeighbour || p.Found.similarity(id, row).Revision > 0
		if row.inWindow && (m.passages[id] != nil || m.keys[id] > 0 || near) {
			rows = append(rows, row)
		}
	}
	// A sum of floats depends on the order of its terms, so keep that order the same in every run.
	slices.SortFunc(rows, (*dataPointRow).compare)
	places := make(map[uuid.UUID]int, len(rows))
	ids, turns := make([]uuid.UUID, len(rows)), make([]recall.Turn, len(rows))
	for i, row := range rows {
		id := row.id
		ids[i], places[id] = id, i
		var turn recall.Turn
		if best := m.passages[id]; best != nil {
			turn = best.Turn
		} else {
			turn.Traits = row.traits
		}
		near := p.Found.similarity(id, row)
		turn.Similarity, turn.Window = near.Similarity, near.Window
		turn.Key, turn.Size, turn.OccurredAt = m.keys[id], row.size, row.occurredAt
		turn.Before, turn.After = recall.None, recall.None
		if row.author != nil {
			turn.Author = *row.author
		}
		turns[i] = turn
	}
	for a, id := range ids {
		if b, known := places[g.next[id]]; known {
			turns[a].After, turns[b].Before = b, a
		}
	}
	return ids, turns
}
