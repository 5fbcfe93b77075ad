package score

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/domain/recall"
)

// result is a result of so many tokens that cites these sources.
func result(tokens int, ids ...string) client.RecallResult {
	r := client.RecallResult{Content: strings.Repeat("abcd", tokens)}
	for _, id := range ids {
		r.Sources = append(r.Sources, client.RecallSource{SourceID: id})
	}
	return r
}

func TestMeasure(t *testing.T) {
	filler := make([]client.RecallResult, 9)
	for i := range filler {
		filler[i] = result(100, "f")
	}
	answers := []Answer{
		// Half of the evidence is first; the other half is tenth after it, beyond 1,000 tokens.
		{Question: Question{Category: "multi-hop", Evidence: []string{"a", "b"}}, Results: append(append([]client.RecallResult{result(100, "a", "a2")}, filler...), result(100, "b")), Took: 10 * time.Millisecond},
		// A memory that cites the turn counts as the turn.
		{Question: Question{Category: "single-hop", Evidence: []string{"c"}}, Results: []client.RecallResult{result(1, "x"), result(1, "y", "c")}, Took: 20 * time.Millisecond},
		{Question: Question{Category: "single-hop", Evidence: []string{"d"}}, Took: 30 * time.Millisecond},
		// Too long for 1,000 tokens; the next result still fits.
		{Question: Question{Category: "adversarial", Excluded: true, Evidence: []string{"e", "g"}}, Results: []client.RecallResult{result(1500, "e"), result(1, "g")}, Took: 40 * time.Millisecond},
	}
	got := Measure(nil, answers)
	want := map[string]float64{
		"multi-hop R@5": 0.5, "multi-hop R@10": 0.5, "multi-hop R@20": 1, "multi-hop 1000": 0.5, "multi-hop 2000": 1,
		"single-hop R@5": 0.5, "overall R@5": 0.5, "overall R@100": 2.0 / 3, "adversarial 1000": 0.5, "adversarial 2000": 1,
		"sources": 17.0 / 15, "p50": 20, "p99": 40,
	}
	is := map[string]float64{
		"multi-hop R@5": got.Categories["multi-hop"].At[5], "multi-hop R@10": got.Categories["multi-hop"].At[10], "multi-hop R@20": got.Categories["multi-hop"].At[20],
		"multi-hop 1000": got.Categories["multi-hop"].Within[1000], "multi-hop 2000": got.Categories["multi-hop"].Within[2000],
		"single-hop R@5": got.Categories["single-hop"].At[5], "overall R@5": got.Overall.At[5], "overall R@100": got.Overall.At[100],
		"adversarial 1000": got.Categories["adversarial"].Within[1000], "adversarial 2000": got.Categories["adversarial"].Within[2000],
		"sources": got.SourcesPerResult, "p50": got.P50, "p99": got.P99,
	}
	for name, w := range want {
		if math.Abs(is[name]-w) > 1e-9 {
			t.Errorf("%s is %v, want %v", name, is[name], w)
		}
	}
	if got.Overall.Questions != 3 || got.Categories["adversarial"].Questions != 1 {
		t.Errorf("counted %+v", got)
	}
	var table strings.Builder
	if err := got.Table(&table); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"R@100", "8000 tok", "multi-hop", "all of these", "66.7", "p99 40.0 ms"} {
		if !strings.Contains(table.String(), text) {
			t.Errorf("table lacks %q:\n%s", text, table.String())
		}
	}
}

func TestPercentile(t *testing.T) {
	if got := Percentile([]int{}, 0.5); got != 0 {
		t.Errorf("of nothing: %d", got)
	}
	hundred := make([]int, 100)
	for i := range hundred {
		hundred[i] = i + 1
	}
	for p, want := range map[float64]int{0: 1, 0.5: 50, 0.99: 99, 1: 100} {
		if got := Percentile(hundred, p); got != want {
			t.Errorf("p%v is %d, want %d", p, got, want)
		}
	}
}

// talk is a dialogue of three turns.
func talk() Dialogue {
	return Dialogue{
		ID: "talk", Asker: "Ana", AskedAt: time.Date(2025, 6, 1, 0, 0, 0, 0, time.UTC),
		DataPoints: []client.DataPoint{
			{ID: "1", Content: "Which tea do you like?", Identity: "Ben", Timestamp: "2025-05-12T09:00:00Z"},
			{ID: "2", Content: "Green, and the walking", Identity: "Ana", Timestamp: "2025-05-12T09:00:01Z"},
			{ID: "3", Content: "Trains are late", Identity: "Ben", Timestamp: "2025-05-20T09:00:00Z"},
		},
		Questions: []Question{
			{Text: "What did the walks do?", Category: "one", Evidence: []string{"2"}},
			{Text: "Which tea does Ana like?", Category: "one", Evidence: []string{"2"}},
			{Text: "late trains", Category: "two", Excluded: true, Evidence: []string{"1"}},
		},
	}
}

func TestBaseline(t *testing.T) {
	var found []string
	for _, a := range baseline(talk()) {
		ids := ""
		for _, r := range a.Results {
			ids += r.Sources[0].SourceID
		}
		found = append(found, ids)
	}
	// The stem of "walks" is in 2, "do" in 1; nothing of "tea" is in 2.
	if want := "21 1 3"; strings.Join(found, " ") != want {
		t.Errorf("found %v, want %s", found, want)
	}
	report := Measure([]Dialogue{talk()}, nil)
	if report.Baseline.Questions != 2 || report.Baseline.At[5] != 0.5 || report.Turns != 3 {
		t.Errorf("got %+v", report)
	}
}

func TestAblation(t *testing.T) {
	ablated, err := Ablate([]Dialogue{talk()}, recall.Signals()...)
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]float64{}
	for _, a := range ablated {
		at[a.Without] = a.Score.At[5]
		if a.Score.Questions != 2 {
			t.Errorf("without %q: %+v", a.Without, a.Score)
		}
	}
	// The answer comes after the question that shares its words.
	if at[""] != 1 || at["size"] != 1 || len(at) < 10 {
		t.Errorf("got %v", at)
	}
	broken := talk()
	broken.DataPoints[0].Timestamp = "yesterday"
	if _, err := Ablate([]Dialogue{broken}); err == nil {
		t.Error("a time that is none is taken")
	}
}

func TestAnswer_Missing(t *testing.T) {
	many := make([]client.RecallResult, 100)
	for i := range many {
		many[i] = result(1, "f")
	}
	for name, c := range map[string]struct {
		results []client.RecallResult
		want    []string
	}{
		"nothing is found":       {nil, []string{"a", "b"}},
		"one is found":           {[]client.RecallResult{result(10, "b", "x")}, []string{"a"}},
		"one is result 101":      {append(many[:100:100], result(1, "a"), result(1, "b")), []string{"a", "b"}},
		"one is result 100":      {append(many[:99:99], result(1, "a"), result(1, "b")), []string{"b"}},
		"one exceeds the rest":   {[]client.RecallResult{result(7000, "x"), result(1500, "a"), result(1000, "b")}, []string{"a"}},
		"both fit exactly":       {[]client.RecallResult{result(4000, "a"), result(4000, "b")}, nil},
		"by a memory that cites": {[]client.RecallResult{result(1, "a", "b")}, nil},
	} {
		got := Answer{Question: Question{Evidence: []string{"a", "b"}}, Results: c.results}.Missing()
		if len(got) == 0 {
			got = nil
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestPrintMisses(t *testing.T) {
	var b strings.Builder
	misses := []Miss{
		{Category: "temporal", Cause: "ranked below"},
		{Category: "multi-hop", Cause: "ranked below"},
		{Category: "temporal", Cause: "ranked below"},
		{Category: "temporal", Cause: "not in the index"},
	}
	if err := PrintMisses(&b, misses, []string{"not stored", "not in the index", "ranked below"}); err != nil {
		t.Fatal(err)
	}
	var got [][]string
	for line := range strings.Lines(strings.TrimSpace(b.String())) {
		got = append(got, strings.Fields(line))
	}
	want := [][]string{
		{"misses", "among", "100", "results", "and", "8000", "tokens:", "4"},
		{"cause", "multi-hop", "temporal", "all"},
		{"not", "in", "the", "index", "0", "1", "1"},
		{"ranked", "below", "1", "2", "3"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	b.Reset()
	if err := PrintMisses(&b, nil, nil); err != nil || b.String() != "\nmisses among 100 results and 8000 tokens: 0\n" {
		t.Errorf("%q, %v", b.String(), err)
	}
}
