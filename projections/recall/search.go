package recall

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/internal/panics"
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

const (
	// spellingsOfWord is the most other spellings by which a word is looked for.
	spellingsOfWord = 8
	// twoEditsFrom is the number of letters from which a spelling may differ by two edits, not by one.
	twoEditsFrom = 9
)

// addSpellings adds to the question other spellings of words of letters that no text which the viewer may read holds.
// It reports whether it added any. The first search shows which words these may be, so most questions need no look-up.
func (s *Service) addSpellings(ctx context.Context, question *question, f *candidates) (bool, error) {
	if question.spelled {
		return false, nil
	}
	question.spelled = true
	words, places := missingWords(question, f)
	if len(words) == 0 {
		return false, nil
	}
	found, err := s.config.Index.Spellings(ctx, recallindex.SpellingQuery{
		Project: question.Project.ID, Audiences: question.Audiences, From: question.From, To: question.until(),
		Words: words, Size: spellingsOfWord,
	})
	if err != nil {
		return false, err
	}
	added := false
	for n, spellings := range found {
		added = question.Asked.AddSpellings(places[n], spellings) || added
	}
	return added, nil
}

// missingWords returns the words of the question that may be misspelt and that no hit has, at most as many as an index
// looks for, with their places among the terms.
func missingWords(question *question, f *candidates) (words []recallindex.SpellingWord, places []int) {
	var held recall.Words
	for _, hits := range [][]recallindex.Hit{f.Sources.Hits, f.Memories.Hits} {
		for _, h := range hits {
			held |= question.Asked.HeldAnywhere(h.Counts)
		}
	}
	for i, t := range question.Asked.Terms[:question.Asked.Own()] {
		if held.Has(i) || !t.Misspellable() || len(words) == recallindex.MaxSpellingWords {
			continue
		}
		edits := 1
		if utf8.RuneCountInString(t.Text) >= twoEditsFrom {
			edits = 2
		}
		words, places = append(words, recallindex.SpellingWord{Text: t.Text, Edits: edits}), append(places, i)
	}
	return words, places
}

const (
	// rareWord is in how many texts that the search found a word is at most, to be looked for in two parts.
	rareWord = 2
	// splitHits is how many texts a search for parts of words finds, splitTexts and splitBytes are how many of those that
	// passed the gate, and how many bytes of them, are read to see whether the parts are next to each other.
	splitHits  = 64
	splitTexts = 32
	splitBytes = 256 << 10
)

// addSplits adds to the question the parts of words that hardly any text has, if a text has both. It reports whether it
// added any.
func (s *Service) addSplits(ctx context.Context, question *question, f *candidates) (bool, error) {
	if question.split {
		return false, nil
	}
	question.split = true
	splits, terms := rareSplits(question, f)
	if len(splits) == 0 {
		return false, nil
	}
	found, err := s.config.Index.Search(ctx, recallindex.Query{
		Project: question.Project.ID, Sources: splitHits, Terms: recall.Wholes(terms...),
		Analysis: question.Analyzer.Version(), Audiences: question.Audiences, From: question.From, To: question.until(),
	})
	if err != nil {
		return false, err
	}
	hits := make([]int, len(splits))
	for i, split := range splits {
		for _, h := range found.Sources.Hits {
			if h.Counts[split.First].Text > 0 && h.Counts[split.Second].Text > 0 {
				hits[i]++
			}
		}
	}
	order := make([]int, 0, len(splits))
	for i, n := range hits {
		if n > 0 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(hits[b], hits[a]) })
	chosen := make([]recall.SplitWord, len(order))
	for i, of := range order {
		chosen[i] = splits[of]
	}
	return question.Asked.AddSplits(chosen), nil
}

// rareSplits returns the ways to split the words that hardly any hit has, with the parts, by which First and Second
// count.
func rareSplits(question *question, f *candidates) (splits []recall.SplitWord, parts []string) {
	holding := make([]int, question.Asked.Own())
	rare := len(holding)
	for _, h := range f.Sources.Hits {
		if rare == 0 {
			return nil, nil
		}
		held := question.Asked.HeldAnywhere(h.Counts)
		for word := range holding {
			if held.Has(word) {
				if holding[word]++; holding[word] == rareWord+1 {
					rare--
				}
			}
		}
	}
	place := func(part string) int {
		at := slices.Index(parts, part)
		if at < 0 {
			at, parts = len(parts), append(parts, part)
		}
		return at
	}
	words := 0
	for word, n := range holding {
		ways := question.Asked.Terms[word].Splits()
		if n > rareWord || len(ways) == 0 || words == recallindex.MaxSpellingWords {
			continue
		}
		words++
		for _, way := range ways {
			splits = append(splits, recall.SplitWord{
				Word: word, Parts: way, First: place(way[0]), Second: place(way[1]),
			})
		}
	}
	return splits, parts
}

// dropParts drops what a hit has of one part of a word alone, and hits that have nothing else. A memory has no parts.
func (f *candidates) dropParts(question *question) {
	if len(question.Asked.Splits) == 0 {
		return
	}
	f.Sources.Hits = slices.DeleteFunc(f.Sources.Hits, func(h recallindex.Hit) bool {
		return !question.Asked.KeepSplits(h.Counts, func(recall.SplitWord) bool { return true })
	})
	f.Memories.Hits = slices.DeleteFunc(f.Memories.Hits, func(h recallindex.Hit) bool {
		return !question.Asked.KeepSplits(h.Counts, func(recall.SplitWord) bool { return false })
	})
}

// matchSplits drops parts of words that are not next to each other in their text. A text beyond what is read has none.
func (p *Pass) matchSplits(ctx context.Context) error {
	var parted []*dataPointRow
	for _, row := range p.gate.dataPoints {
		if best := row.match.passage; best != nil && p.Asked.HasSplit(best.counts) {
			parted = append(parted, row)
		}
	}
	if len(parted) == 0 {
		return nil
	}
	slices.SortFunc(parted, (*dataPointRow).compare)
	var wanted []part
	size := int64(0)
	for _, row := range parted {
		if row.big == nil && len(wanted) < splitTexts && size+row.size <= splitBytes {
			size += row.size
			wanted = append(wanted, part{revisionKey: revisionKey{row.id, row.revision}, content: true})
		}
	}
	bodies, err := p.gate.bodies(ctx, wanted)
	if err != nil {
		return err
	}
	for _, row := range parted {
		b, best := bodies[revisionKey{row.id, row.revision}], row.match.passage
		if !p.Asked.KeepSplits(best.counts, func(s recall.SplitWord) bool {
			return b != nil && p.Analyzer.IsTogether(string(b.content), s.Parts)
		}) {
			row.match.passage = nil
		}
	}
	return nil
}

// nearest is the semantic search of a recall. It runs in parallel with the search by words and the look-up of what that
// found: to encode the query takes as long as both.
type nearest struct {
	cancel context.CancelFunc
	done   chan struct{}
	found  *embeddings.Found
	err    error
}

// startNearest starts the semantic search, if the service has one. The caller must stop it.
func (s *Service) startNearest(ctx context.Context, question *question) *nearest {
	ctx, cancel := context.WithCancel(ctx)
	n := &nearest{cancel: cancel, done: make(chan struct{})}
	if s.config.Semantic == nil {
		close(n.done)
		return n
	}
	q := embeddings.Query{
		Project: question.Project.ID, Audiences: question.Audiences, From: question.From, To: question.until(),
		Size: maxSemantic,
	}
	text := question.Text
	go func() {
		defer close(n.done)
		n.err = panics.Call(ctx, s.config.Log, "search panicked", func() error {
			n.found = s.config.Semantic.Find(ctx, q, text)
			return nil
		}, "part", "semantic")
	}()
	return n
}

// wait returns what was found, nil if there is no semantic search now. The error is that of a panic.
func (n *nearest) wait() (*embeddings.Found, error) {
	<-n.done
	return n.found, n.err
}

// stop ends the search.
func (n *nearest) stop() {
	n.cancel()
	<-n.done
}
