package recall_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/projections/recall/recalltest"
)

// The data points right before and after a result come along if the viewer may read them, if they have an author, and
// are of the same hour and audience, and if they are in the window.
func TestNeighbours_AreShown(t *testing.T) {
	if os.Getenv(recalltest.EmbeddingsVariable) != "" {
		t.Skip("semantic search finds what is in a conversation with the right words, whether or not they are neighbours")
	}
	team := uuid.New()
	h := recalltest.New(t, nil)
	say := func(id, content, author string, minutes int, audience uuid.UUID) {
		h.Send(recalltest.DataPoint{
			ID: id, Content: content, Author: author, Audience: audience,
			OccurredAt: at(1).Add(time.Duration(minutes) * time.Minute),
		})
	}
	say("long before", "Good morning", "Ana", -90, uuid.Nil)
	say("two before", "Look at this", "Ana", -20, uuid.Nil)
	say("before", "So many ropes", "Ben", -10, uuid.Nil)
	say("secret", "Swordfish", "Eve", -5, team)
	say("found", "The harbour is old", "Ana", 0, uuid.Nil)
	say("same time", "Something else", "Ben", 0, uuid.Nil)
	say("a document", "Minutes of the meeting", "", 3, uuid.Nil)
	say("after", "Since the war", "Ben", 5, uuid.Nil)
	say("long after", "Good night", "Ana", 70, uuid.Nil)
	h.CatchUp()

	q := h.Ask("What about the harbour?")
	found := func() []string {
		var ids []string
		for _, r := range h.Recall(q).Results {
			ids = append(ids, r.Sources[0].SourceID)
		}
		if len(ids) == 0 || ids[0] != "found" {
			t.Errorf("the first of %v is not what was asked for", ids)
		}
		slices.Sort(ids)
		return ids
	}
	for _, c := range []struct {
		name      string
		audiences []uuid.UUID
		prepare   func()
		want      []string
	}{
		// A viewer cannot detect a hidden data point in between: the next one takes its place.
		{"for everybody", []uuid.UUID{uuid.Nil}, func() {}, []string{"after", "before", "found", "two before"}},
		// What another audience reads is no part of the conversation.
		{"for the team", []uuid.UUID{uuid.Nil, team}, func() {}, []string{"after", "before", "found"}},
		{"as of then", []uuid.UUID{uuid.Nil}, func() { then := at(1); q.At = &then }, []string{"before", "found", "two before"}},
		{"from then on", []uuid.UUID{uuid.Nil}, func() { q.At = nil; from := at(1).Add(-15 * time.Minute); q.From = &from }, []string{"after", "before", "found"}},
	} {
		q.Audiences = c.audiences
		c.prepare()
		if diff := cmp.Diff(c.want, found()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

// A response is the same, word for word, whatever unreadable data points are next to its results.
func TestNeighbours_Unreadable(t *testing.T) {
	team := uuid.New()
	pages := make([]any, 2)
	for i, secret := range []string{"The harbour, the harbour, the harbour", "Nothing at all"} {
		h := recalltest.New(t, nil)
		for n, content := range []string{"The harbour is old", "Ropes and ships", "The old harbour again", "Tea"} {
			h.Send(recalltest.DataPoint{
				ID: content, Content: content, Author: []string{"Ana", "Ben"}[n%2],
				OccurredAt: at(1 + n/2).Add(time.Duration(n) * time.Minute),
			})
			h.Send(recalltest.DataPoint{
				ID: "secret " + content, Content: secret, Author: "Eve", Audience: team,
				OccurredAt: at(1 + n/2).Add(time.Duration(n)*time.Minute + time.Second),
			})
		}
		h.CatchUp()
		var page []string
		for _, r := range h.Recall(h.Ask("What about the old harbour?")).Results {
			page = append(page, r.Sources[0].SourceID)
		}
		if len(page) == 0 {
			t.Fatal("nothing is found")
		}
		pages[i] = page
	}
	if diff := cmp.Diff(pages[0], pages[1]); diff != "" {
		t.Error(diff)
	}
}

// Of the texts of one hour, those that name another conversation are no neighbours, however near they are.
func TestNeighbours_OfOneConversation(t *testing.T) {
	if os.Getenv(recalltest.EmbeddingsVariable) != "" {
		t.Skip("semantic search finds what is in a conversation with the right words, whether or not they are neighbours")
	}
	h := recalltest.New(t, nil)
	for n, p := range []struct{ id, content, metadata string }{
		{"t1 before", "So many ropes", `{"thread":"t1"}`},
		{"t2 before", "Tea is ready", `{"thread":"t2"}`},
		{"none before", "Somebody called", `{}`},
		{"found", "The harbour is old", `{"thread":"t1"}`},
		{"none after", "It rains", `{"channel":"t1"}`},
		{"t2 after", "With milk", `{"session":"t2"}`},
		{"t1 after", "Since the war", `{"session":"t1"}`},
	} {
		h.Send(recalltest.DataPoint{
			ID: p.id, Content: p.content, Metadata: json.RawMessage(p.metadata), Author: []string{"Ana", "Ben"}[n%2],
			OccurredAt: at(1).Add(time.Duration(n) * time.Minute),
		})
	}
	h.CatchUp()
	found := sourcesOf(h.Recall(h.Ask("What about the harbour?")))
	slices.Sort(found)
	if diff := cmp.Diff([]string{"found", "t1 after", "t1 before"}, found); diff != "" {
		t.Error(diff)
	}
}

// Where 200 people write texts of their own within an hour, a question about one of them finds no text of the others.
// Four who write to each other are a conversation.
func TestNeighbours_Crowd(t *testing.T) {
	if os.Getenv(recalltest.EmbeddingsVariable) != "" {
		t.Skip("semantic search finds what is in a conversation with the right words, whether or not they are neighbours")
	}
	for people, want := range map[int]int{200: 1, 5: 1, 4: 5} {
		h := recalltest.New(t, nil)
		for n := range 200 {
			content := fmt.Sprintf("Shelf %d has jars.", n)
			if n == 100 {
				content = "The harbour is old."
			}
			h.Send(recalltest.DataPoint{
				ID: fmt.Sprint(n), Content: content, Author: fmt.Sprint("person", n%people),
				OccurredAt: at(1).Add(time.Duration(n) * 15 * time.Second),
			})
		}
		h.CatchUp()
		if found := sourcesOf(h.Recall(h.Ask("What about the harbour?"))); len(found) != want || found[0] != "100" {
			t.Errorf("of %d people: found %v, want %d texts", people, found, want)
		}
	}
}

// A text that is here only for a match next to it is below that match, and below each text with the same words of the
// question, unless the match ends in a question.
func TestNeighbours_BelowMatches(t *testing.T) {
	if os.Getenv(recalltest.EmbeddingsVariable) != "" {
		t.Skip("semantic search finds what is in a conversation with the right words, whether or not they are neighbours")
	}
	h := recalltest.New(t, nil)
	say := func(id, content string, day, minute int) {
		h.Send(recalltest.DataPoint{
			ID: id, Content: content, Author: []string{"Ana", "Ben"}[minute%2],
			OccurredAt: at(day).Add(time.Duration(minute) * time.Minute),
		})
	}
	long := strings.Repeat(" and so on as it always was in this place", 30)
	say("cat", "The cat is called Miso"+long, 1, 0)
	say("tea", "I prefer tea to coffee.", 1, 1)
	say("other cat", "Noor's cat is called Pixel"+long+long, 3, 0)
	say("who", "Who feeds the parrot?", 5, 0)
	say("reply", "I do.", 5, 1)
	say("parrot", "The parrot has a new cage"+long+long, 7, 0)
	h.CatchUp()
	order := sourcesOf(h.Recall(h.Ask("cat called")))
	if slices.Index(order, "tea") < slices.Index(order, "other cat") || slices.Index(order, "tea") < slices.Index(order, "cat") {
		t.Errorf("%v: the tea is not last", order)
	}
	order = sourcesOf(h.Recall(h.Ask("Who feeds the parrot, so to speak?")))
	if slices.Index(order, "reply") < 0 || slices.Index(order, "reply") > slices.Index(order, "parrot") {
		t.Errorf("%v: the reply is not above what has fewer words than the question before it", order)
	}
}
