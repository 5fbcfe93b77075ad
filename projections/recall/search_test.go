package recall_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/projections/recall"
	"github.com/annals-project/annals/projections/recall/recalltest"
)

// More candidates are ranked if a response holds many of them: if they are short.
func TestRecall_ManyCandidates(t *testing.T) {
	for _, c := range []struct {
		name, padding string
		limit, budget int
		checked       int
	}{
		{"short texts", "", 100, 8000, 250},
		{"short texts, a small limit", "", 5, 8000, 250},
		{"short texts, a small budget", "", 100, 100, 250},
		{"long texts", strings.Repeat(" and so on, as it always was in this place", 20), 100, 8000, 128},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := recalltest.New(t, nil)
			for n := range 260 {
				h.Send(recalltest.DataPoint{
					// No two have the same score or state the same.
					ID: fmt.Sprint(n), OccurredAt: at(1).Add(time.Duration(n) * time.Minute),
					Content: strings.Repeat("Harbour launch ", 1+n%13) + fmt.Sprint("n", n) + strings.Repeat(" so", n/13) + c.padding,
				})
			}
			h.CatchUp()
			q := h.Ask("What about the harbour launch?")
			q.Limit, q.Budget = c.limit, c.budget
			if e := explain(t, h.Service(), q); e.Search.Checked != c.checked || len(e.Results) == 0 {
				t.Errorf("%d of %d candidates were checked, want %d", e.Search.Checked, e.Search.DataPoints, c.checked)
			}
		})
	}
}

// Limits up to 100 rank the same candidates, whatever the budget: a limit cuts the list.
func TestRecall_SameOrderAtEachLimit(t *testing.T) {
	h := recalltest.New(t, nil)
	for n := range 260 {
		// No two have the same score or state the same.
		content := strings.Repeat("Harbour ", 1+n%4) + fmt.Sprint("n", n) + strings.Repeat(" and so on", n/4)
		h.Send(recalltest.DataPoint{ID: fmt.Sprint(n), Content: content, OccurredAt: at(1)})
	}
	h.Send(recalltest.DataPoint{ID: "claim", Content: "Noor's favourite harbour is Porto.", OccurredAt: at(2), Author: "noor"})
	h.CatchUp()
	for _, question := range []string{"What about the harbour?", "What is Noor's favourite harbour?", "Porto"} {
		q := h.Ask(question)
		q.Budget = 32000
		whole, checked := h.Recall(q).Results, explain(t, h.Service(), q).Search.Checked
		for _, limit := range []int{1, 2, 3, 5, 17, 50, 99} {
			q.Limit = limit
			cut := h.Recall(q).Results
			if want := whole[:min(limit, len(whole))]; !slices.EqualFunc(cut, want, func(a, b recall.Result) bool {
				return a.ID == b.ID && a.Rank == b.Rank
			}) {
				t.Errorf("%s: limit %d is no beginning of the list: %v, want %v", question, limit, contents(recall.Response{Results: cut}),
					contents(recall.Response{Results: want}))
			}
		}
		q.Limit, q.Budget = 100, 300
		if n := explain(t, h.Service(), q).Search.Checked; n != checked {
			t.Errorf("%s: within %d tokens %d candidates were checked, else %d", question, q.Budget, n, checked)
		}
	}
}

// Words that are written together, apart, with a hyphen or a dot find each other, below what has them as asked.
func TestRecall_JoinedWords(t *testing.T) {
	h := recalltest.New(t, nil)
	send := func(id, content string) { h.Send(recalltest.DataPoint{ID: id, Author: "ana", Content: content}) }
	send("apart", "The blue note book is in the drawer.")
	send("dotted", "We chose vue.js for the console.")
	send("hyphen", "The check-list hangs by the door.")
	send("together", "The lighthouse needs paint.")
	send("plural", "Two lunchboxes were left.")
	send("far", "The car was washed, and then the pet was fed.")
	send("one", "Only the note was found.")
	for n := range 40 {
		send(fmt.Sprintf("other%d", n), fmt.Sprintf("The pump of shed %d runs.", n))
	}
	h.CatchUp()
	for query, want := range map[string]string{
		"notebook": "apart", "note-book": "apart", "vuejs": "dotted", "vue js": "dotted", "checklist": "hyphen",
		"check list": "hyphen", "light house": "together", "light-house": "together", "lunch box": "plural",
	} {
		if got := found(h.Recall(h.Ask(query))); len(got) == 0 || got[0] != want {
			t.Errorf("%q: %v, want %s first", query, got, want)
		}
	}
	if got := found(h.Recall(h.Ask("notebook"))); slices.Contains(got, "one") {
		t.Errorf("a text of one part: %v", got)
	}
	for _, query := range []string{"carpet", "petcar"} {
		if got := found(h.Recall(h.Ask(query))); len(got) > 0 {
			t.Errorf("%q: %v", query, got)
		}
	}
	// As it is asked for comes first.
	send("exact", "A notebook was bought in a hurry on the way to the harbour by one of us.")
	h.CatchUp()
	for query, want := range map[string][]string{
		"notebook": {"exact", "apart"}, "blue note book": {"apart", "one", "exact"},
	} {
		if got := found(h.Recall(h.Ask(query))); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", query, got, want)
		}
	}
}

// The parts of a word in a text that the viewer may not read, and in the texts of others, add nothing.
func TestRecall_JoinedWordsOfViewer(t *testing.T) {
	h, team := recalltest.New(t, nil), uuid.New()
	h.Send(recalltest.DataPoint{ID: "secret", Author: "bo", Content: "The note book is mine.", Audience: team})
	h.Send(recalltest.DataPoint{ID: "note", Author: "bo", Content: "The note is mine."})
	h.Send(recalltest.DataPoint{ID: "book", Author: "bo", Content: "The book is yours."})
	h.CatchUp()
	if got := found(h.Recall(h.Ask("notebook"))); len(got) > 0 {
		t.Errorf("without the team: %v", got)
	}
	q := h.Ask("notebook")
	q.Audiences = append(q.Audiences, team)
	if got := found(h.Recall(q)); !slices.Equal(got, []string{"secret"}) {
		t.Errorf("with the team: %v", got)
	}
}
