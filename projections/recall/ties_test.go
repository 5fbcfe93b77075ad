package recall_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/annals-project/annals/projections/recall/recalltest"
)

// More texts tie for the last place among the first candidates than are read with their data points. The best ones are
// read all the same, and compared: a text that restates another goes below one that states something else.
func TestRecall_ManyTiesAtTheEnd(t *testing.T) {
	h := recalltest.New(t, nil)
	for n := range 320 {
		text := "The harbour is old."
		switch {
		case n < 10:
			text = "The harbour has ropes and sails."
		case n < 20:
			text = "The harbour has ropes and boats."
		}
		h.Send(recalltest.DataPoint{
			ID: fmt.Sprint("turn/", n), Content: text, OccurredAt: at(1).Add(time.Duration(n) * time.Minute),
		})
	}
	h.CatchUp()
	q := h.Ask("harbour ropes")
	q.Limit = 10
	found := h.Recall(q).Results
	if len(found) != q.Limit || found[0].Content != "The harbour has ropes and boats." ||
		found[1].Content != "The harbour has ropes and sails." {
		t.Errorf("%d results, the first are %q and %q", len(found), found[0].Content, found[1].Content)
	}
}
