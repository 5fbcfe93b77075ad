package recall_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"testing"

	"github.com/annals-project/annals/domain/recall"
)

type turn struct {
	id, speaker, session, text string
}

type question struct {
	text     string
	evidence []string
	category int
}

type dialogue struct {
	turns     []turn
	questions []question
}

var evidenceID = regexp.MustCompile(`D(\d+):(\d+)`)

// load reads the dialogues of a folder.
func load(t testing.TB) []dialogue {
	t.Helper()
	dir := os.Getenv("ANNALS_TEST_LOCOMO")
	if dir == "" {
		t.Skip("ANNALS_TEST_LOCOMO names no folder of dialogues")
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no dialogue in %s: %v", dir, err)
	}
	var out []dialogue
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var raw struct {
			Conversation map[string]json.RawMessage `json:"conversation"`
			QA           []struct {
				Question string   `json:"question"`
				Evidence []string `json:"evidence"`
				Category int      `json:"category"`
			} `json:"qa"`
		}
		if err := json.Unmarshal(data, &raw); err != nil {
			t.Fatal(err)
		}
		var d dialogue
		known := map[string]bool{}
		for key, value := range raw.Conversation {
			var turns []struct {
				Speaker string `json:"speaker"`
				ID      string `json:"dia_id"`
				Text    string `json:"text"`
				Caption string `json:"blip_caption"`
			}
			if !strings.HasPrefix(key, "session_") || json.Unmarshal(value, &turns) != nil {
				continue
			}
			for _, tn := range turns {
				text := tn.Text
				if tn.Caption != "" {
					text += "\n[image: " + tn.Caption + "]"
				}
				d.turns = append(d.turns, turn{tn.ID, tn.Speaker, strings.TrimPrefix(key, "session_"), text})
				known[tn.ID] = true
			}
		}
		for _, q := range raw.QA {
			var ev []string
			for _, e := range q.Evidence {
				for _, m := range evidenceID.FindAllString(e, -1) {
					if known[m] {
						ev = append(ev, m)
					}
				}
			}
			if len(ev) > 0 {
				d.questions = append(d.questions, question{q.Question, ev, q.Category})
			}
		}
		sort.Slice(d.turns, func(i, j int) bool { return d.turns[i].id < d.turns[j].id })
		out = append(out, d)
	}
	return out
}

// TestDialogues ranks every turn for every question, without an engine: what the ranking itself is worth.
func TestDialogues(t *testing.T) {
	dialogues := load(t)
	a := recall.NewAnalyzer()
	cuts := []int{1, 5, 10, 20, 50, 100}
	sum := make([]float64, len(cuts))
	n := 0
	for _, d := range dialogues {
		var docs []recall.Terms
		df := map[string]recall.Count{}
		for _, tn := range d.turns {
			doc := recall.Document{Content: tn.text, Label: tn.speaker + ", session " + tn.session, Author: tn.speaker}
			p := a.Passages(doc)
			if len(p) != 1 {
				t.Fatalf("%d passages of %q", len(p), tn.text)
			}
			docs = append(docs, p[0])
			seen := map[string]bool{}
			for _, w := range p[0].Text {
				if !seen[w] {
					c := df[w]
					c.Text++
					df[w] = c
					seen[w] = true
				}
			}
			for _, w := range p[0].Label {
				c := df[w]
				c.Label++
				df[w] = c
			}
		}
		for _, q := range d.questions {
			if q.category == 5 {
				continue
			}
			query := a.Query(q.text)
			st := recall.Statistics{Docs: len(docs)}
			for _, w := range query {
				st.Frequencies = append(st.Frequencies, df[w])
			}
			w := st.Weights()
			type scored struct {
				id    string
				score float64
			}
			var list []scored
			for i, doc := range docs {
				if s := w.Score(recall.Counts(query, doc), len(doc.Text)); s > 0 {
					list = append(list, scored{d.turns[i].id, s})
				}
			}
			sort.SliceStable(list, func(i, j int) bool { return list[i].score > list[j].score })
			rank := map[string]int{}
			for i, s := range list {
				rank[s.id] = i + 1
			}
			for i, k := range cuts {
				found := 0
				for _, e := range q.evidence {
					if r := rank[e]; r > 0 && r <= k {
						found++
					}
				}
				sum[i] += float64(found) / float64(len(q.evidence))
			}
			n++
		}
	}
	var line strings.Builder
	for i, k := range cuts {
		fmt.Fprintf(&line, " R@%d %.3f", k, sum[i]/float64(n))
	}
	t.Logf("%d questions:%s", n, line.String())
	if math.IsNaN(sum[0]) {
		t.Fatal("no questions")
	}
}
