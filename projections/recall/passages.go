package recall

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/internal/allowance"
)

const (
	// MaxExcerpted is of how many texts one recall reads passages.
	MaxExcerpted = 64
	// MaxUnfit is after how many texts in a row that have no passage that fits a recall reads no others: what is left of
	// the budget is too little then.
	MaxUnfit = 8
	// readAhead is how many texts are read at once, and readAheadBytes the most bytes of those whose turns come later.
	readAhead      = 8
	readAheadBytes = 1 << 20
	// keptPassages is how many passages of a text are candidates: of long ones fewer fit.
	keptPassages = 8
	// analysedBytes is the most text that one recall analyses if the index does not know which passages match.
	analysedBytes = 4 << 20
)

// excerpted is a text that was read for its passages, best first. They are none if the text is one passage.
type excerpted []*passageText

// passageText is a passage of a text.
type passageText struct {
	n int
	// start is the byte of the text at which it begins.
	start   int
	content string
	// share is what its score is of that of the best passage of the text.
	share float64
	// excerpt and words, the question's words that the passage has, are set once measured.
	excerpt  string
	words    map[int]struct{}
	measured bool
}

// passages implements recall.Passages.
func (t *texts) passages(ctx context.Context, candidate int, left recall.Cost, next []int) []recall.Passage {
	key := t.sourceKey(candidate)
	// Without an entry only its neighbours match.
	if _, matches := t.Found.scores[key.dataPoint]; !matches || t.err != nil || !t.mayHavePassages(candidate) {
		return nil
	}
	// If something else is in the response, do not read a text for its last passage, the only one that may be so short.
	if left.Tokens < recall.LeastPassage && left.Tokens < t.Budget {
		return nil
	}
	of, known := t.gate.excerpted[key]
	if !known {
		if t.gate.unfit >= MaxUnfit || len(t.gate.excerpted) >= MaxExcerpted {
			return nil
		}
		of = t.excerpt(ctx, candidate, left, next)
		t.gate.excerpted[key] = of
	}
	var list []recall.Passage
	for _, p := range of {
		if recall.Tokens(p.content) > left.Tokens || t.passageCost(candidate, p).Tokens > left.Tokens {
			continue
		}
		list = append(list, recall.Passage{N: p.n, Share: p.share, Repeats: t.repeated(candidate, p)})
		if len(list) == recall.PassagesOfSource {
			break
		}
	}
	switch {
	case len(list) > 0:
		t.gate.unfit = 0
	case !known:
		t.gate.unfit++
	}
	return list
}

// mayHavePassages reports whether the text of a candidate may be more than one passage.
func (t *texts) mayHavePassages(candidate int) bool {
	p := t.Ranking.DataPoints[candidate]
	if p.tokens != nil {
		return 4**p.tokens > recall.ShortText
	}
	return p.size > recall.ShortText
}

// sourceKey is the revision of the source of a candidate.
func (t *texts) sourceKey(candidate int) revisionKey {
	return revisionKey{t.Ranking.IDs[candidate], t.Ranking.DataPoints[candidate].revision}
}

// excerpt reads the passages of a text.
func (t *texts) excerpt(ctx context.Context, candidate int, left recall.Cost, next []int) excerpted {
	key, p := t.sourceKey(candidate), t.Ranking.DataPoints[candidate]
	text, read := t.contents[key]
	if !read {
		hold := allowance.FromContext(ctx)
		before := hold.Held()
		defer func() { hold.Return(hold.Held() - before) }()
		if text = t.readText(ctx, key, p, left, next); text == nil {
			return nil
		}
	}
	t.drop(key)
	return t.choose(candidate, string(text))
}

// readText reads a text. It returns nil if the text is gone, or if too much was read already.
func (t *texts) readText(ctx context.Context, key revisionKey, p *dataPointRow, left recall.Cost, next []int) []byte {
	if b := t.gate.texts[key]; b != nil && b.ready && b.content != nil {
		return b.content
	}
	if t.gate.counted+p.size > MaxRead {
		return nil
	}
	if t.err = allowance.Reserve(ctx, 2*p.size); t.err != nil { // as it is read, and as a string
		return nil
	}
	t.gate.counted += p.size
	if p.big != nil {
		return t.blob(ctx, p.big)
	}
	return t.readAhead(ctx, key, left, next)
}

// readAhead reads a text in a row of the database, together with the next ones that will not fit either.
func (t *texts) readAhead(ctx context.Context, key revisionKey, left recall.Cost, next []int) []byte {
	wanted, size := []part{{revisionKey: key, content: true}}, int64(0)
	for _, candidate := range next[:min(len(next), readAhead*readAhead)] {
		p, of := t.Ranking.DataPoints[candidate], t.sourceKey(candidate)
		_, held := t.contents[of]
		_, known := t.gate.excerpted[of]
		if held || known || p.big != nil || t.Ranking.Candidates[candidate].Hidden || !t.mayHavePassages(candidate) ||
			p.leastTokens() <= int64(left.Tokens) || size+p.size > readAheadBytes || t.held+size+p.size > keptBytes ||
			t.gate.counted+size+p.size > MaxRead {
			continue
		}
		size += p.size
		wanted = append(wanted, part{revisionKey: of, content: true})
		if len(wanted) == readAhead {
			break
		}
	}
	t.gate.counted += size
	found, err := t.gate.bodies(ctx, wanted)
	if err != nil {
		t.err = err
		return nil
	}
	for of, b := range found {
		if of != key && b.content != nil {
			t.hold(of, b.content)
		}
	}
	if b := found[key]; b != nil {
		return b.content
	}
	return nil
}

// choose finds the best passages of the text of a candidate: by the index if it has passages of this revision, else by
// their words.
func (t *texts) choose(candidate int, text string) excerpted {
	if recall.IsOnePassage(text) {
		return nil
	}
	key := t.sourceKey(candidate)
	ranked := t.indexed(key)
	if len(ranked) == 0 {
		ranked = t.analysed(t.Ranking.DataPoints[candidate], text)
	}
	if len(ranked) == 0 {
		if len(t.Ranking.Memories[candidate]) > 0 {
			return nil // they take its place
		}
		ranked = []rankedPassage{{}} // its meaning matches: the first passage stands for the text
	}
	places := make(map[int]int, keptPassages)
	for place, r := range ranked[:min(len(ranked), keptPassages)] {
		places[r.n] = place
	}
	found, left := make(excerpted, keptPassages), len(places)
	for n, span := range recall.Numbered(text) {
		if place, wanted := places[n]; wanted {
			content := strings.Clone(strings.TrimSpace(text[span.Start:span.End]))
			start := span.Start + strings.Index(text[span.Start:span.End], content)
			found[place] = &passageText{n: n, start: start, content: content, share: 1}
			if best := ranked[0].score; best > 0 {
				found[place].share = ranked[place].score / best
			}
			if left--; left == 0 {
				break
			}
		}
	}
	return slices.DeleteFunc(found, func(p *passageText) bool { return p == nil }) // the index may have more than the text
}

// rankedPassage is the number of a passage with the score of its words.
type rankedPassage struct {
	n     int
	score float64
}

// rankPassages sorts passages, best first, and drops all but the best one of those without a word of the question.
func rankPassages(list []rankedPassage, inText map[int]struct{}) []rankedPassage {
	slices.SortFunc(list, func(a, b rankedPassage) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.n, b.n))
	})
	first := true
	return slices.DeleteFunc(list, func(r rankedPassage) bool {
		_, has := inText[r.n]
		drop := !has && !first
		first = false
		return drop
	})
}

// indexed returns the passages of a revision that the search found.
func (t *texts) indexed(key revisionKey) []rankedPassage {
	var list []rankedPassage
	inText := map[int]struct{}{}
	for i, h := range t.Found.Sources.Hits {
		if h.DataPoint != key.dataPoint || h.Revision != key.revision {
			continue
		}
		list = append(list, rankedPassage{h.N, t.Found.SourceScores[i]})
		if slices.ContainsFunc(h.Counts, func(c recall.Count) bool { return c.Text > 0 }) {
			inText[h.N] = struct{}{}
		}
	}
	return rankPassages(list, inText)
}

// analysed scores the passages of a text by their words, up to a bound for all texts of a recall.
func (t *texts) analysed(p *dataPointRow, text string) []rankedPassage {
	if len(t.Asked.Terms) == 0 {
		return nil
	}
	var label, author string
	if p.label != nil {
		label = *p.label
	}
	if p.author != nil {
		author = *p.author
	}
	terms := recall.Terms{Label: t.Analyzer.Label(label, author)}
	var list []rankedPassage
	inText := map[int]struct{}{}
	for n, span := range recall.Numbered(text) {
		if t.gate.analysed += int64(span.End - span.Start); t.gate.analysed > analysedBytes {
			break
		}
		terms.Text = t.Analyzer.Terms(text[span.Start:span.End])
		counts := recall.Counts(t.Asked.Terms, terms)
		score := t.Found.ChooseBy.Score(counts, len(terms.Text))
		if score <= 0 {
			continue
		}
		list = append(list, rankedPassage{n, score})
		if slices.ContainsFunc(counts, func(c recall.Count) bool { return c.Text > 0 }) {
			inText[n] = struct{}{}
		}
	}
	return rankPassages(list, inText)
}

// passageCost returns what a passage costs.
func (t *texts) passageCost(candidate int, p *passageText) recall.Cost {
	if !p.measured {
		asked := t.Asked.Terms
		p.excerpt = t.Analyzer.Excerpt(p.content, asked, t.Found.ChooseBy)
		p.words, p.measured = t.wordsOf(p.content), true
	}
	cost := t.carried(candidate)
	cost.Tokens, cost.Bytes = recall.Tokens(p.content, p.excerpt), cost.Bytes+int64(len(p.content)+len(p.excerpt))
	return cost
}

// wordsOf returns the words of the question that a text has, in any form, by index.
func (t *texts) wordsOf(text string) map[int]struct{} {
	terms := t.Asked.Terms
	words := map[int]struct{}{}
	for i, c := range recall.Counts(terms, recall.Terms{Text: t.Analyzer.Terms(text)}) {
		if c.Text > 0 {
			words[terms[i].For] = struct{}{}
		}
	}
	return words
}

// repeated returns the memories that were read from a passage and have each word of the question that it has.
func (t *texts) repeated(candidate int, p *passageText) (memories []int) {
	for i, l := range t.Ranking.Memories[candidate] {
		if l.excerpt == "" || !strings.Contains(p.content, l.excerpt) {
			continue
		}
		has := t.wordsOf(l.content + "\n" + l.excerpt)
		missing := false
		for word := range p.words {
			_, known := has[word]
			missing = missing || !known
		}
		if !missing {
			memories = append(memories, i)
		}
	}
	return memories
}

// passage returns a passage that Compose has received.
func (t *texts) passage(e recall.Entry) *passageText {
	for _, p := range t.gate.excerpted[t.sourceKey(e.Candidate)] {
		if p.n == e.Passage {
			return p
		}
	}
	return nil
}

// passageResult returns a passage as a response shows it, with its source.
func (t *texts) passageResult(e recall.Entry, rank int, source Source) (Result, bool) {
	passage := t.passage(e)
	if passage == nil {
		return Result{}, false
	}
	source.Excerpts = []string{passage.excerpt}
	id := datapoint.PassageID(t.Ranking.DataPoints[e.Candidate].node, passage.n)
	return Result{
		ID: id, Rank: rank, OccurredAt: source.OccurredAt, Content: passage.content,
		Artifact: Artifact{ID: id, Kind: memory.Observation, OccurredAt: source.OccurredAt}, Sources: []Source{source},
	}, true
}
