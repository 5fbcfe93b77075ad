package recall_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/annals-project/annals/projections/recall/recalltest"
)

// fact is a text with a question for it.
type fact struct{ text, question string }

// factsOf fills a text and a question: in both {a} is what the fact is about, in the text {b} is its value.
func factsOf(text, question string, about, values string) (facts []fact) {
	list := strings.Split(values, ",")
	for i, a := range strings.Split(about, ",") {
		fill := strings.NewReplacer("{a}", a, "{b}", list[i%len(list)])
		facts = append(facts, fact{fill.Replace(text), fill.Replace(question)})
	}
	return facts
}

const (
	twentyNames = "Paolo,Wilma,Tariq,Eszter,Jorge,Maud,Pekka,Zofia,Idris,Carmen,Anselm,Birgit,Dmitri,Fatou,Gustav," +
		"Helmi,Istvan,Jolanta,Karim,Leonor"
	twentyDays = "2 January,12 January,3 February,13 February,4 March,14 March,5 April,15 April,6 June,16 June,7 July," +
		"17 July,8 August,18 August,9 September,19 September,10 October,20 October,11 November,21 November"
	twentyNumbers = "2207,2270,2702,2720,7022,7220,3318,3381,3813,3831,8133,8331,5546,5564,5456,6554,9119,9191,1919,1991"
	twentyPlaces  = "Aarhus,Bilbao,Cadiz,Dover,Emden,Faro,Gijon,Hull,Ibiza,Jersey,Kotka,Leith,Mahon,Nantes,Oban,Porto," +
		"Reus,Setubal,Trieste,Umea"
)

// Twenty facts of one shape by one author, a day apart: each is first if it is asked for.
func TestRecall_ParallelFacts(t *testing.T) {
	h := recalltest.New(t, nil)
	for _, c := range []struct {
		name  string
		facts []fact
	}{
		{"birthdays", factsOf("{a}'s birthday is on {b}.", "When is {a}'s birthday?", twentyNames, twentyDays)},
		{"phone numbers", factsOf("{a}'s phone number is 555 {b}.", "What is {a}'s phone number?", twentyNames,
			twentyNumbers)},
		{"rooms", factsOf("The {a} group meets in room {b}.", "Where does the {a} group meet?", twentyPlaces,
			twentyNumbers)},
		{"codes", factsOf("The code of the gate in {a} is {b}.", "What is the code of the gate in {a}?", twentyPlaces,
			twentyNumbers)},
		{"flights", factsOf("Flight TK{b} goes to {a}.", "Which flight goes to {a}?", twentyPlaces, twentyNumbers)},
		{"flights by number", factsOf("Flight TK{a} goes to {b}.", "TK{a}", twentyNumbers, twentyPlaces)},
		{"versions", factsOf("The {a} node runs version 3.{b}.1.", "Which version does the {a} node run?", twentyPlaces,
			twentyNumbers)},
		{"relatives", factsOf("My {a} lives in {b}.", "Where does my {a} live?",
			"mother,brother,sister,father,aunt,uncle,cousin,nephew", twentyPlaces)},
		{"two tickets", []fact{
			{"Ticket XR-31-482 is the torn sail.", "XR-31-482"}, {"Ticket XR-31-842 is the bent mast.", "XR-31-842"},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			sendFacts(h, c.facts)
			for i, f := range c.facts {
				page := h.Recall(h.Ask(f.question))
				if place := placeOfSource(page, fmt.Sprint("fact-", i)); place != 0 {
					t.Errorf("%s: %q is result %d, first is %.200q", f.question, f.text, place, contents(page)[:1])
				}
			}
		})
	}
}

// sendFacts sends facts of one author to a new project, a day apart.
func sendFacts(h *recalltest.Harness, facts []fact) {
	inNewProject(h)
	for i, f := range facts {
		sendText(h, recalltest.DataPoint{
			ID: fmt.Sprint("fact-", i), Content: f.text, Author: "ana", OccurredAt: at(1).AddDate(0, 0, i),
		})
	}
	sendEveryday(h)
	h.CatchUp()
}

// sendEveryday sends twenty short texts about other matters.
func sendEveryday(h *recalltest.Harness) {
	for i, content := range []string{
		"The soup was too salty again.", "Nobody watered the ferns.", "A heron stood on the jetty.",
		"The printer ate my boarding card.", "We walked home through the fog.", "The choir rehearsed a new piece.",
		"Two chairs in the hall wobble.", "Lunch was pumpkin risotto.", "The tram stopped for an hour.",
		"I lost a glove on the beach.", "The neighbours are painting their fence.", "Rain came through the skylight.",
		"The bakery sold out of rye bread.", "Somebody parked across the entrance.", "The quiz was about whales.",
		"My bicycle needs a new saddle.", "The lift smells of varnish.", "We planted mint and thyme.",
		"The film was longer than the book.", "A kitten slept on the keyboard.",
	} {
		sendText(h, recalltest.DataPoint{
			ID: fmt.Sprint("everyday-", i), Content: content, Author: []string{"ana", "ben"}[i%2],
			OccurredAt: at(1).Add(time.Duration(i) * 20 * time.Hour),
		})
	}
}

// A question for all of twenty parallel facts has them as the first twenty results.
func TestRecall_AllParallelFacts(t *testing.T) {
	h := recalltest.New(t, nil)
	for _, c := range []struct {
		question string
		facts    []fact
	}{
		{"Which tickets are open?", factsOf("Ticket QX-{a} is open: the bell in {b} is silent.", "", twentyNumbers,
			twentyPlaces)},
		{"Which tickets are still open?", factsOf("QX-{a} is an open ticket, it waits for {b}.", "", twentyNumbers,
			twentyNames)},
		{"Whose birthdays are there?", factsOf("{a}'s birthday is on {b}.", "", twentyNames, twentyDays)},
	} {
		t.Run(c.question, func(t *testing.T) {
			sendFacts(h, c.facts)
			q := h.Ask(c.question)
			q.Limit = len(c.facts)
			found := sourcesOf(h.Recall(q))
			for i, f := range c.facts {
				if !slices.Contains(found, fmt.Sprint("fact-", i)) {
					t.Errorf("%q is not among the first %d results", f.text, len(c.facts))
				}
			}
		})
	}
}

// Restatements do not fill a page: what was said 24 times in two wordings leaves room for the text with the answer.
func TestRecall_Restatements(t *testing.T) {
	h := recalltest.New(t, nil)
	for _, c := range []struct {
		name, first, second, answer, question, words string
	}{
		{
			"gearbox", "Morning round: the dredger still waits for its gearbox.",
			"Morning round: dredger is still waiting for the gearbox.", "The dredger gearbox comes from Lindqvist Marine.",
			"Where does the dredger gearbox come from?", "dredger gearbox",
		},
		{
			"visa", "Status: the visa of the cook is not there yet.", "Status: cook's visa is not yet there.",
			"The visa of the cook is issued by the consulate in Lima.", "Who issues the visa of the cook?", "cook visa",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			inNewProject(h)
			for i := range 24 {
				sendText(h, recalltest.DataPoint{
					ID: fmt.Sprint("round-", i), Content: []string{c.first, c.second}[i%2], Author: "ana",
					OccurredAt: at(1).AddDate(0, 0, i),
				})
			}
			sendText(h, recalltest.DataPoint{ID: "answer", Content: c.answer, Author: "ana", OccurredAt: at(10)})
			sendEveryday(h)
			h.CatchUp()
			q := h.Ask(c.question)
			q.Budget = 200
			if found := sourcesOf(h.Recall(q)); len(found) == 0 || found[0] != "answer" {
				t.Errorf("%s within %d tokens finds %v", c.question, q.Budget, found)
			}
			q = h.Ask(c.words)
			q.Limit = 10
			if found := sourcesOf(h.Recall(q)); !slices.Contains(found, "answer") {
				t.Errorf("%q finds %v", c.words, found)
			}
		})
	}
}

// A restatement comes after all that shares a word with the question, and is not lost.
func TestRecall_RestatementsComeLast(t *testing.T) {
	h := recalltest.New(t, nil)
	for i, content := range []string{
		"The pump leaks.", "The pump leaks!", "A pump leaks.", "The pump does not leak.", "Pump 2 leaks.", "Tomas's pump leaks.",
		"The long pier with a pump and a bench and a lamp and a bin.",
	} {
		sendText(h, recalltest.DataPoint{ID: fmt.Sprint(i), Content: content, Author: "ana", OccurredAt: at(1 + i)})
	}
	h.CatchUp()
	found := sourcesOf(h.Recall(h.Ask("pump leak")))
	if len(found) != 7 {
		t.Fatalf("found %v, want all seven", found)
	}
	last := slices.Sorted(slices.Values(found[5:]))
	same := 0
	for _, id := range last {
		if id == "0" || id == "1" || id == "2" {
			same++
		}
	}
	if same != 2 {
		t.Errorf("found %v, want two of 0, 1 and 2 last", found)
	}
}
