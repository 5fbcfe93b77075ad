package recall_test

import (
	"fmt"
	"testing"

	"github.com/annals-project/annals/projections/recall/recalltest"
)

// A recorded claim is below the one that supersedes it, unless the question names a value that only the earlier has.
func TestRecall_SupersededClaims(t *testing.T) {
	h := recalltest.New(t, nil)
	for _, c := range []struct {
		name string
		// texts are by ana, a day apart.
		texts []string
		// first has the index of the text that must be first, by question.
		first map[string]int
	}{
		{"favourite", []string{"My favourite editor is Vim.", "My favourite editor is Helix."}, map[string]int{
			"What is Ana's favourite editor?": 1, "Which editor does Ana like best, what is her favourite?": 1,
			"Is Ana's favourite editor Vim?": 0, "Is Ana's favourite editor Helix?": 1, "Vim": 0, "Helix": 1,
		}},
		{"three values", []string{
			"My favourite city is Gent.", "My favourite city is Lund.", "My favourite city is Cork.",
		}, map[string]int{
			"What is Ana's favourite city?": 2, "Is Ana's favourite city Gent?": 0, "Is Ana's favourite city Lund?": 1,
			"Is Ana's favourite city Cork?": 2,
		}},
		{"two subjects", []string{
			"My favourite tea is Assam.", "My favourite cheese is Gouda.", "My favourite tea is Sencha.",
		}, map[string]int{
			"What is Ana's favourite tea?": 2, "What is Ana's favourite cheese?": 1, "Is Ana's favourite tea Assam?": 0,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inNewProject(h)
			claims := map[string][]claimKey{}
			for i, text := range c.texts {
				id := fmt.Sprint(i)
				claims[id] = sendText(h, recalltest.DataPoint{ID: id, Content: text, Author: "ana", OccurredAt: at(1 + i)})
			}
			sendEveryday(h)
			h.CatchUp()
			if len(claims["0"]) != 1 || claims["0"][0] != claims[fmt.Sprint(len(c.texts)-1)][0] {
				t.Fatalf("the claims are %v: the last supersedes none", claims)
			}
			for question, want := range c.first {
				page := h.Recall(h.Ask(question))
				if place := placeOfSource(page, fmt.Sprint(want)); place != 0 {
					t.Errorf("%s: %q is result %d of %q", question, c.texts[want], place, contents(page))
				}
			}
		})
	}
}
