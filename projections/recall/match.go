package recall

import (
	"cmp"
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/recall"
)

// match is what of a data point that passed the gate matches the question.
type match struct {
	// passage is its best one, nil for none.
	passage *passage
	// memories are the hits of its memories that passed, key is the score of the best of them.
	memories []int
	key      float64
	// wordForWord reports that its text is the question.
	wordForWord bool
}

// complete finds what of the candidates matches, and loads what else takes part in the ranking: the neighbours of the
// best ones, live texts, and texts that may be the question.
func (p *Pass) complete(ctx context.Context) error {
	for _, row := range p.gate.dataPoints {
		row.match = match{}
	}
	if err := p.matchPassages(ctx); err != nil {
		return err
	}
	for i, h := range p.Found.Memories.Hits {
		l, row := p.gate.memories[h.Memory], p.gate.dataPoints[h.DataPoint]
		if l != nil && l.dataPoint == h.DataPoint && row != nil {
			_, weight := l.Worth()
			row.match.memories = append(row.match.memories, i)
			row.match.key = max(row.match.key, weight*p.Found.MemoryScores[i])
		}
	}
	if err := p.gate.loadNeighbours(ctx, p.mostPromising()); err != nil {
		return err
	}
	p.Found.addNeighbours(p.gate, &p.question)
	return p.matchWordForWord(ctx)
}

// passage is the best passage of a data point, with the score of its words. held are the words of the question that any
// of its passages has.
type passage struct {
	recall.Turn
	score float64
	held  recall.Words
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

// matchPassages finds the best passage of each data point that passed and is in the window. If the index knows another
// revision of it, its current text is scored.
func (p *Pass) matchPassages(ctx context.Context) error {
	stale := map[uuid.UUID]*dataPointRow{}
	for i, h := range p.Found.Sources.Hits {
		row := p.gate.dataPoints[h.DataPoint]
		if row == nil || !row.inWindow {
			continue
		}
		if h.Revision != row.revision {
			stale[h.DataPoint] = row
			continue
		}
		row.match.passage = row.match.passage.better(&p.Asked,
			recall.Turn{Counts: h.Counts, Length: h.Length, Traits: h.Traits}, p.Found.SourceScores[i])
	}
	return p.matchLive(ctx, stale)
}

// mostPromising returns the data points whose neighbours are worth loading, best first.
func (p *Pass) mostPromising() []uuid.UUID {
	type scoredRow struct {
		*dataPointRow
		score float64
	}
	order := make([]scoredRow, 0, len(p.gate.dataPoints))
	usual := p.Found.Weights.Usual(p.Asked.Own())
	for id, row := range p.gate.dataPoints {
		score := row.match.key
		if best := row.match.passage; best != nil {
			score = max(score, best.score)
		}
		score += usual * nearness(p.Found.similarity(id, row))
		if row.inWindow && row.author != nil && score > 0 {
			order = append(order, scoredRow{row, score})
		}
	}
	slices.SortFunc(order, func(a, b scoredRow) int {
		return cmp.Or(cmp.Compare(b.score, a.score), b.occurredAt.Compare(a.occurredAt), cmp.Compare(a.sourceID, b.sourceID))
	})
	ids := make([]uuid.UUID, min(len(order), maxWithNeighbours))
	for i := range ids {
		ids[i] = order[i].id
	}
	return ids
}

// maxWithNeighbours is for how many data points neighbours are loaded.
const maxWithNeighbours = 32

// maxLiveText is the most text, in bytes, that is analysed for candidates of which the index has an
// older revision.
const maxLiveText = 4 << 20

// matchLive finds the best passage of data points in their current text. What exceeds maxLiveText
// is not ranked until the index has caught up.
func (p *Pass) matchLive(ctx context.Context, stale map[uuid.UUID]*dataPointRow) error {
	var wanted []part
	size := int64(0)
	for id, row := range stale {
		if row.match.passage != nil || row.big != nil || size+row.size > maxLiveText {
			continue
		}
		size += row.size
		wanted = append(wanted, part{revisionKey: revisionKey{id, row.revision}, content: true})
	}
	if len(wanted) == 0 {
		return nil
	}
	bodies, err := p.gate.bodies(ctx, wanted)
	if err != nil {
		return err
	}
	for _, w := range wanted {
		if body := bodies[w.revisionKey]; body != nil {
			p.matchText(w.dataPoint, string(body.content))
		}
	}
	return nil
}

// matchText finds the best passage of the current text of a data point.
func (p *Pass) matchText(id uuid.UUID, text string) {
	row, document := p.gate.dataPoints[id], recall.Document{Content: text}
	if row.label != nil {
		document.Label = *row.label
	}
	if row.author != nil {
		document.Author = *row.author
	}
	for _, terms := range p.Analyzer.Passages(document) {
		counts := recall.Counts(p.Asked.Terms, terms)
		if score := p.Found.ChooseBy.Score(counts, len(terms.Text)); score > 0 {
			row.match.passage = row.match.passage.better(&p.Asked,
				recall.Turn{Counts: counts, Length: len(terms.Text), Traits: terms.Traits}, score)
		}
	}
}

// wordForWordBytes is the most bytes of texts that are read to see whether they are the question, and wordForWordSize
// what their size may be, in sizes of the question: other spaces and marks are no other words, and a decomposed Korean
// text has three times the bytes.
const (
	wordForWordBytes = 256 << 10
	wordForWordSize  = 4
)

// matchWordForWord finds the texts that are the question, word for word.
func (p *Pass) matchWordForWord(ctx context.Context) error {
	own, size := p.Asked.Own(), int64(len(p.Text))
	if own == 0 {
		return nil
	}
	var alike []*dataPointRow
	for _, row := range p.gate.dataPoints {
		best := row.match.passage
		if best != nil && best.held == recall.AllWords(own) && row.big == nil &&
			row.size <= wordForWordSize*size && size <= wordForWordSize*row.size {
			alike = append(alike, row)
		}
	}
	slices.SortFunc(alike, (*dataPointRow).compare)
	var wanted []part
	read := int64(0)
	for _, row := range alike {
		if read += row.size; read > wordForWordBytes {
			break
		}
		wanted = append(wanted, part{revisionKey: revisionKey{row.id, row.revision}, content: true})
	}
	if len(wanted) == 0 {
		return nil
	}
	bodies, err := p.gate.bodies(ctx, wanted)
	if err != nil {
		return err
	}
	words := recall.WordsOf(p.Text)
	for key, b := range bodies {
		p.gate.dataPoints[key.dataPoint].match.wordForWord = slices.Equal(words, recall.WordsOf(string(b.content)))
	}
	return nil
}
