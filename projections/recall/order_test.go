package recall_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/annals-project/annals/projections/recall/recalltest"
	"github.com/annals-project/annals/projections/recallindex"
)

// orderedTexts are texts of which many have the same score for a question.
func orderedTexts() (texts []recalltest.DataPoint) {
	r := rand.New(rand.NewPCG(30, 2))
	for i := range 120 {
		texts = append(texts, recalltest.DataPoint{
			ID: fmt.Sprintf("%x", (i*7919)%120), Content: sentence(r, 3+i%4), Author: []string{"ana", "ben"}[i%2],
			OccurredAt: at(1).Add(time.Duration(i/6) * time.Hour),
		})
	}
	return texts
}

// The same texts have the same order in every project, whatever their uuids are, in which order they were sent, and
// after a rebuild of the index.
func TestRecall_SameOrderInEveryProject(t *testing.T) {
	h := recalltest.New(t, nil)
	texts, questions := orderedTexts(), slices.Clone(contentWords[:30])
	for i := range len(questions) - 1 {
		questions = append(questions, contentWords[i]+" and "+contentWords[i+1]+"?")
	}
	send := func(texts []recalltest.DataPoint) {
		inNewProject(h)
		for _, p := range texts {
			sendText(h, p)
		}
		h.CatchUp()
	}
	ask := func() (orders []string) {
		for _, question := range questions {
			orders = append(orders, question+": "+strings.Join(sourcesOf(h.Recall(h.Ask(question))), " "))
		}
		return orders
	}
	send(texts)
	want := ask()
	check := func(what string) {
		t.Helper()
		different := 0
		for i, got := range ask() {
			if got == want[i] {
				continue
			}
			if different++; different == 1 {
				t.Errorf("%s finds\n%s, want\n%s", what, got, want[i])
			}
		}
		if different > 0 {
			t.Errorf("%s: %d of %d questions have another order", what, different, len(questions))
		}
	}
	for n := range 3 {
		send(texts)
		check(fmt.Sprintf("project %d of equal texts", n+2))
	}
	shuffled := slices.Clone(texts)
	r := rand.New(rand.NewPCG(30, 3))
	r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	send(shuffled)
	check("a project of texts sent in another order")
	index := h.Projector(recallindex.Name)
	if err := index.(interface{ Reset(context.Context) error }).Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.MakeSchema(index)
	h.CatchUp()
	check("after a rebuild of the index, that project")
}

// Of equal scores the newer comes first, then the lesser source id, byte by byte.
func TestRecall_Ties(t *testing.T) {
	h := recalltest.New(t, nil)
	byBytes := []string{"10", "9", "B", "a", "aa", "b", "~", "ä", "日"}
	for n := range 4 {
		inNewProject(h)
		var want []string
		for _, day := range []int{2, 1, 0} {
			for _, id := range byBytes {
				want = append(want, id+fmt.Sprint("/", day))
			}
		}
		order := rand.New(rand.NewPCG(30, uint64(n))).Perm(len(want))
		for _, i := range order {
			// No two say the same, and all are of one length, so that their scores are equal.
			h.Send(recalltest.DataPoint{
				ID: want[i], Content: fmt.Sprintf("helix x%02dy", i), OccurredAt: at(3 - i/len(byBytes)), Author: "ana",
			})
		}
		h.CatchUp()
		equal(t, fmt.Sprint("project ", n), sourcesOf(h.Recall(h.Ask("helix"))), want)
	}
}
