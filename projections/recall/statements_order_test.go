package recall_test

import (
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/projections/recall"
	"github.com/annals-project/annals/projections/recall/recalltest"
)

// A later statement that the viewer may not read moves nothing: the page is as in a project without it.
func TestRecall_LaterStatementOfAnotherAudience(t *testing.T) {
	board := uuid.New()
	page := func(audiences []uuid.UUID, later ...recalltest.DataPoint) recall.Response {
		h := recalltest.New(t, nil)
		sendText(h, recalltest.DataPoint{ID: "first", Content: "Gate code is 4471.", Author: "ana", OccurredAt: at(1)})
		sendText(h, recalltest.DataPoint{ID: "other", Content: "The gate needs oil.", Author: "ana", OccurredAt: at(3)})
		for _, p := range later {
			sendText(h, p)
		}
		h.CatchUp()
		q := h.Ask("What is the gate code?")
		q.Audiences = audiences
		return h.Recall(q)
	}
	later := recalltest.DataPoint{
		ID: "second", Content: "Gate code is 9020.", Author: "ana", OccurredAt: at(2), Audience: board,
	}
	without, outsider := page([]uuid.UUID{uuid.Nil}), page([]uuid.UUID{uuid.Nil}, later)
	equal(t, "for an outsider", sourcesOf(outsider), sourcesOf(without))
	equal(t, "tokens for an outsider", outsider.UsedEvidenceTokens, without.UsedEvidenceTokens)
	for _, r := range outsider.Results {
		if r.Artifact.SupersededAt != nil {
			t.Errorf("%q is superseded for an outsider", r.Content)
		}
	}
	if first := sourcesOf(page([]uuid.UUID{uuid.Nil, board}, later)); first[0] != "second" || first[1] != "first" {
		t.Errorf("for the board: %v", first)
	}
}

// A long text is compared by its best passage, and a text that was corrected since by what it states now.
func TestRecall_LaterStatementInLongText(t *testing.T) {
	h := recalltest.New(t, nil)
	padding := ""
	for range 60 {
		padding += "The weather on the pier was as it always is in autumn, grey and calm.\n"
	}
	for day, code := range []string{"owl", "lynx", "swan"} {
		h.Send(recalltest.DataPoint{
			ID: code, Content: "The password of the vault is " + code + ".\n\n" + padding, Author: "ana", OccurredAt: at(1 + day),
		})
	}
	h.CatchUp()
	q := h.Ask("What is the password of the vault?")
	q.Budget = 32000
	equal(t, "order", sourcesOf(h.Recall(q)), []string{"swan", "lynx", "owl"})
}
