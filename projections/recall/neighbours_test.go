package recall_test

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/projections/recall/recalltest"
)

// The data points right before and after a result come along if the viewer may read them, if they
// have an author and are of the same hour, and if they are in the window.
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
		{"for the team", []uuid.UUID{uuid.Nil, team}, func() {}, []string{"after", "before", "found", "secret"}},
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
