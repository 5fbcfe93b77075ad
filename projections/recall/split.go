package recall

import (
	"cmp"
	"context"
	"slices"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/projections/recallindex"
)

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
