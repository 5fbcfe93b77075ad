package recall_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/annals-project/annals/domain/recall"
)

func TestStatement_UpdatedBy(t *testing.T) {
	a := recall.NewAnalyzer()
	short := func(text string) recall.Statement {
		terms := a.Stems(text)
		slices.Sort(terms)
		return recall.Statement{
			Terms: slices.Compact(terms), Changes: recall.TraitsOf(text).Has(recall.ChangeEvidence),
			HintsChange: recall.HintsChange(text), Score: 1,
		}
	}
	at := func(rank int, score float64, text string) recall.Statement {
		s := short(text)
		s.Rank, s.Score = rank, score
		return s
	}
	answer := func(rank int, score float64, text string) recall.Statement {
		s := at(rank, score, text)
		s.Answers = true
		return s
	}
	const meat, vegetarian = "I eat meat", "I became a vegetarian"
	long := func(score float64, changes bool, words ...float64) recall.Statement {
		return recall.Statement{Words: words, Changes: changes, Score: score}
	}
	for name, c := range map[string]struct {
		earlier, later recall.Statement
		want           bool
	}{
		"mentions what it was":      {short("My son plays football on Sundays"), short("My son quit football for basketball"), true},
		"brief, same matter":        {short("The trip is in June"), short("We pushed the trip to September"), true},
		"another matter":            {short("The trip is in June"), short("The car needs oil"), false},
		"a third of the terms":      {short("red green blue"), short("red"), true},
		"less than a third":         {short("red green blue pink"), short("red"), false},
		"eight terms":               {short("a1 a2 a3 a4 a5 a6 a7 a8"), short("a1 a2 a3 b4 b5 b6 b7 b8"), true},
		"nine terms":                {short("a1 a2 a3 a4 a5 a6 a7 a8 a9"), short("a1 a2 a3 b4 b5 b6 b7 b8"), false},
		"nine terms, changed":       {short("a1 a2 a3 a4 a5 a6 a7 a8 a9"), short("a1 a2 a3 now"), true},
		"other words, changed":      {at(0, 1, meat), at(4, 0.4, vegetarian), true},
		"other words, much worse":   {at(0, 1, meat), at(1, 0.39, vegetarian), false},
		"other words, not first":    {at(0, 1, meat), at(5, 1, vegetarian), false},
		"other words, hint":         {at(0, 1, meat), at(1, 1, "I have outgrown steaks"), true},
		"other words, not changed":  {at(0, 1, meat), at(1, 1, "I am a vegetarian"), false},
		"seven terms, twelve terms": {at(0, 1, "a1 a2 a3 a4 a5 a6 a7"), at(1, 1, "got "+words(11)), true},
		"six terms, 24 terms":       {at(0, 1, "a1 a2 a3 a4 a5 a6"), at(1, 1, "now "+words(23)), true},
		"six terms, 25 terms":       {at(0, 1, "a1 a2 a3 a4 a5 a6"), at(1, 1, "got "+words(25)), false},
		"seven terms, 13 terms":     {at(0, 1, "a1 a2 a3 a4 a5 a6 a7"), at(1, 1, "got "+words(13)), false},
		"one word, both answer":     {answer(0, 1, "I pay 800 euros for my flat, with heating"), answer(1, 1, "The flat costs 900, says the landlord"), true},
		"no word, both answer":      {answer(0, 1, "I pay 800 euros"), answer(1, 1, "The flat costs 900, says the landlord"), false},
		"one word, one answers":     {at(0, 1, "I pay rent for my flat, with heating"), answer(1, 1, "The flat costs 900, says the landlord"), false},
		"no terms":                  {recall.Statement{}, recall.Statement{}, false},
		"long, changed":             {long(1, false, 0.5, 0.25, 0), long(0.6, true, 0.5, 0.25, 0.25), true},
		"long, not changed":         {long(1, false, 0.5, 0.25, 0), long(1, false, 0.5, 0.25, 0.25), false},
		"long, much worse":          {long(1, false, 0.5, 0.25, 0), long(0.59, true, 0.5, 0.25, 0.25), false},
		"long, half of the words":   {long(1, false, 0.5, 0.25, 0.25), long(1, true, 0.5, 0, 0), false},
		"long, little of the query": {long(1, false, 0.25, 0, 0), long(1, true, 0.25, 0, 0), false},
		"long, half of the query":   {long(1, false, 0.5, 0, 0), long(1, true, 0.5, 0.5, 0), true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.earlier.UpdatedBy(&c.later); got != c.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

// words returns words that no other text has.
func words(count int) string {
	var b strings.Builder
	for i := range count {
		fmt.Fprintf(&b, "c%d ", i)
	}
	return b.String()
}

func TestHintsChange(t *testing.T) {
	for text, want := range map[string]bool{
		"Dana got a dog": true, "GONE!": true, "she's… married, it seems": true, "since": true,
		"": false, "forgotten": false, "It's sincere": false, "…": false, "\xff\xfe": false,
	} {
		if got := recall.HintsChange(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestQuestion_AsksYou(t *testing.T) {
	a := recall.NewAnalyzer()
	for text, want := range map[string]string{
		"How did you recommend managing retries?": "Ana", "What was your advice on retries?": "Ana", "Which libraries have you named?": "Ana",
		"What did we decide, as you said before?": "Ana", "DID YOU mention a deadline?": "Ana",
		"What would you suggest?": "", "Can you list the retries?": "", "What did I recommend?": "", "Who did your sister meet?": "",
	} {
		if got := a.Question(text, "Ana", began).Addressed; got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}

func TestQuestion_AsksPast(t *testing.T) {
	a := recall.NewAnalyzer()
	for text, want := range map[string]bool{
		"Where did Ana live?": true, "What was the deadline originally?": true, "Where had Ana been?": true, "WHERE WAS ANA?": true,
		"What car did Ana drive?": true, "Which libraries are used?": false, "What is Ana used to?": true, "What is the previous one?": true,
		"Where does Ana live?": false, "What is the deadline of the first sprint?": false, "How many have been merged?": false, "": false,
		strings.Repeat("a ", 40_000) + "was": false, // beyond what is read of a query
	} {
		if got := a.Question(text, "", began).AsksPast; got != want {
			t.Errorf("%.30q: %v", text, got)
		}
	}
}

// TestRank_Addressee shows that a question for what "you" said asks for texts of others than the asker, unless it names
// an author.
func TestRank_Addressee(t *testing.T) {
	a := recall.NewAnalyzer()
	for text, above := range map[string]int{
		"How did you recommend a drink to me?": 0, "How did I recommend a drink?": 1, "How did you recommend a drink to Ana?": 1,
	} {
		question := a.Question(text, "Ana", began)
		turns, weights := talk(a, question, []turnLine{{"bot", "I recommend a drink", 0}, {"Ana", "I recommend a drink", 48 * time.Hour}})
		if scores := a.Rank(question, weights, turns); scores[above] <= scores[1-above] {
			t.Errorf("%q: %v", text, scores)
		}
	}
}

func TestQuestion_Answers(t *testing.T) {
	a := recall.NewAnalyzer()
	for text, want := range map[string]recall.Traits{
		"When is it?": recall.TimeEvidence, "How many are there?": recall.NumberEvidence, "Who is it?": recall.NameEvidence,
		"What is it?": recall.NumberEvidence,
	} {
		question := a.Question(text, "", began)
		for _, traits := range []recall.Traits{recall.TimeEvidence, recall.NumberEvidence, recall.NameEvidence} {
			if got := question.Answers(traits); got != (traits == want) {
				t.Errorf("%q: %v for %d", text, got, traits)
			}
		}
	}
}

// TestPromise shows that the promise of a passage grows with the traits by which Rank scores it.
func TestPromise(t *testing.T) {
	a := recall.NewAnalyzer()
	for text, kind := range map[string]recall.Traits{
		"When is it?": recall.TimeEvidence, "How many are there?": recall.NumberEvidence, "Who is it?": recall.NameEvidence,
	} {
		question := a.Question(text, "", began)
		if got := question.Promise(1, 1, 0); got != 1 {
			t.Errorf("%q: %v without traits", text, got)
		}
		if got := question.Promise(1, 1, kind); got <= 1 {
			t.Errorf("%q: %v with what it asks for", text, got)
		}
		if got := question.Promise(1, 1, recall.IsQuestion); got >= 1 {
			t.Errorf("%q: %v for a question", text, got)
		}
		if got := question.Promise(1, 1, recall.FirstPerson|recall.SecondPerson|recall.ChangeEvidence); got != 1 {
			t.Errorf("%q: %v for traits that it does not ask for", text, got)
		}
	}
}
