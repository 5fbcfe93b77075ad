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

// shown is how many candidates may be shown as sources.
func (r *ranking) shown() (n int) {
	for i := range r.Candidates {
		if !r.Candidates[i].Hidden {
			n++
		}
	}
	return n
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

// places are where a data point is among the ranked, each from 1, 0 for nowhere: its turn, and its candidate.
type places struct{ turn, candidate int }

// rank makes candidates of what passed the gate and of the neighbours of the best of it, with scores and places.
// It is a function of what the steps before it found.
func (p *Pass) rank() {
	most := len(p.gate.dataPoints)
	r := &ranking{
		Candidates: make([]recall.Candidate, 0, most), IDs: make([]uuid.UUID, 0, most),
		DataPoints: make([]*dataPointRow, 0, most), Memories: make([][]*memoryRow, 0, most),
	}
	r.Turned, r.Turns = p.turns()
	totals, byWords := p.Analyzer.RankByWords(p.Asked, p.Found.Weights, r.Turns, p.service.config.Without...)
	scores := make([]float64, 0, most)
	for id, row := range p.gate.dataPoints {
		score, own, memories := 0.0, 0.0, row.match.memories
		if row.rank.turn > 0 && totals[row.rank.turn-1] > 0 {
			score, own = totals[row.rank.turn-1], byWords[row.rank.turn-1]
		}
		row.rank.candidate = 0
		if score == 0 && (row.inWindow || len(memories) == 0) {
			continue // it has nothing of the question, or too little
		}
		c := recall.Candidate{
			ID: row.node, OccurredAt: row.occurredAt, Score: score, Hidden: !row.inWindow, Least: int(row.leastTokens()),
		}
		shown := p.derived(&c, row)
		r.Candidates, r.IDs, scores = append(r.Candidates, c), append(r.IDs, id), append(scores, own)
		r.DataPoints, r.Memories = append(r.DataPoints, row), append(r.Memories, shown)
		row.rank.candidate = len(r.IDs)
	}
	p.Ranking = r
	p.arrange(scores)
}

// derived adds the memories of a candidate, and returns their rows.
func (p *Pass) derived(c *recall.Candidate, row *dataPointRow) (shown []*memoryRow) {
	own := 0.0
	if best := row.match.passage; best != nil {
		own = p.Found.ChooseBy.Score(best.counts, best.length)
	}
	for _, i := range row.match.memories {
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

// turns returns the data points that are scored with their neighbours, by their times, and what is scored of each.
func (p *Pass) turns() ([]uuid.UUID, []recall.Turn) {
	rows := make([]*dataPointRow, 0, len(p.gate.dataPoints))
	for id, row := range p.gate.dataPoints {
		row.rank.turn = 0
		near := row.isNeighbour || p.Found.similarity(id, row).Revision > 0
		if row.inWindow && (row.match.passage != nil || row.match.key > 0 || near) {
			rows = append(rows, row)
		}
	}
	// A sum of floats depends on the order of its terms, so keep that order the same in every run.
	slices.SortFunc(rows, (*dataPointRow).compare)
	ids, turns := make([]uuid.UUID, len(rows)), make([]recall.Turn, len(rows))
	for i, row := range rows {
		ids[i], row.rank.turn = row.id, i+1
		turn := &turns[i]
		if best := row.match.passage; best != nil {
			turn.Counts, turn.Length, turn.Traits = best.counts, best.length, best.traits
		} else {
			turn.Traits = row.traits
		}
		near := p.Found.similarity(row.id, row)
		turn.Similarity, turn.Window = near.Similarity, near.Window
		turn.Key, turn.Size, turn.OccurredAt = row.match.key, row.size, row.occurredAt
		turn.Before, turn.After, turn.Conversation = recall.None, recall.None, row.conversation
		if row.author != nil {
			turn.Author = *row.author
		}
	}
	for a, row := range rows {
		if next := row.next; next != nil && next.rank.turn > 0 {
			b := next.rank.turn - 1
			turns[a].After, turns[b].Before = b, a
		}
	}
	return ids, turns
}
