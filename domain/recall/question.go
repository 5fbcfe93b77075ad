package recall

import (
	"bytes"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/annals-project/annals/domain/comprehend"
	"github.com/annals-project/annals/domain/lexicon"
)

// Question is the analysis of a query.
type Question struct {
	// Terms are the search terms, each once.
	Terms []Term
	// Answer is the trait of a passage that answers it: TimeEvidence, NumberEvidence, NameEvidence, or
	// 0 for any.
	Answer Traits
	// Periods are the spans of time that it names.
	Periods []comprehend.Period
	// Asker is the author that "I" and "my" refer to, "" if the query does not use them.
	Asker string
	// Addressed is the asker, if the query asks what "you" said or did: turns of others answer it. It is "" if not.
	Addressed string
	// AsksLatest reports that it asks for what is current.
	AsksLatest bool
	// Splits are its words that are also looked for in two parts.
	Splits []SplitWord
	// AsksHistory reports that it asks for what was before.
	AsksHistory bool
	// Negates reports that it asks for what is not.
	Negates bool
	// Content are its words that are no stop words of English, Denials those that negate.
	Content, Denials Words
	// Relative are those that say how far a time is from now, and nothing else.
	Relative Words
	// AsksOrder reports that it asks in what order things happened, which several conversations say together.
	AsksOrder bool
}

// Term is one term of a question.
type Term struct {
	Text string
	Kind Kind
	// For is the index of the question's own word that the term is a form of; a word has its own index.
	For int
	// Share is what the term counts of the weight of that word, from 0 to 1.
	Share float64
	// Capitals reports that a word is written with inner capitals.
	Capitals bool
}

// IsIdentifier reports whether a word of a question is a number or an id: it has a digit, or is written with @, _, a
// dot, a slash or inner capitals.
func (t Term) IsIdentifier() bool {
	return t.Kind == Whole && (t.Capitals || strings.ContainsAny(t.Text, "0123456789@_./"))
}

// Misspellable reports whether a word of a question may be looked for by other spellings: at least five letters and
// nothing else, of a script with case or of Hebrew or Arabic.
func (t Term) Misspellable() bool {
	letters := 0
	for _, r := range t.Text {
		if !unicode.In(r, unicode.Latin, unicode.Cyrillic, unicode.Greek, unicode.Hebrew, unicode.Arabic, unicode.Armenian,
			unicode.Georgian) {
			return false
		}
		letters++
	}
	return t.Kind == Whole && letters >= 5
}

// Kind is what a term is to a word of a question.
type Kind uint8

// The kinds, in the order of the terms of a question: the words as they are written, their stems, and spellings that
// differ by an edit or two.
const (
	Whole Kind = iota
	Stem
	Spelling
)

// Wholes returns terms that are words as they are written.
func Wholes(words ...string) []Term {
	terms := make([]Term, len(words))
	for i, word := range words {
		terms[i] = Term{Text: word, For: i, Share: 1}
	}
	return terms
}

// Question analyses a query, as asked by an identity at an instant.
func (a *Analyzer) Question(text, asker string, asked time.Time) Question {
	q := Question{
		Terms: a.Query(text), Answer: answerOf(text), Periods: comprehend.Periods(text, asked),
		AsksLatest: hasPhrase(text, latestPhrases), AsksOrder: asksOrder(text),
		AsksHistory: hasPhrase(text, asksHistory), Negates: asksNegated(text),
	}
	q.Content, q.Denials = kindsOf(q.Terms)
	if len(q.Periods) > 0 {
		q.Relative = a.relativeWords(cut(text, queryBytes), asked, q.Terms)
	}
	if TraitsOf(cut(text, queryBytes)).Has(FirstPerson) {
		q.Asker = asker
	}
	if asksYou(text) {
		q.Addressed = asker
	}
	return q
}

// spellingShare is what another spelling counts of the weight of a word.
const spellingShare = 0.5

// AddSpellings adds spellings of a word, and reports whether any of them was no term of the question yet.
func (q *Question) AddSpellings(word int, spellings []string) (added bool) {
	for _, spelling := range spellings {
		if !slices.ContainsFunc(q.Terms, func(t Term) bool { return t.Text == spelling }) {
			q.Terms = append(q.Terms, Term{Text: spelling, Kind: Spelling, For: word, Share: spellingShare})
			added = true
		}
	}
	return added
}

// Own returns how many words the question has; they are its first terms.
func (q *Question) Own() int { return ownOf(q.Terms) }

func ownOf(terms []Term) int {
	n := 0
	for n < len(terms) && terms[n].Kind == Whole {
		n++
	}
	return n
}

// The beginnings that show what kind of answer a question wants.
var (
	wantsTime = []string{
		"when ", "what year", "which year", "what date", "which date", "what day", "which day",
		"what month", "which month", "what time", "how long", "how often", "since when",
	}
	wantsName = []string{"who ", "whom ", "whose ", "where ", "which "}
	// namedThings are nouns whose instances have names.
	namedThings = []string{
		"name", "city", "country", "place", "book", "movie", "film", "game", "band", "song",
		"company", "restaurant", "team", "state",
	}
)

// wantsOrder are the phrases of a question for an order of events.
var wantsOrder = []string{"what order", "order in which", "chronological order", "timeline of"}

func asksOrder(text string) bool {
	low := strings.ToLower(cut(text, queryBytes))
	return slices.ContainsFunc(wantsOrder, func(s string) bool { return strings.Contains(low, s) })
}

// What "you" said or did is asked for by an auxiliary before "you", a verb after it, or a noun after "your". "Can you"
// and "would you" ask for something new.
const (
	beforeYou = `did have had were`
	afterYou  = `said told suggested recommended mentioned gave explained advised proposed promised showed wrote described
		provided answered listed named`
	afterYour = `advice recommendation recommendations suggestion suggestions answer explanation proposal`
)

// youDid are the phrases that ask what "you" said or did, in words between spaces.
var youDid = slices.Concat(
	phrases(" ", beforeYou, " you "), phrases(" you ", afterYou, " "), phrases(" your ", afterYour, " "),
)

// phrases puts what comes before and after around each word of a list.
func phrases(before, list, after string) (all []string) {
	for word := range strings.FieldsSeq(list) {
		all = append(all, before+word+after)
	}
	return all
}

func asksYou(text string) bool { return hasPhrase(text, youDid) }

// latestPhrases ask for the newest of equal texts.
var latestPhrases = func() (phrases []string) {
	for word := range strings.FieldsSeq(`now nowadays current currently latest newest recent presently
		jetzt derzeit aktuell maintenant actuellement ahora adesso agora nu сейчас`) {
		phrases = append(phrases, " "+word+" ")
	}
	return phrases
}()

// hasPhrase reports whether the words of a query, with a space before and after each, contain one of some phrases.
func hasPhrase(text string, phrases []string) bool {
	spaced := []byte{' '}
	var s scanner
	s.scan(cut(text, queryBytes), func(t token) {
		if t.kind == aWord {
			spaced = append(append(spaced, t.text...), ' ')
		}
	})
	return slices.ContainsFunc(phrases, func(s string) bool { return bytes.Contains(spaced, []byte(s)) })
}

// answerOf returns the trait of a passage that answers a question.
func answerOf(text string) Traits {
	low := strings.ToLower(cut(strings.TrimSpace(text), 200)) + " "
	has := func(list []string) bool {
		return slices.ContainsFunc(list, func(s string) bool { return strings.Contains(low, s) })
	}
	begins := func(list []string) bool {
		return slices.ContainsFunc(list, func(s string) bool { return strings.HasPrefix(low, s) })
	}
	switch {
	case begins(wantsTime) || has(wantsTime[1:]):
		return TimeEvidence
	case begins(wantsName), strings.HasPrefix(low, "what ") && has(namedThings):
		return NameEvidence
	}
	return 0
}

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
		known[item.word] = struct{}{}
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
		for _, form := range variantsAsked(item) {
			if _, twice := known[form.Text]; !twice {
				known[form.Text] = struct{}{}
				form.For = n
				terms = append(terms, form)
			}
		}
	}
	for _, term := range a.joinedAsked(p, chosen) {
		if _, twice := known[term.Text]; !twice {
			known[term.Text] = struct{}{}
			terms = append(terms, term)
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

// variantShare is what another form of characters counts of the weight of theirs; mostVariants is how many forms of two
// characters are searched for.
const (
	variantShare = 0.8
	mostVariants = 8
)

// variantsAsked returns the other forms of characters of a script without spaces: kana in the other script of kana, Han
// in simplified or traditional forms, all of the characters first. A character may stand for several; each is tried,
// since nothing shows which was meant.
func variantsAsked(i *item) (forms []Term) {
	if i.kind > aPair || !strings.ContainsFunc(i.word, func(r rune) bool { return len(variantsOf(r)) > 0 }) {
		return nil
	}
	texts := []string{""}
	for _, r := range i.word {
		var longer []string
		for _, other := range slices.Concat(variantsOf(r), []rune{r}) {
			for _, text := range texts {
				longer = append(longer, text+string(other))
			}
		}
		texts = longer
	}
	texts = slices.DeleteFunc(texts, func(text string) bool { return text == i.word })
	for _, text := range texts[:min(len(texts), mostVariants)] {
		forms = append(forms, Term{Text: text, Kind: Stem, Share: variantShare})
	}
	return forms
}

// variantsOf returns the other forms of a character.
func variantsOf(r rune) []rune {
	switch {
	case r < 0x3041:
		return nil
	case r <= 0x3096, r == 0x309D, r == 0x309E:
		return []rune{r + 0x60}
	case r >= 0x30A1 && r <= 0x30F6, r == 0x30FD, r == 0x30FE:
		return []rune{r - 0x60}
	}
	return lexicon.HanVariants(r)
}

// Words are written together, with a hyphen or a dot, or apart: "notebook", "note-book", "note book". A text has no
// postings for the other ways; a question looks for them.
const (
	// mostJoined is how many neighbouring words of a question are also searched for as one.
	mostJoined = 8
	// leastJoined is the fewest letters of a word of two parts, leastPart those of a part.
	leastJoined = 5
	leastPart   = 2
	// mostSplit is the most letters of a word that is looked for in two parts, and splitsOfWord how many ways count.
	mostSplit    = 24
	splitsOfWord = 2
)

// joinedAsked returns the words that neighbouring words of a query are together, with their English stem, as other
// spellings of the first of them.
func (a *Analyzer) joinedAsked(p *reading, chosen []*item) (terms []Term) {
	places := make(map[string]int, len(chosen))
	for n, i := range chosen {
		places[i.word] = n
	}
	var before *item
	joined := 0
	for n := range p.items {
		i := &p.items[n]
		if i.kind != aWord {
			continue
		}
		place, asked := 0, false
		if before != nil {
			place, asked = places[before.word]
		}
		_, isChosen := places[i.word]
		canJoin := isChosen && (i.alphabet == latin || i.alphabet == cyrillic) && !i.short
		if word := ""; asked && canJoin && joined < mostJoined {
			if word = before.word + i.word; utf8.RuneCountInString(word) >= leastJoined && len(word) <= termBytes {
				joined++
				terms = append(terms, Term{Text: word, Kind: Spelling, For: place, Share: spellingShare})
				if i.alphabet == latin {
					stem := newEntry(word, word).in(inEnglish)[0]
					terms = append(terms, Term{Text: stem, Kind: Spelling, For: place, Share: spellingShare})
				}
			}
		}
		if before = nil; canJoin {
			before = i
		}
	}
	return terms
}

// SplitWord is a word of a question in two parts. First and Second are the indexes of their terms once they are added.
type SplitWord struct {
	Word          int
	Parts         [2]string
	First, Second int
}

// Splits returns the ways to split a word of a question: letters alone, of a script with case.
func (t Term) Splits() (parts [][2]string) {
	letters := 0
	for _, r := range t.Text {
		if !unicode.In(r, unicode.Latin, unicode.Cyrillic, unicode.Greek) {
			return nil
		}
		letters++
	}
	if t.Kind != Whole || letters < leastJoined || letters > mostSplit {
		return nil
	}
	n := 0
	for at := range t.Text {
		if n >= leastPart && letters-n >= leastPart {
			parts = append(parts, [2]string{t.Text[:at], t.Text[at:]})
		}
		n++
	}
	return parts
}

// AddSplits adds the parts of words as other spellings of them, at most splitsOfWord ways of one. A part that is a term
// of the question already is none. It reports whether it added any.
func (q *Question) AddSplits(splits []SplitWord) (added bool) {
	ways := map[int]int{}
	for _, s := range splits {
		known := slices.ContainsFunc(q.Terms, func(t Term) bool { return t.Text == s.Parts[0] || t.Text == s.Parts[1] })
		if known || s.Parts[0] == s.Parts[1] || ways[s.Word] == splitsOfWord {
			continue
		}
		ways[s.Word]++
		s.First, s.Second = len(q.Terms), len(q.Terms)+1
		for _, part := range s.Parts {
			q.Terms = append(q.Terms, Term{Text: part, Kind: Spelling, For: s.Word, Share: spellingShare})
		}
		q.Splits = append(q.Splits, s)
		added = true
	}
	return added
}

// HasSplit reports whether counts have a part of a word.
func (q *Question) HasSplit(counts []Count) bool {
	return slices.ContainsFunc(q.Splits, func(s SplitWord) bool {
		return counts[s.First] != (Count{}) || counts[s.Second] != (Count{})
	})
}

// KeepSplits clears the counts of the parts of words for which keep does not hold, and reports whether a count is left.
// Keep is not called if only one part is there.
func (q *Question) KeepSplits(counts []Count, keep func(SplitWord) bool) (some bool) {
	for _, s := range q.Splits {
		if counts[s.First].Text == 0 || counts[s.Second].Text == 0 || !keep(s) {
			counts[s.First], counts[s.Second] = Count{}, Count{}
		}
	}
	return slices.ContainsFunc(counts, func(c Count) bool { return c != (Count{}) })
}

// IsTogether reports whether a text has the parts of a word next to each other.
func (a *Analyzer) IsTogether(text string, parts [2]string) bool {
	p := a.read(text)
	defer p.release()
	before := ""
	for i := range p.items {
		if p.items[i].kind != aWord {
			continue
		}
		if before == parts[0] && p.items[i].word == parts[1] {
			return true
		}
		before = p.items[i].word
	}
	return false
}
