package recall_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

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
		{"short texts, a small limit", "", 50, 8000, 128},
		{"short texts, a small budget", "", 100, 100, 128},
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

// A response that the budget ends is full: no more candidates are looked up for what is left of the budget.
func TestRecall_FullByBudget(t *testing.T) {
	h := recalltest.New(t, nil)
	for n := range 260 {
		// No two have the same score or state the same.
		content := strings.Repeat("Harbour ", 1+n%4) + fmt.Sprint("n", n) + strings.Repeat(" and so on", 100+n/4)
		h.Send(recalltest.DataPoint{ID: fmt.Sprint(n), Content: content, OccurredAt: at(1)})
	}
	h.CatchUp()
	q := h.Ask("What about the harbour?")
	for budget, checked := range map[int]int{1000: 128, 250: 260} { // the shortest text costs 252 tokens
		q.Budget = budget
		if e := explain(t, h.Service(), q); e.Search.Checked != checked {
			t.Errorf("within %d tokens %d candidates were checked, want %d", budget, e.Search.Checked, checked)
		}
	}
}
