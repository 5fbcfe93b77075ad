package locomo

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/annals-project/annals/internal/client"
)

const sample = `{
  "sample_id": "talk-1",
  "conversation": {
    "speaker_a": "Ana", "speaker_b": "Ben",
    "session_10_date_time": "12:05 am on 2 June, 2024",
    "session_10": [{"speaker": "Ana", "dia_id": "D10:1", "text": "Back again."}],
    "session_2_date_time": "1:56 pm on 8 May, 2024",
    "session_2": [
      {"speaker": "Ana", "dia_id": "D2:1", "text": "I like green tea."},
      {"speaker": "Ben", "dia_id": "D2:2", "text": "Look!", "blip_caption": "a photo of a teapot", "query": "teapot blue", "img_url": ["x"]}
    ],
    "session_11_date_time": "9:00 am on 3 June, 2024"
  },
  "qa": [
    {"question": "What does Ana like?", "answer": "tea", "evidence": ["D2:1"], "category": 4},
    {"question": "What came when?", "answer": "x", "evidence": ["D2:1; D2:02", "D:10:1", "D2:1", "D99:1", "D"], "category": 1},
    {"question": "Nothing?", "answer": "x", "evidence": [], "category": 3},
    {"question": "No turn?", "answer": 7, "evidence": ["D77:1"], "category": 3},
    {"question": "Trick?", "adversarial_answer": "x", "evidence": ["D10:1"], "category": 5}
  ]
}`

func TestReadsTurnsInOrderAndNormalisesEvidence(t *testing.T) {
	got, err := Read(strings.NewReader(sample))
	if err != nil {
		t.Fatal(err)
	}
	may := time.Date(2024, 5, 8, 13, 56, 0, 0, time.UTC)
	want := Conversation{
		ID: "talk-1",
		Turns: []Turn{
			{ID: "D2:1", Speaker: "Ana", Text: "I like green tea.", Session: 2, At: may},
			{ID: "D2:2", Speaker: "Ben", Text: "Look!", Caption: "a photo of a teapot", Session: 2, At: may.Add(time.Second)},
			{ID: "D10:1", Speaker: "Ana", Text: "Back again.", Session: 10, At: time.Date(2024, 6, 2, 0, 5, 0, 0, time.UTC)},
		},
		Questions: []Question{
			{"What does Ana like?", 4, []string{"D2:1"}},
			{"What came when?", 1, []string{"D2:1", "D2:2", "D10:1"}},
			{"Trick?", 5, []string{"D10:1"}},
		},
		Skipped: 2,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestDataPointsOfATurn(t *testing.T) {
	c, err := Read(strings.NewReader(sample))
	if err != nil {
		t.Fatal(err)
	}
	want := client.DataPoint{
		Content: "Look!\n[a photo of a teapot]", ID: "talk-1/D2:2", Label: "Ben, session 2",
		Timestamp: "2024-05-08T13:56:01Z", Identity: "Ben",
	}
	if diff := cmp.Diff(want, c.DataPoints()[1]); diff != "" {
		t.Error(diff)
	}
	if got := c.AskedAt(); !got.After(c.Turns[2].At) {
		t.Errorf("questions are asked at %v, before the last session", got)
	}
}

func TestFilesThatAreNoConversation(t *testing.T) {
	for name, text := range map[string]string{
		"no JSON":       "tea",
		"another shape": `{"chat": []}`,
		"bad start":     strings.Replace(sample, "1:56 pm on 8 May, 2024", "in May", 1),
		"no start":      strings.Replace(sample, "session_2_date_time", "session_3_date_time", 1),
	} {
		if _, err := Read(strings.NewReader(text)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// result is a result of so many tokens that cites these sources.
func result(tokens int, ids ...string) client.Result {
	r := client.Result{Content: strings.Repeat("abcd", tokens)}
	for _, id := range ids {
		r.Sources = append(r.Sources, client.Source{SourceID: id})
	}
	return r
}

func TestMeasure(t *testing.T) {
	filler := make([]client.Result, 9)
	for i := range filler {
		filler[i] = result(100, "f")
	}
	answers := []Answer{
		// Half of the evidence is first, the other half tenth beyond it, behind 1,000 tokens.
		{Category: 1, Evidence: []string{"a", "b"}, Results: append(append([]client.Result{result(100, "a", "a2")}, filler...), result(100, "b")), Took: 10 * time.Millisecond},
		// A memory that cites the turn counts as the turn.
		{Category: 4, Evidence: []string{"c"}, Results: []client.Result{result(1, "x"), result(1, "y", "c")}, Took: 20 * time.Millisecond},
		{Category: 4, Evidence: []string{"d"}, Took: 30 * time.Millisecond},
		// Too long for 1,000 tokens; what stands behind it still fits.
		{Category: 5, Evidence: []string{"e", "g"}, Results: []client.Result{result(1500, "e"), result(1, "g")}, Took: 40 * time.Millisecond},
	}
	got := Measure(answers)
	want := map[string]float64{
		"multi-hop R@5": 0.5, "multi-hop R@10": 0.5, "multi-hop R@20": 1, "multi-hop 1000": 0.5, "multi-hop 2000": 1,
		"single-hop R@5": 0.5, "overall R@5": 0.5, "overall R@100": 2.0 / 3, "adversarial 1000": 0.5, "adversarial 2000": 1,
		"sources": 17.0 / 15, "p50": 20, "p99": 40,
	}
	is := map[string]float64{
		"multi-hop R@5": got.Categories[1].At[5], "multi-hop R@10": got.Categories[1].At[10], "multi-hop R@20": got.Categories[1].At[20],
		"multi-hop 1000": got.Categories[1].Within[1000], "multi-hop 2000": got.Categories[1].Within[2000],
		"single-hop R@5": got.Categories[4].At[5], "overall R@5": got.Overall.At[5], "overall R@100": got.Overall.At[100],
		"adversarial 1000": got.Categories[5].Within[1000], "adversarial 2000": got.Categories[5].Within[2000],
		"sources": got.SourcesPerResult, "p50": got.P50, "p99": got.P99,
	}
	for name, w := range want {
		if math.Abs(is[name]-w) > 1e-9 {
			t.Errorf("%s is %v, want %v", name, is[name], w)
		}
	}
	if got.Overall.Questions != 3 || got.Categories[5].Questions != 1 {
		t.Errorf("counted %+v", got)
	}
	var table strings.Builder
	if err := got.Table(&table); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"R@100", "8000 tok", "multi-hop", "1 to 4", "66.7", "p99 40.0 ms"} {
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
