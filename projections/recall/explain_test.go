package recall_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/projections/recall"
	"github.com/annals-project/annals/projections/recall/explained"
	"github.com/annals-project/annals/projections/recall/recalltest"
)

func explain(t *testing.T, s *recall.Service, q recall.Query, sourceIDs ...string) explained.Explanation {
	t.Helper()
	e, err := explained.Explain(t.Context(), s, q, sourceIDs)
	if err != nil {
		t.Fatalf("explain: %v", err)
	}
	if len(e.Sources) != len(sourceIDs) {
		t.Fatalf("%d sources are explained, want %d", len(e.Sources), len(sourceIDs))
	}
	return e
}

// lost explains one source, which must have a verdict and a reason.
func lost(
	t *testing.T, h *recalltest.Harness, q recall.Query, id string, verdict explained.Verdict, why string,
) explained.Source {
	t.Helper()
	s := explain(t, h.Service(), q, id).Sources[0]
	if s.SourceID != id || s.Verdict != verdict || !strings.Contains(s.Why, why) || why == "" && s.Why != "" {
		t.Errorf("%s: %s (%s), want %s (%s)", id, s.Verdict, s.Why, verdict, why)
	}
	return s
}

// sendDialogue sends a dialogue of two people with memories.
func sendDialogue(h *recalltest.Harness) {
	for n, line := range []string{
		"I moved to the harbour in May.", "How is the harbour?", "Old, and full of ropes. I paint there on Mondays.",
		"Which ropes?", "The ropes of seven ships. My favourite ship is the Swift." + strings.Repeat(" It has sails.", 60), "Nice!",
	} {
		id := fmt.Sprint("turn/", n)
		h.Send(recalltest.DataPoint{
			ID: id, Content: line, Author: []string{"Ana", "Ben"}[n%2], Label: "Talk",
			OccurredAt: at(1 + n/4).Add(time.Duration(n) * time.Minute),
		})
		h.Derive(id, 1, at(1+n/4), false, recalltest.Line{
			Kind: []string{"claim", "event"}[n%2], Content: "Note: " + line[:min(len(line), 60)], Excerpt: line[:min(len(line), 60)], Subject: "ana", Attribute: "place",
		})
	}
	h.CatchUp()
}

func TestExplain_SameAsRecall(t *testing.T) {
	h := recalltest.New(t, nil)
	sendDialogue(h)
	for _, text := range []string{
		"Where is the harbour?", "How many ships does Ana know?", "In what order did Ana see the ropes?", "zebra", "the of and",
		"What happened in May 2025?",
	} {
		for _, change := range []func(*recall.Query){
			func(*recall.Query) {}, func(q *recall.Query) { q.Chronological = true }, func(q *recall.Query) { q.Limit = 2 },
			func(q *recall.Query) { q.Budget = 20 }, func(q *recall.Query) { q.Audiences = nil },
		} {
			q := h.Ask(text)
			change(&q)
			page, e := h.Recall(q), explain(t, h.Service(), q)
			equal(t, "as of", e.AsOf, page.AsOf)
			equal(t, "tokens", e.UsedEvidenceTokens, page.UsedEvidenceTokens)
			type result struct {
				ID       uuid.UUID
				Rank     int
				Kind     string
				SourceID string
			}
			got, want := []result{}, []result{}
			for _, r := range page.Results {
				want = append(want, result{r.ID, r.Rank, r.Artifact.Kind, r.Sources[0].SourceID})
			}
			tokens := 0
			for _, r := range e.Results {
				got = append(got, result{r.ID, r.Rank, r.Kind, r.SourceID})
				tokens += r.Tokens
				checkScore(t, r)
			}
			equal(t, text, got, want)
			equal(t, "sum of tokens", tokens, page.UsedEvidenceTokens)
		}
	}
}

// checkScore checks that the parts of a score make it, and that the result passed the gate.
func checkScore(t *testing.T, r explained.Result) {
	t.Helper()
	score := 0.0
	for _, s := range r.Signals {
		score += s.Value * s.Weight
	}
	for _, f := range r.Factors {
		score *= f.Value
	}
	if r.Score <= 0 || math.Abs(score-r.Score) > 1e-9*r.Score {
		t.Errorf("%s of %s: the parts make %v, the score is %v: %+v", r.Kind, r.SourceID, score, r.Score, r.Scored)
	}
	if len(r.FoundBy) == 0 || !r.Gate.Passed || r.Gate.Audience != explained.ProjectVisible || r.Preview == "" {
		t.Errorf("result %+v", r)
	}
}

func TestExplain_Question(t *testing.T) {
	h := recalltest.New(t, nil)
	sendDialogue(h)
	e := explain(t, h.Service(), h.Ask("When did Ana paint the ropes or another instrument in May 2025?"))
	terms := map[string]explained.Term{}
	for _, term := range e.Question.Terms {
		terms[term.Term] = term
	}
	if !terms["ana"].NamesAuthor || terms["ropes"].NamesAuthor || terms["ropes"].StemOf != "" {
		t.Errorf("terms %+v", terms)
	}
	stems := false
	for _, term := range terms {
		stems = stems || term.StemOf == "ropes"
	}
	q := e.Question
	if !stems || q.Answer != "time" || q.Author != "Ana" || q.AsksOrder || len(q.Periods) != 1 ||
		!q.Periods[0].Start.Equal(time.Date(2025, 5, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("question %+v", q)
	}
	if s := e.Search; s.Ranked == 0 || s.Passages == 0 || s.DataPoints < s.Checked {
		t.Errorf("search %+v", s)
	}
}

// The days that a query names are those of the location of its perspective; the time of the response
// is in UTC.
func TestExplain_DaysOfThePerspective(t *testing.T) {
	h := recalltest.New(t, nil)
	sendDialogue(h)
	pacific := time.FixedZone("", -7*3600)
	perspective := time.Date(2025, 5, 12, 23, 30, 0, 0, pacific)
	q := h.Ask("What happened yesterday?")
	q.At = &perspective
	e := explain(t, h.Service(), q)
	start := time.Date(2025, 5, 11, 0, 0, 0, 0, pacific)
	if p := e.Question.Periods; len(p) != 1 || !p[0].Start.Equal(start) || !p[0].End.Equal(start.AddDate(0, 0, 1)) {
		t.Errorf("periods %+v, want from %s", p, start)
	}
	if e.AsOf.Location() != time.UTC || !e.AsOf.Equal(perspective) {
		t.Errorf("as of %s", e.AsOf)
	}
}

func TestExplain_Returned(t *testing.T) {
	h := recalltest.New(t, nil)
	long := strings.Repeat("Nothing to see here, move along. ", 2000) + "\n\nThe password of the vault is swordfish."
	h.Send(recalltest.DataPoint{ID: "long", Content: long, OccurredAt: at(1)})
	h.Derive("long", 1, at(1), false, recalltest.Line{Kind: "claim", Content: "The vault's password is swordfish", Excerpt: "The password of the vault is swordfish."})
	h.Send(recalltest.DataPoint{ID: "short", Content: "The vault is in the cellar", OccurredAt: at(2)})
	h.CatchUp()
	e := explain(t, h.Service(), h.Ask("password of the vault"), "short", "long", "short")
	for i, want := range []explained.Source{
		{SourceID: "short", Verdict: explained.Returned, Rank: 2},
		{SourceID: "long", Verdict: explained.Returned, Rank: 1, Why: "by a memory of it: claim"},
		{SourceID: "short", Verdict: explained.Returned, Rank: 2},
	} {
		got := e.Sources[i]
		if got.SourceID != want.SourceID || got.Verdict != want.Verdict || got.Rank != want.Rank || got.Why != want.Why ||
			got.Scored == nil || got.Revision != 1 {
			t.Errorf("source %d: %+v", i, got)
		}
	}
}

func TestExplain_NotStored(t *testing.T) {
	h := recalltest.New(t, nil)
	h.Send(recalltest.DataPoint{ID: "gone", Content: "helix gone", OccurredAt: at(1)})
	mine := h.Project
	h.Project.ID = uuid.New() // a neighbour whose source ids have the same data point ids
	h.Send(recalltest.DataPoint{ID: "foreign", Content: "helix foreign", OccurredAt: at(1)})
	h.Project = mine
	h.CatchUp()
	h.Delete("gone")
	h.CatchUp("datapoints", "memories")
	for _, id := range []string{"never", "gone", "foreign", ""} {
		if s := lost(t, h, h.Ask("helix"), id, explained.NotStored, ""); s.Gate != nil || s.Revision != 0 || s.OccurredAt != nil {
			t.Errorf("%s: %+v", id, s)
		}
	}
}

func TestExplain_NotInTheIndex(t *testing.T) {
	h := recalltest.New(t, nil)
	h.Send(recalltest.DataPoint{ID: "old", Content: "vim", OccurredAt: at(1)})
	h.CatchUp()
	h.Send(recalltest.DataPoint{ID: "old", Content: "vim and the launch", OccurredAt: at(1)})
	h.Send(recalltest.DataPoint{ID: "new", Content: "the launch is near", OccurredAt: at(2)})
	h.CatchUp("datapoints", "memories")
	lost(t, h, h.Ask("launch"), "new", explained.NotIndexed, "")
	lost(t, h, h.Ask("launch"), "old", explained.NotIndexed, "the index has revision 1, the newest is 2")
	h.CatchUp()
	lost(t, h, h.Ask("launch"), "new", explained.Returned, "")
	lost(t, h, h.Ask("launch"), "old", explained.Returned, "")
}

func TestExplain_NotAmongTheCandidates(t *testing.T) {
	h := recalltest.New(t, nil)
	for n := range 310 {
		// No two have the same score.
		content := strings.Repeat("helix ", 1+n%31) + fmt.Sprint(n) + strings.Repeat(" more", n/31)
		h.Send(recalltest.DataPoint{ID: fmt.Sprint("note", n), Content: content, OccurredAt: at(1)})
	}
	h.Send(recalltest.DataPoint{ID: "long", Content: "One word of helix among many others, which make it a long text about ropes, ships, harbours and tea", OccurredAt: at(1)})
	h.Send(recalltest.DataPoint{ID: "tea", Content: "Tea with milk", OccurredAt: at(1)})
	h.CatchUp()
	s := lost(t, h, h.Ask("helix"), "long", explained.NotCandidate, "the best 300 passages by words")
	if s.Scored == nil || s.LastScore == nil || s.Score <= 0 || s.Score > *s.LastScore ||
		!slices.Equal(s.Words, []string{"helix", "~en:helix"}) {
		t.Errorf("crowded out: %+v", s)
	}
	lost(t, h, h.Ask("helix"), "tea", explained.NotCandidate, "it has none of the question's words")
	// Of so few passages, the best 250 of the 300 were ranked.
	q := h.Ask("helix")
	q.Limit = 5
	e := explain(t, h.Service(), q)
	if e.Search.Checked < 250 || e.Search.Checked > 252 || e.Search.DataPoints < 300 { // with what equals the last
		t.Fatalf("search %+v", e.Search)
	}
	ids, below := []string{}, 0
	for n := range 100 {
		ids = append(ids, fmt.Sprint("note", n))
	}
	for _, s := range explain(t, h.Service(), q, ids...).Sources {
		if s.Verdict == explained.RankedBelow && strings.Contains(s.Why, fmt.Sprintf("the best %d were ranked", e.Search.Checked)) && s.Rank == 0 {
			below++
		}
	}
	if below == 0 {
		t.Error("no source is below those that were ranked")
	}
}

func TestExplain_RefusedByTheGate(t *testing.T) {
	h := recalltest.New(t, nil)
	team := uuid.New()
	h.Send(recalltest.DataPoint{ID: "team", Content: "helix of the team", OccurredAt: at(2), Audience: team})
	h.Send(recalltest.DataPoint{ID: "early", Content: "helix early", OccurredAt: at(1)})
	h.Send(recalltest.DataPoint{ID: "late", Content: "helix late", OccurredAt: at(9)})
	h.Send(recalltest.DataPoint{ID: "revised", Content: "helix of old", OccurredAt: at(3)})
	h.CatchUp()
	h.Send(recalltest.DataPoint{ID: "revised", Content: "something else", OccurredAt: at(3)})
	h.CatchUp("datapoints", "memories")
	q := h.Ask("helix")
	from, to, perspective := at(2), at(5), at(5)
	q.From = &from
	lost(t, h, q, "team", explained.Refused, "audience not reached: "+team.String())
	lost(t, h, q, "early", explained.Refused, "outside the window: it occurred at 2025-05-01")
	lost(t, h, q, "revised", explained.Refused, "older revision")
	q.At = &perspective
	lost(t, h, q, "late", explained.Refused, "after the perspective 2025-05-05")
	q.At, q.To = nil, &to
	s := lost(t, h, q, "late", explained.Refused, "outside the window")
	if s.Gate == nil || s.Gate.Passed || s.Gate.Audience != explained.ProjectVisible {
		t.Errorf("gate %+v", s.Gate)
	}
	q.To, q.Audiences = nil, []uuid.UUID{uuid.Nil, team}
	if s := lost(t, h, q, "team", explained.Returned, ""); !s.Gate.Passed || s.Gate.Audience != team.String() {
		t.Errorf("gate %+v", s.Gate)
	}
}

func TestExplain_RankedBelow(t *testing.T) {
	h := recalltest.New(t, nil)
	h.Send(recalltest.DataPoint{ID: "best", Content: "helix helix helix", OccurredAt: at(1)})
	h.Send(recalltest.DataPoint{ID: "second", Content: "helix and other editors", OccurredAt: at(1)})
	h.CatchUp()
	q := h.Ask("helix")
	q.Limit = 1
	e := explain(t, h.Service(), q, "second")
	s := e.Sources[0]
	if s.Verdict != explained.RankedBelow || s.Rank != 2 || s.LastScore == nil || *s.LastScore != e.Results[0].Score ||
		s.Score <= 0 || s.Score >= *s.LastScore || len(s.Signals) == 0 ||
		s.Why != "place 2 of 2 candidates; the limit of 1 is reached, memories included" {
		t.Errorf("source %+v", s)
	}
}

func TestExplain_OverTheBudget(t *testing.T) {
	h := recalltest.New(t, nil)
	long := "helix helix " + strings.Repeat("word ", 100)
	h.Send(recalltest.DataPoint{ID: "long", Content: long, OccurredAt: at(1)})
	h.Send(recalltest.DataPoint{ID: "heavy", Content: strings.Repeat("helix ", 40) + "heavy", OccurredAt: at(1)})
	h.Send(recalltest.DataPoint{ID: "big", Content: "helix in a blob " + long, OccurredAt: at(1), Big: true})
	h.Send(recalltest.DataPoint{ID: "short", Content: "helix helix helix", OccurredAt: at(2)})
	h.CatchUp()
	q := h.Ask("helix")
	q.Budget = 20
	s := lost(t, h, q, "long", explained.OverBudget, "it has 128 tokens, 1")
	if s.Tokens == nil || *s.Tokens != 128 || s.TokensLeft == nil || *s.TokensLeft >= 20 || s.Rank == 0 {
		t.Errorf("long: %+v", s)
	}
	if s := lost(t, h, q, "big", explained.OverBudget, "tokens, "); s.Tokens == nil || *s.Tokens <= 128 {
		t.Errorf("big: %+v", s)
	}
	lost(t, h, q, "short", explained.Returned, "")
	q.Limit = 1 // reached after its turn
	lost(t, h, q, "heavy", explained.OverBudget, "it has 62 tokens, 20 were left")
	q.Limit = 100
	// The budget is used up before its turn comes.
	q.Budget = 5
	h.Send(recalltest.DataPoint{ID: "late", Content: "helix late", OccurredAt: at(1)})
	h.CatchUp()
	if s := lost(t, h, q, "late", explained.OverBudget, "it has 3 tokens, 0 were left"); s.TokensLeft == nil || *s.TokensLeft != 0 {
		t.Errorf("late: %+v", s)
	}
}

func TestExplain_NamesAudiences(t *testing.T) {
	v := newViewerFixture(t)
	staff := uuid.New()
	v.ensureIdentity("ana", nil)
	v.ensureIdentity("bo", nil)
	v.fix(staff, "bo")
	v.send("staff", "apples of staff", staff)
	v.CatchUp()
	slug := "a-" + staff.String()[:8]
	for name, want := range map[string]explained.Verdict{"ana": explained.Refused, "bo": explained.Returned, "nobody": explained.Refused} {
		q := recall.Query{Project: v.Project, Text: "apples", Identity: name, Limit: 100, Budget: 8000}
		s := explain(t, v.service, q, "staff").Sources[0]
		if s.Verdict != want || s.Gate.Audience != slug || want == explained.Refused && s.Why != "audience not reached: "+slug {
			t.Errorf("%s: %+v, gate %+v", name, s, s.Gate)
		}
	}
}
