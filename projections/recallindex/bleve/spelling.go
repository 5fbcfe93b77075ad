package bleve

import (
	"context"
	"fmt"
	"math"
	"sync"

	segment "github.com/blevesearch/scorch_segment_api/v2"
	"github.com/blevesearch/vellum/levenshtein"

	"github.com/annals-project/annals/projections/recallindex"
)

// The bounds of one call: how many terms of dictionaries it compares with its words, and how many documents
// of terms it looks at for one that is readable. A term beyond the first is no spelling; a word beyond the
// second counts as held, a spelling as not readable.
const (
	maxComparedTerms = 4096
	maxSpellingDocs  = 1 << 20
)

// automata make automata of the words within one and within two edits.
var automata = sync.OnceValues(func() (of [3]*levenshtein.LevenshteinAutomatonBuilder, err error) {
	for edits := uint8(1); edits < uint8(len(of)) && err == nil; edits++ {
		of[edits], err = levenshtein.NewLevenshteinAutomatonBuilder(edits, true)
	}
	return of, err
})

// Spellings implements recallindex.Index.
func (x *Index) Spellings(ctx context.Context, q recallindex.SpellingQuery) ([][]string, error) {
	if err := x.beginCall(ctx); err != nil {
		return nil, err
	}
	defer x.endCall()
	found := make([][]string, len(q.Words))
	if err := x.checkComplete(q.Project); err != nil {
		return nil, err
	}
	s := &speller{query: q, found: found}
	if err := x.searchIn(ctx, &s.search, x.partitions(q.Project), s.run); err != nil {
		return nil, fmt.Errorf("look for spellings: %w", err)
	}
	return found, nil
}

// speller looks for spellings in one snapshot of each partition.
type speller struct {
	search
	query recallindex.SpellingQuery
	found [][]string
	// filters are by segment; readable reports that a document of it passes.
	filters  []segmentFilter
	readable []bool
	// compared and looked count what the bounds are on.
	compared, looked int
}

func (s *speller) run(ctx context.Context) error {
	passing := newFilter(s.query.Audiences, s.query.From, s.query.To)
	s.filters, s.readable = make([]segmentFilter, len(s.segments)), make([]bool, len(s.segments))
	for i, in := range s.segments {
		var err error
		if s.filters[i], s.readable[i], err = passing.of(in); err != nil {
			return err
		}
	}
	for i, word := range s.query.Words[:min(len(s.query.Words), recallindex.MaxSpellingWords)] {
		held, err := s.isReadable(ctx, word.Text)
		if err != nil {
			return err
		}
		if held || s.looked > maxSpellingDocs || word.AllowedEdits() <= 0 {
			continue
		}
		list, err := s.candidates(ctx, word)
		if err != nil {
			return err
		}
		for _, c := range list {
			if len(s.found[i]) >= s.query.Size {
				break
			}
			readable, err := s.isReadable(ctx, c.Text)
			if err != nil {
				return err
			}
			if readable {
				s.found[i] = append(s.found[i], c.Text)
			}
		}
	}
	return nil
}

// spelledFields are the fields whose words are held.
var spelledFields = [2]string{textField, labelField}

// isReadable reports whether a document that passes the filter holds a word.
func (s *speller) isReadable(ctx context.Context, word string) (bool, error) {
	for i, in := range s.segments {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		if s.looked > maxSpellingDocs {
			return false, nil // no list is read that nobody looks at
		}
		if !s.readable[i] {
			continue
		}
		found, err := s.newReader(in, recallindex.Sources).terms([]string{in.at.prefix + word}, nil, languages{of: []int{-1}})
		if err != nil {
			return false, err
		}
		for _, l := range []*docList{found[0].texts, found[0].labels} {
			docs := newCursor(l, 0)
			for ; docs.at != math.MaxUint64 && s.looked <= maxSpellingDocs; docs.next() {
				s.looked++
				if s.filters[i].passes(docs.at) {
					return true, nil
				}
			}
		}
	}
	return false, nil
}

// candidates returns the spellings of a word in the dictionaries, also those of documents that do not pass
// the filter.
func (s *speller) candidates(ctx context.Context, word recallindex.SpellingWord) ([]recallindex.Spelling, error) {
	builders, err := automata()
	if err != nil {
		return nil, err
	}
	edits := word.AllowedEdits()
	dfa, err := builders[edits].BuildDfa(word.Text, uint8(edits))
	if err != nil {
		return nil, err
	}
	frequencies := map[string]int{}
	for _, in := range s.segments {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		for _, field := range spelledFields {
			if err := s.compare(in, field, prefixed{dfa, in.at.prefix}, word, frequencies); err != nil {
				return nil, err
			}
		}
	}
	var list []recallindex.Spelling
	for term, n := range frequencies {
		if spelling, ok := recallindex.NewSpelling(term, word); ok && n > 0 {
			spelling.Frequency = n
			list = append(list, spelling)
		}
	}
	recallindex.SortSpellings(list)
	return list, nil
}

// compare adds the frequencies of the spellings in one dictionary.
func (s *speller) compare(
	in *searchedSegment, field string, near prefixed, word recallindex.SpellingWord, frequencies map[string]int,
) error {
	dict, err := in.Segment().Dictionary(field)
	if err != nil || dict.Cardinality() == 0 {
		return err
	}
	var postings segment.PostingsList
	terms := dict.AutomatonIterator(near, []byte(in.at.prefix), []byte(in.at.prefix+"\xff"))
	for s.compared < maxComparedTerms {
		entry, err := terms.Next()
		if err != nil || entry == nil {
			return err
		}
		s.compared++
		term := entry.Term[len(in.at.prefix):]
		if _, ok := recallindex.NewSpelling(term, word); !ok {
			continue
		}
		if postings, err = dict.PostingsList([]byte(entry.Term), in.Deleted(), postings); err != nil {
			return err
		}
		frequencies[term] += int(postings.Count())
	}
	return nil
}

// prefixed is an automaton of words after a prefix. Its states are those of the prefix, then those of the
// words, each greater by the length of the prefix; noState matches nothing.
type prefixed struct {
	words  *levenshtein.DFA
	prefix string
}

const noState = -1

func (p prefixed) Start() int {
	if p.prefix == "" {
		return p.words.Start()
	}
	return 0
}

func (p prefixed) IsMatch(state int) bool {
	return state >= len(p.prefix) && p.words.IsMatch(state-len(p.prefix))
}

func (p prefixed) CanMatch(state int) bool {
	return state >= 0 && (state < len(p.prefix) || p.words.CanMatch(state-len(p.prefix)))
}

func (p prefixed) WillAlwaysMatch(int) bool { return false }

func (p prefixed) Accept(state int, b byte) int {
	switch {
	case state < 0:
		return noState
	case state >= len(p.prefix):
		return p.words.Accept(state-len(p.prefix), b) + len(p.prefix)
	case p.prefix[state] != b:
		return noState
	case state == len(p.prefix)-1:
		return p.words.Start() + len(p.prefix)
	}
	return state + 1
}
