package recall_test

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"testing"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/domain/comprehend"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/internal/bench/locomo"
	"github.com/annals-project/annals/internal/bench/score"
	"github.com/annals-project/annals/projections/recall"
	"github.com/annals-project/annals/projections/recall/recalltest"
)

// ownDialogue is a dialogue of 40 turns with 20 questions that was written for this test, between people who do not
// exist. Its format is that of package locomo, with a list of updates.
const ownDialogue = "testdata/dialogue.json"

// update is a question for the current state. Current is the turn that claims it, Superseded the turn with the claim
// before.
type update struct{ Question, Current, Superseded string }

// guarded are the least figures that TestOwnDialogue accepts.
type guarded struct {
	at5, at10, at20, within1000 float64
	// inOrder is how many updates have the current turn above the superseded one.
	inOrder int
}

// TestOwnDialogue guards the quality of recall. A question is worth 5 points; the bounds are a point below what recall
// reaches. That is lexically R@5 .85, R@10 .85, R@20 1, within 1,000 tokens 1; with the hashed embeddings of recalltest
// .825, .85, .95 and .95. If a change trades one question for others, move the bounds.
//
// In every update a claim of the current turn supersedes one of the other turn. So the response shows the superseded
// claim as such, and has the current turn near the top, above the superseded one.
func TestOwnDialogue(t *testing.T) {
	least := guarded{at5: 0.83, at10: 0.84, at20: 0.99, within1000: 0.99, inOrder: 6}
	if os.Getenv(recalltest.EmbeddingsVariable) != "" {
		least = guarded{at5: 0.8, at10: 0.84, at20: 0.94, within1000: 0.94, inOrder: 6}
	}
	talk, updates := readOwnDialogue(t)
	h := recalltest.New(t, nil)
	claims := sendTurns(t, h, talk)
	h.CatchUp()
	dialogue, asked := talk.Dialogue(), talk.AskedAt()
	pages := map[string]recall.Response{}
	var answers []score.Answer
	for _, question := range dialogue.Questions {
		q := h.Ask(question.Text)
		q.Identity, q.At = dialogue.Asker, &asked
		page := h.Recall(q)
		pages[question.Text] = page
		answers = append(answers, score.Answer{Question: question, Results: resultsOf(page)})
	}
	report := score.Measure([]score.Dialogue{dialogue}, answers)
	got := report.Overall
	for _, c := range []struct {
		what       string
		got, least float64
	}{
		{"R@5", got.At[5], least.at5},
		{"R@10", got.At[10], least.at10},
		{"R@20", got.At[20], least.at20},
		{"recall within 1,000 tokens", got.Within[1000], least.within1000},
	} {
		if c.got < c.least {
			t.Errorf("%s is %.3f, below %.3f", c.what, c.got, c.least)
		}
	}
	inOrder := 0
	for _, u := range updates {
		before := claims[u.Superseded]
		if !slices.ContainsFunc(claims[u.Current], func(c claimKey) bool { return slices.Contains(before, c) }) {
			t.Errorf("%q: no claim of %s supersedes one of %s", u.Question, u.Current, u.Superseded)
		}
		if isInOrder(t, pages[u.Question], u, talk) {
			inOrder++
		}
	}
	if inOrder < least.inOrder {
		t.Errorf("%d of %d updates have the current turn above the superseded one, want %d", inOrder, len(updates),
			least.inOrder)
	}
	t.Logf("R@5 %.3f, R@10 %.3f, R@20 %.3f, within 1,000 tokens %.3f; %d of %d updates in order",
		got.At[5], got.At[10], got.At[20], got.Within[1000], inOrder, len(updates))
}

// isInOrder reports whether the current turn of an update is above the superseded one in a response. It checks that the
// current turn is near the top, and that the response shows the superseded claim as such.
func isInOrder(t *testing.T, page recall.Response, u update, talk locomo.Conversation) bool {
	t.Helper()
	const nearTop = 5
	current, superseded := placeOf(page, talk.SourceID(u.Current)), placeOf(page, talk.SourceID(u.Superseded))
	if current > nearTop {
		t.Errorf("%q: the current turn %s is result %d", u.Question, u.Current, current)
	}
	since := talk.Turns[slices.IndexFunc(talk.Turns, func(turn locomo.Turn) bool { return turn.ID == u.Current })].At
	if !slices.ContainsFunc(page.Results, func(r recall.Result) bool {
		return r.Artifact.SupersededAt != nil && r.Artifact.SupersededAt.Equal(since) &&
			r.Sources[0].SourceID == talk.SourceID(u.Superseded)
	}) {
		t.Errorf("%q: no claim of %s is shown as superseded by %s", u.Question, u.Superseded, u.Current)
	}
	if current > superseded {
		t.Logf("%q: result %d supersedes result %d", u.Question, current, superseded)
	}
	return current < superseded
}

func readOwnDialogue(t *testing.T) (locomo.Conversation, []update) {
	t.Helper()
	text, err := os.ReadFile(ownDialogue)
	if err != nil {
		t.Fatal(err)
	}
	talk, err := locomo.Read(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	var more struct{ Updates []update }
	if err := json.Unmarshal(text, &more); err != nil {
		t.Fatal(err)
	}
	return talk, more.Updates
}

// claimKey is what a claim is about: a later claim on the same supersedes it.
type claimKey struct{ subject, attribute string }

// sendTurns sends the turns of a dialogue with their memories. It returns what the claims of each turn are about.
func sendTurns(t *testing.T, h *recalltest.Harness, talk locomo.Conversation) map[string][]claimKey {
	t.Helper()
	claims := map[string][]claimKey{}
	for i, turn := range talk.DataPoints() {
		claims[talk.Turns[i].ID] = sendText(h, recalltest.DataPoint{
			ID: turn.ID, Content: turn.Content, Label: turn.Label, Author: turn.Identity, OccurredAt: talk.Turns[i].At,
		})
	}
	return claims
}

// sendText sends a text with the memories that the built-in extractor reads in it. It returns what the claims are
// about.
func sendText(h *recalltest.Harness, p recalltest.DataPoint) (claims []claimKey) {
	h.Send(p)
	memories := comprehend.Extract(comprehend.Input{
		DataPoint: h.DataPoint(p.ID), Revision: 1, Content: p.Content, Label: p.Label, Author: p.Author,
		OccurredAt: p.OccurredAt,
	})
	h.DeriveMemories(p.ID, 1, p.OccurredAt, false, memories)
	for _, m := range memories {
		if m.Kind == memory.Claim && m.Subject != "" {
			claims = append(claims, claimKey{m.Subject, m.Attribute})
		}
	}
	return claims
}

// resultsOf converts a response to that of a client.
func resultsOf(page recall.Response) []client.RecallResult {
	results := make([]client.RecallResult, len(page.Results))
	for i, r := range page.Results {
		results[i] = client.RecallResult{Rank: i + 1, Content: r.Content}
		for _, s := range r.Sources {
			results[i].Sources = append(results[i].Sources, client.RecallSource{SourceID: s.SourceID, Excerpts: s.Excerpts})
		}
	}
	return results
}

// placeOf returns the rank of the first result that is a source or a memory of it; after all of them if there is none.
func placeOf(page recall.Response, sourceID string) int {
	place := slices.IndexFunc(page.Results, func(r recall.Result) bool { return r.Sources[0].SourceID == sourceID })
	if place < 0 {
		place = len(page.Results)
	}
	return place + 1
}
