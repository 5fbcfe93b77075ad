package recall_test

import (
	"fmt"
	"strings"
	"testing"

	domainrecall "github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/projections/recall/recalltest"
)

// If the first candidates do not fill the response, it takes from all the others.
func TestRecall_FirstCandidatesDoNotFill(t *testing.T) {
	h := recalltest.New(t, nil)
	for n := range 40 {
		// The fewer words, the better. No two state the same.
		h.Send(recalltest.DataPoint{
			ID: fmt.Sprint(n), Content: fmt.Sprint("helix n", n) + strings.Repeat(" internationalization", 5+n),
			OccurredAt: at(1),
		})
	}
	// This one has the most words and the fewest letters: it ranks last and still fits.
	small := strings.Repeat("q ", 50) + "helix"
	h.Send(recalltest.DataPoint{ID: "small", Content: small, OccurredAt: at(1)})
	h.Send(recalltest.DataPoint{ID: "memory", Content: strings.Repeat("unrelated ", 400), OccurredAt: at(1)})
	h.Derive("memory", 1, at(1), false,
		recalltest.Line{Kind: "observation", Content: strings.Repeat("q ", 90) + "helix", Excerpt: "unrelated"})
	h.CatchUp()
	q := h.Ask("helix")
	q.Limit = 3 // eleven are authorized at first
	full := contents(h.Recall(q))
	if len(full) != 3 || len(full[0]) > len(full[1]) || len(full[1]) > len(full[2]) {
		t.Fatalf("the page is %.100q", full)
	}
	// Two of the best leave room for the small one only.
	q.Budget = domainrecall.Tokens(full[0]) + domainrecall.Tokens(full[1]) + domainrecall.Tokens(small)
	page := h.Recall(q)
	if got := len(page.Results); got != 3 || page.Results[2].Sources[0].SourceID != "small" {
		t.Errorf("%d results of %d tokens: %.100q", got, page.UsedEvidenceTokens, contents(page))
	}
	// With enough room the last of all is there, too, although only its memory was found.
	q.Limit, q.Budget = 200, 32000
	page = h.Recall(q)
	found := map[string]bool{}
	for _, r := range page.Results {
		found[r.Sources[0].SourceID] = true
	}
	if len(found) != 42 || !found["memory"] {
		t.Errorf("%d data points are found, the one by its memory: %t", len(found), found["memory"])
	}
}

// Of equal scores the newer come first, however many data points were authorized.
func TestRecall_TiesAcrossFirstCandidates(t *testing.T) {
	h := recalltest.New(t, nil)
	for n := range 60 {
		h.Send(recalltest.DataPoint{ID: fmt.Sprint(n), Content: fmt.Sprintf("helix n%d", n), OccurredAt: at(20).AddDate(0,
			0, -n/2)})
	}
	h.CatchUp()
	q := h.Ask("helix")
	for _, limit := range []int{1, 2, 5, 17, 40, 60} {
		q.Limit = limit
		page := h.Recall(q)
		if len(page.Results) != limit {
			t.Fatalf("%d results, want %d", len(page.Results), limit)
		}
		for i, r := range page.Results {
			if want := at(20).AddDate(0, 0, -i/2); !r.OccurredAt.Equal(want) {
				t.Errorf("limit %d: result %d occurred at %s, want %s", limit, i, r.OccurredAt, want)
			}
		}
	}
}
