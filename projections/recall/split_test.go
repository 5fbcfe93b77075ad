package recall_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/projections/recall/recalltest"
)

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
