package recall

import (
	"bytes"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/annals-project/annals/domain/comprehend"
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
