package recall

import (
	"bytes"
	"slices"
	"strings"
	"time"

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
	// AsksPast reports that it asks for what was, not for what is.
	AsksPast bool
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
}

// Kind is what a term is to a word of a question.
type Kind uint8

// The kinds, in the order of the terms of a question: the words as they are written, their stems, spellings that differ
// by an edit or two, and words related to them.
const (
	Whole Kind = iota
	Stem
	Spelling
	Related
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
		AsksPast: asksPast(text), AsksOrder: asksOrder(text),
	}
	if TraitsOf(cut(text, queryBytes)).Has(FirstPerson) {
		q.Asker = asker
	}
	if asksYou(text) {
		q.Addressed = asker
	}
	return q
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

// Direct returns the terms without related words.
func (q *Question) Direct() []Term {
	n := len(q.Terms)
	for n > 0 && q.Terms[n-1].Kind == Related {
		n--
	}
	return q.Terms[:n]
}

// The beginnings that show what kind of answer a question wants.
var (
	wantsTime = []string{
		"when ", "what year", "which year", "what date", "which date", "what day", "which day",
		"what month", "which month", "what time", "how long", "how often", "since when",
	}
	wantsNumber = []string{"how many", "how much", "how old", "what number", "what percentage"}
	wantsName   = []string{"who ", "whom ", "whose ", "where ", "which "}
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

// pastWords show that a query asks for what was.
const pastWords = `did was were had before earlier former formerly original originally initial initially previous
	previously past`

var pastPhrases = append(phrases(" ", pastWords, " "), " used to ")

func asksPast(text string) bool { return hasPhrase(text, pastPhrases) }

// hasPhrase reports whether the words of a query, with a space before and after each, contain one of some phrases.
func hasPhrase(text string, phrases []string) bool {
	spaced := []byte{' '}
	words(cut(text, queryBytes), func(word []byte) { spaced = append(append(spaced, word...), ' ') })
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
	case has(wantsNumber):
		return NumberEvidence
	case begins(wantsName), strings.HasPrefix(low, "what ") && has(namedThings):
		return NameEvidence
	}
	return 0
}
