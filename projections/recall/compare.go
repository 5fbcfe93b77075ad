package recall

import (
	"cmp"
	"context"
	"slices"

	"github.com/annals-project/annals/domain/recall"
)

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
