package recall

import (
	"slices"
	"strings"
	"time"

	"github.com/annals-project/annals/domain/comprehend"
)

// Question is what the text of a query asks for.
type Question struct {
	// Terms are what the query is searched by: its own words first, then words that are related to them, each once.
	Terms []Term
	// Answer is what kind of passage answers it: TellsTime, TellsNumber, TellsName, or 0 for any.
	Answer Traits
	// Periods are the spans of time that it names.
	Periods []comprehend.Period
	// Asker is the author that "I" and "my" stand for in it, "" where it does not speak of its asker.
	Asker string
}

// Term is one term of a question.
type Term struct {
	Text string
	// For is the place of the term of the query that a related one stands for, its own place where it is one of the query.
	For int
}

// What is searched for beside the terms of a query: at most so many words for one of them, and in all.
const (
	relatedToOne = 10
	relatedToAll = 48
)

// Question reads the text of a query, as asked by somebody at an instant.
func (a *Analyzer) Question(text, asker string, asked time.Time) Question {
	own := a.Query(text)
	q := Question{Answer: answerOf(text), Periods: comprehend.Periods(text, asked)}
	if TraitsOf(cut(text, queryBytes)).Has(FirstPerson) {
		q.Asker = asker
	}
	known := make(map[string]struct{}, len(own))
	for i, term := range own {
		q.Terms = append(q.Terms, Term{term, i})
		known[term] = struct{}{}
	}
	added := 0
	for i, term := range own {
		room := min(relatedToOne, relatedToAll-added)
		for _, other := range related[term] {
			if room == 0 {
				break
			}
			if _, twice := known[other]; twice {
				continue
			}
			known[other] = struct{}{}
			q.Terms = append(q.Terms, Term{other, i})
			room--
			added++
		}
	}
	return q
}

// Texts are the terms as an index is searched by them.
func (q *Question) Texts() []string {
	texts := make([]string, len(q.Terms))
	for i, t := range q.Terms {
		texts[i] = t.Text
	}
	return texts
}

// Own is how many of the terms are the query's; the others are related to them.
func (q *Question) Own() int {
	n := 0
	for n < len(q.Terms) && q.Terms[n].For == n {
		n++
	}
	return n
}

// The words that tell what kind of answer a question wants, in its beginning.
var (
	wantsTime   = []string{"when ", "what year", "which year", "what date", "which date", "what day", "which day", "what month", "which month", "what time", "how long", "how often", "since when"}
	wantsNumber = []string{"how many", "how much", "how old", "what number", "what percentage"}
	wantsName   = []string{"who ", "whom ", "whose ", "where ", "which "}
	// namedThings are nouns whose instances have names.
	namedThings = []string{"name", "city", "country", "place", "book", "movie", "film", "game", "band", "song", "company", "restaurant", "team", "state"}
)

// answerOf tells what kind of passage answers a question.
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
		return TellsTime
	case has(wantsNumber):
		return TellsNumber
	case begins(wantsName), strings.HasPrefix(low, "what ") && has(namedThings):
		return TellsName
	}
	return 0
}
