package locomo

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/bench/score"
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

func TestRead_TurnsAndEvidence(t *testing.T) {
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

func TestTurn_DataPoints(t *testing.T) {
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

func TestRead_NotAConversation(t *testing.T) {
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

func TestDialogue(t *testing.T) {
	c, err := Read(strings.NewReader(sample))
	if err != nil {
		t.Fatal(err)
	}
	d := c.Dialogue()
	want := []score.Question{
		{Text: "What does Ana like?", Category: "single-hop", Evidence: []string{"talk-1/D2:1"}},
		{Text: "What came when?", Category: "multi-hop", Evidence: []string{"talk-1/D2:1", "talk-1/D2:2", "talk-1/D10:1"}},
		{Text: "Trick?", Category: "adversarial", Excluded: true, Evidence: []string{"talk-1/D10:1"}},
	}
	if diff := cmp.Diff(want, d.Questions); diff != "" {
		t.Error(diff)
	}
	if d.Asker != "Ana" || len(d.DataPoints) != 3 || d.Skipped != 2 || !d.AskedAt.Equal(c.AskedAt()) {
		t.Errorf("got %+v", d)
	}
}
