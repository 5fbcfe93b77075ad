package recallview_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/cmd/annals/internal/recallview"
	domainrecall "github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/projections/recall/explained"
)

var at = time.Date(2025, 5, 12, 9, 30, 0, 0, time.UTC)

func explanation() explained.Explanation {
	last, passed := 3.25, explained.Gate{Passed: true, Audience: explained.ProjectVisible}
	score := explained.Scored{
		Score: 6.16, Signals: []domainrecall.Contribution{{Signal: "words", Value: 5, Weight: 1}, {Signal: "date", Value: 1.08, Weight: 2.5}},
		Factors: []domainrecall.Factor{{Name: "is question", Value: 0.8}}, FoundBy: []string{"words", "memory"},
	}
	return explained.Explanation{
		AsOf: at, Limit: 100, Budget: 8000, UsedEvidenceTokens: 16,
		Question: explained.Question{
			Terms: []explained.Term{
				{Term: "ana", Weight: 1, NamesAuthor: true},
				{Term: "launch", Weight: 2.0791},
				{Term: "~en:launch", StemOf: "launch", Weight: 2.0791},
				{Term: "lunch", SpellingOf: "launch", Weight: 1.5},
			},
			Answer: "time", Author: "Ana", AsksOrder: true, Periods: []explained.Period{{Start: at, End: at.AddDate(0, 1, 0)}},
		},
		Search: explained.Search{Passages: 12, Memories: 1, DataPoints: 12, Checked: 12, Passed: 14, Ranked: 13},
		Results: []explained.Result{
			{Rank: 1, Kind: "source", SourceID: "call\t1", OccurredAt: at, Tokens: 16, Gate: passed, Scored: score},
		},
		Sources: []explained.Source{
			{SourceID: "a", Verdict: explained.NotStored},
			{SourceID: "b", Verdict: explained.RankedBelow, Rank: 2, Why: "place 2 of 2 candidates; the limit is 1", LastScore: &last, Scored: &score},
		},
	}
}

func TestPrintExplanation(t *testing.T) {
	var b strings.Builder
	if err := recallview.PrintExplanation(&b, explanation()); err != nil {
		t.Fatal(err)
	}
	formula := "6.16 = (words 5×1 + date 1.08×2.5) × is question 0.8"
	want := `words: ana 1 (names an author), launch 2.079
other spellings: lunch 1.5 (launch)
asks for: a time, an order of events, what occurred from 2025-05-12 to 2025-06-12, the author Ana
search: 12 passages and 1 memory by words, 0 by embedding alone: 12 data points
gate: 12 checked; 14 passed, neighbours included; 13 ranked
response: as of 2025-05-12T09:30:00Z, limit 100, 16 of 8000 tokens

RANK  KIND    SOURCE     OCCURRED    TOKENS  GATE             FOUND BY       SCORE
1     source  "call\t1"  2025-05-12  16      passed, project  words, memory  ` + formula + `

SOURCE  VERDICT       RANK  REASON                                   SCORE
a       not stored                                                   
b       ranked below  2     place 2 of 2 candidates; the limit is 1  ` + formula + `; the last one has 3.25
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPrintExplanation_Nothing(t *testing.T) {
	var b strings.Builder
	if err := recallview.PrintExplanation(&b, explained.Explanation{AsOf: at, Limit: 1, Budget: 2}); err != nil {
		t.Fatal(err)
	}
	want := `words: none
search: 0 passages and 0 memories by words, 0 by embedding alone: 0 data points
gate: 0 checked; 0 passed, neighbours included; 0 ranked
response: as of 2025-05-12T09:30:00Z, limit 1, 0 of 2 tokens
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

type closedPipe struct{}

func (closedPipe) Write([]byte) (int, error) { return 0, errors.New("closed") }

func TestPrint_ReportsAFailedWrite(t *testing.T) {
	if err := recallview.PrintExplanation(closedPipe{}, explanation()); err == nil {
		t.Error("an explanation that is not written is no error")
	}
	if err := recallview.PrintResponse(closedPipe{}, client.RecallResponse{}, "", false); err == nil {
		t.Error("a response that is not written is no error")
	}
}

func TestPrintResponse_LongText(t *testing.T) {
	lines := []string{"# Guide"}
	for i := range 40 {
		lines = append(lines, fmt.Sprintf("Line %d is about something else.", i))
	}
	lines[11], lines[31] = "The launch moved to June.", "Who launches it is not decided."
	page := client.RecallResponse{Results: []client.RecallResult{
		{Rank: 1, Content: strings.Join(lines, "\n"), OccurredAt: at, Artifact: client.Artifact{Kind: "source"}},
		{Rank: 2, Content: "First.\nSecond.", OccurredAt: at, Artifact: client.Artifact{Kind: "source"}},
		{Rank: 3, Content: strings.Repeat("Nothing of it. ", 200) + "The launch is near. " + strings.Repeat("Nothing of it. ", 99)},
	}}
	var cut, full strings.Builder
	if err := errors.Join(
		recallview.PrintResponse(&cut, page, "When is the launch?", false),
		recallview.PrintResponse(&full, page, "When is the launch?", true),
	); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"   …\n   The launch moved to June.\n   …\n   Who launches it is not decided.\n   …\n", "   First.\n   Second.\n",
		"The launch is near.", "--full prints them whole\n",
	} {
		if !strings.Contains(cut.String(), want) {
			t.Errorf("cut, it lacks %q:\n%s", want, cut.String())
		}
	}
	if strings.Contains(cut.String(), "something else") || len(cut.String()) > 1500 {
		t.Errorf("cut, it has %d bytes:\n%s", cut.Len(), cut.String())
	}
	if n := strings.Count(full.String(), "something else"); n != 38 || strings.Contains(full.String(), "--full") {
		t.Errorf("whole, it has %d lines:\n%s", n, full.String())
	}
}

func TestPrintResponse_LongTextWithoutTheWords(t *testing.T) {
	page := client.RecallResponse{Results: []client.RecallResult{{Rank: 1, Content: "a\nb\nc\nd\ne\nf\ng\n" + strings.Repeat("x", 999)}}}
	var out strings.Builder
	if err := recallview.PrintResponse(&out, page, "launch", false); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "   a\n   b\n   c\n   d\n   e\n   …\n") {
		t.Errorf("printed %q", out.String())
	}
}
