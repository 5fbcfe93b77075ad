package recall

// wholeShare is what a word as it is written counts of its weight, if it has stems; they count the rest.
const wholeShare = 0.08

// Query analyses a query: its words and parts of words, each once and at most queryTerms of them, in order of
// appearance; then the stems of each in all languages that it may be of. Stop words are left out if the language of the
// query is certain, unless all are. Characters of scripts without spaces are asked for in pairs, unless one is alone.
func (a *Analyzer) Query(text string) []Term {
	text = cut(text, queryBytes)
	p := a.read(text)
	defer p.release()
	if len(p.items) == 0 {
		return Wholes(symbols(string(p.scanner.text))...)
	}
	speaks := p.evidence.question()
	chosen := p.choose(func(i *item) bool { return !p.stops(i, speaks) })
	if len(chosen) == 0 {
		chosen = p.choose(func(*item) bool { return true })
	}
	terms := make([]Term, 0, 2*len(chosen))
	known := make(map[string]struct{}, 4*len(chosen))
	for n, item := range chosen {
		terms = append(terms, Term{Text: item.word, For: n, Share: 1, Capitals: item.capitals})
	}
	for n, item := range chosen {
		for _, stem := range stemsAsked(item, speaks) {
			terms[n].Share = wholeShare
			if _, twice := known[stem.Text]; !twice {
				known[stem.Text] = struct{}{}
				stem.For = n
				terms = append(terms, stem)
			}
		}
	}
	return terms
}

// kindsOf returns the words of a question that are no stop words of English, and those that negate.
func kindsOf(terms []Term) (content, denials Words) {
	for i, t := range terms[:ownOf(terms)] {
		if stop, is := stopWords[t.Text]; !is || !stop.in.has(inEnglish) {
			content |= 1 << i
		}
		if _, negates := foldedNegations[t.Text]; negates {
			denials |= 1 << i
		}
	}
	return content &^ denials, denials
}

// choose returns the items of a query that it asks for and that keep holds for, each word once.
func (p *reading) choose(keep func(*item) bool) []*item {
	var chosen []*item
	known := make(map[string]struct{}, len(p.items))
	for i := range p.items {
		item := &p.items[i]
		if _, twice := known[item.word]; twice || item.kind == aUnit || !keep(item) {
			continue
		}
		known[item.word] = struct{}{}
		if chosen = append(chosen, item); len(chosen) == queryTerms {
			break
		}
	}
	return chosen
}

// stops reports whether a word of a query is a stop word.
func (p *reading) stops(i *item, speaks spoken) bool {
	l, certain := speaks.of(i.alphabet)
	return certain && i.stops.has(l) && !p.name(i)
}

// stemsAsked returns the stems of a word of a query, in every language of its alphabet in which it is no stop word. A
// stop word of English, of the language of the query or of Russian has none: texts have it as it is written.
func stemsAsked(i *item, speaks spoken) (stems []Term) {
	if i.short {
		return nil
	}
	switch i.alphabet {
	case korean:
		prefixes := i.in(inKorean)
		for n, prefix := range prefixes {
			share := 1.0
			if n > 0 { // the longer, the nearer
				share = float64(n) / float64(len(prefixes))
			}
			stems = append(stems, Term{Text: prefix, Kind: Stem, Share: (1 - wholeShare) * share})
		}
		return stems
	case cyrillic:
		if i.stops.has(inRussian) {
			return nil
		}
		return stemsIn(i.entry, inRussian, stems)
	case latin:
		if l, certain := speaks.of(latin); i.stops.has(inEnglish) || certain && i.stops.has(l) {
			return nil
		}
		for l := range latinCount {
			if !i.stops.has(l) {
				stems = stemsIn(i.entry, l, stems)
			}
		}
	case otherAlphabet:
	}
	return stems
}

// stemsIn appends the stem of a word in a language, and that of the word without its marks: either may be in a text.
func stemsIn(e *entry, l language, stems []Term) []Term {
	first := e.in(l)[0]
	for _, stem := range e.in(l) {
		stems = append(stems, Term{Text: stem, Kind: Stem, Share: 1 - wholeShare})
	}
	if e.spelled == e.word || l == inEnglish {
		return stems
	}
	plain := entry{word: e.word, spelled: e.word}
	if other := plain.makeStems(l)[0]; other != first {
		stems = append(stems, Term{Text: other, Kind: Stem, Share: 1 - wholeShare})
	}
	return stems
}
