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
	// held are the words of the question that its text, its label, its author or one of these memories has.
	held recall.Words
	// wordForWord reports that its text is the question. wording is that of a text that is compared, nil for others.
	wordForWord bool
	wording     *recall.Wording
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
	if err := p.matchSplits(ctx); err != nil {
		return err
	}
	for i, h := range p.Found.Memories.Hits {
		l, row := p.gate.memories[h.Memory], p.gate.dataPoints[h.DataPoint]
		if l != nil && l.dataPoint == h.DataPoint && row != nil {
			_, weight := l.Worth()
			row.match.memories = append(row.match.memories, i)
			row.match.key = max(row.match.key, weight*p.Found.MemoryScores[i])
			row.match.held |= p.Asked.HeldAnywhere(h.Counts)
		}
	}
	if err := p.gate.loadNeighbours(ctx, p.mostPromising()); err != nil {
		return err
	}
	p.Found.addNeighbours(p.gate, &p.question)
	return p.compareTexts(ctx)
}

// passage is the best passage of a data point, with its number and the score of its words. held are the words of the
// question that any of its passages has.
type passage struct {
	counts []recall.Count
	length int
	traits recall.Traits
	n      int
	score  float64
	held   recall.Words
}

// take takes a passage of the data point if it has a higher score than the best one.
func (m *match) take(q *recall.Question, p *passage) {
	m.held |= q.HeldAnywhere(p.counts)
	p.held = q.Held(p.counts)
	if m.passage != nil {
		p.held |= m.passage.held
		if p.score <= m.passage.score {
			m.passage.held = p.held
			return
		}
	}
	m.passage = p
}

// matchPassages finds the best passage of each data point that passed and is in the window. If the index knows another
// revision of it, its current text is scored.
func (p *Pass) matchPassages(ctx context.Context) error {
	stale := map[uuid.UUID]*dataPointRow{}
	passages := make([]passage, len(p.Found.Sources.Hits))
	for i, h := range p.Found.Sources.Hits {
		row := p.gate.dataPoints[h.DataPoint]
		if row == nil || !row.inWindow {
			continue
		}
		if h.Revision != row.revision {
			stale[h.DataPoint] = row
			continue
		}
		passages[i] = passage{counts: h.Counts, length: h.Length, traits: h.Traits, n: h.N, score: p.Found.SourceScores[i]}
		row.match.take(&p.Asked, &passages[i])
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
		if order := cmp.Compare(b.score, a.score); order != 0 {
			return order
		}
		return a.compare(b.dataPointRow)
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
	for n, terms := range p.Analyzer.Passages(document) {
		counts := recall.Counts(p.Asked.Terms, terms)
		if score := p.Found.ChooseBy.Score(counts, len(terms.Text)); score > 0 {
			row.match.take(&p.Asked,
				&passage{counts: counts, length: len(terms.Text), traits: terms.Traits, n: n, score: score})
		}
	}
}

// comparedBytes is the most bytes of texts that are read to see whether they are the question, and how they differ from
// each other. comparedText is the longest text of which the best passage is compared.
const (
	comparedBytes = 256 << 10
	comparedText  = 32 << 10
)

// wordForWordSize is what the size of a text that is the question may be, in sizes of the question: other spaces and
// marks are no other words, and a decomposed Korean text has three times the bytes.
const wordForWordSize = 4

// shownMetadata is the most bytes of metadata that are read with a text that is compared, so that the page need not
// read it again.
const shownMetadata = 2 << 10

// compareTexts reads the texts that may be the question, and those that may be on the same thing as another one, in one
// statement. Most of them are shown.
func (p *Pass) compareTexts(ctx context.Context) error {
	alike := p.mayBeQuestion()
	several := p.mayBeOnOneThing()
	var wanted []part
	read := int64(0)
	add := func(rows []*dataPointRow) {
		for _, row := range rows {
			key := revisionKey{row.id, row.revision}
			if p.gate.texts[key] != nil || slices.ContainsFunc(wanted, func(w part) bool { return w.revisionKey == key }) {
				continue
			}
			if read += row.size; read > comparedBytes {
				break
			}
			wanted = append(wanted, part{revisionKey: key, content: true, metadata: row.metadataSize <= shownMetadata})
		}
	}
	add(alike)
	add(several)
	if len(wanted) > 0 {
		bodies, err := p.gate.bodies(ctx, wanted)
		if err != nil {
			return err
		}
		for _, w := range wanted {
			if b := bodies[w.revisionKey]; b != nil {
				b.ready = w.metadata && b.metadataBlob == nil
				p.gate.texts[w.revisionKey] = b
			}
		}
	}
	p.noteWordForWord(alike)
	p.noteWordings(several)
	return nil
}

// text is the text of a data point that was read, nil for none.
func (g *gate) text(row *dataPointRow) []byte {
	if b := g.texts[revisionKey{row.id, row.revision}]; b != nil {
		return b.content
	}
	return nil
}

// mayBeQuestion returns the data points whose text may be the question, word for word.
func (p *Pass) mayBeQuestion() (rows []*dataPointRow) {
	own, size := p.Asked.Own(), int64(len(p.Text))
	if own == 0 {
		return nil
	}
	for _, row := range p.gate.dataPoints {
		best := row.match.passage
		if best != nil && best.held == recall.AllWords(own) && row.big == nil &&
			row.size <= wordForWordSize*size && size <= wordForWordSize*row.size {
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, (*dataPointRow).compare)
	return rows
}

func (p *Pass) noteWordForWord(rows []*dataPointRow) {
	if len(rows) == 0 {
		return
	}
	words := recall.WordsOf(p.Text)
	for _, row := range rows {
		if text := p.gate.text(row); text != nil {
			row.match.wordForWord = slices.Equal(words, recall.WordsOf(string(text)))
		}
	}
}

// mayBeOnOneThing returns the best data points of which another one may be an earlier or a later statement.
func (p *Pass) mayBeOnOneThing() []*dataPointRow {
	if p.Asked.AsksHistory || p.Asked.Content == 0 {
		return nil
	}
	rows := make([]*dataPointRow, 0, len(p.gate.dataPoints))
	for _, row := range p.gate.dataPoints {
		if best := row.match.passage; best != nil && row.big == nil && row.size <= comparedText &&
			best.held&p.Asked.Content != 0 {
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, func(a, b *dataPointRow) int {
		if order := cmp.Compare(b.match.passage.score, a.match.passage.score); order != 0 {
			return order
		}
		return cmp.Or(b.occurredAt.Compare(a.occurredAt), cmp.Compare(a.sourceID, b.sourceID))
	})
	rows = rows[:min(len(rows), recall.MostWordings)]
	compared := make([]bool, len(rows))
	for i, earlier := range rows {
		for j, later := range rows {
			if !(compared[i] && compared[j]) && p.mayReplace(later, earlier) {
				compared[i], compared[j] = true, true
			}
		}
	}
	chosen := rows[:0]
	for i, row := range rows {
		if compared[i] {
			chosen = append(chosen, row)
		}
	}
	return chosen
}

// mayReplace is false if a text can't replace or correct an earlier one, so that neither need be read for that.
func (p *Pass) mayReplace(later, earlier *dataPointRow) bool {
	had, has := earlier.match.passage.held, later.match.passage.held
	return later.occurredAt.After(earlier.occurredAt) && (had.Contains(has) || has.Contains(had)) &&
		later.match.held.Contains(earlier.match.held&^p.Asked.Denials) && later.outline.MayBeOn(earlier.outline)
}

// noteWordings notes the short texts that were read, and of longer ones the best passage.
func (p *Pass) noteWordings(rows []*dataPointRow) {
	if len(rows) == 0 {
		return
	}
	wordings := p.Analyzer.Wordings(&p.Asked)
	for _, row := range rows {
		text := p.gate.text(row)
		if text == nil {
			continue
		}
		author := ""
		if row.author != nil {
			author = *row.author
		}
		if len(text) <= recall.WordingBytes {
			row.match.wording = wordings.Of(string(text), author)
			continue
		}
		for n, span := range recall.Numbered(string(text)) {
			if n == row.match.passage.n {
				row.match.wording = wordings.Of(string(text[span.Start:span.End]), author)
				break
			}
		}
	}
}
