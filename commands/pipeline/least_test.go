package pipeline

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/internal/bench/beam"
	"github.com/annals-project/annals/internal/bench/locomo"
	"github.com/annals-project/annals/internal/bench/score"
	"github.com/annals-project/annals/internal/client"
	"github.com/annals-project/annals/internal/minilm"
	"github.com/annals-project/annals/internal/quantized"
	"github.com/annals-project/annals/internal/work"
)

// nonsense are texts that mean nothing: noise of a keyboard, words that do not exist, and signs.
var nonsense = []string{
	"asdf", "asdfghjkl", "qwertz", "qwer tzui", "zorblat quindle freppish", "xkcdvq", "blorf", "hjkl hjkl", "aaaaaaaa",
	"sdkfjh sdkfjh sldkfj", "fnord grelb wimple", "lkjhgfdsa", "zzzz", "vbnm,.", "ploff der grintz", "uiop", "wqertyu ipo",
	"jfjfjf", "dkdkdk slsl", "mxyzptlk", "yxcvbnm", "grumfle", "trab pukker", "ыва олдж", "фыва", "hgfd jklö", "oiuztr",
	"sploink", "1234 asdf", "qqq www eee",
}

// absent are questions about what no dialogue holds, in several languages, and single rare words.
var absent = []string{
	"What is the capital of Mongolia?", "How many moons does Neptune have?", "Who invented the steam turbine?",
	"Which enzyme breaks down lactose?", "When did the Hanseatic League end?", "boiling point of tungsten",
	"What is the exchange rate of the Malawian kwacha?", "How is a bassoon reed made?", "rules of cricket",
	"Where was the treaty of Tordesillas signed?", "kubernetes ingress timeout", "invoice 4711 of Contoso",
	"The password of the Wi-Fi in the Oslo office", "Which customs form does a horse need?", "depth of the Mariana Trench",
	"Wie hoch ist der Kilimandscharo?", "Welche Farbe hat der Dienstwagen des Ministers?", "Quelle est la capitale du Tchad ?",
	"Combien de pattes a une araignée ?", "¿Cuándo se fundó la ciudad de Cuzco?", "Qual è il fiume più lungo d'Europa?",
	"Hoeveel provincies heeft Nederland?", "Vem skrev Röda rummet?", "Кто написал Войну и мир?", "モンゴルの首都はどこですか", "蒙古的首都是哪里",
	"ما هي عاصمة منغوليا؟", "몽골의 수도는 어디입니까?", "zeugma", "palimpsest", "syzygy", "borborygmus", "Schadenfreude", "quincunx",
	"usufruct", "antimacassar", "tmesis", "xenolith", "Bartholomew", "kubernetes",
}

// encodedText is a data point as semantic search knows it.
type encodedText struct {
	id      string
	terms   map[string]bool
	vectors []memory.Vector
}

// cosine is that of the best vector, as projections/embeddings compares them.
func (e *encodedText) cosine(scale float32, code []int16) float64 {
	best := -1.0
	for _, v := range e.vectors {
		best = max(best, float64(scale*v.Scale)*float64(quantized.Dot(code, v.Code)))
	}
	return best
}

// leastMeasure encodes texts and questions with the built-in model, each once.
type leastMeasure struct {
	t        *testing.T
	model    *minilm.Model
	analyzer *recall.Analyzer
	vectors  map[string]memory.Vector
}

func (m *leastMeasure) encode(text string) memory.Vector {
	v, known := m.vectors[text]
	if !known {
		direction, err := m.model.Embed(m.t.Context(), text)
		if err != nil {
			m.t.Fatal(err)
		}
		v.Scale, v.Code, _ = memory.Quantize(direction)
		m.vectors[text] = v
	}
	return v
}

// text encodes a data point as the embedder does.
func (m *leastMeasure) text(p client.DataPoint) *encodedText {
	at, err := time.Parse(time.RFC3339, p.Timestamp)
	if err != nil {
		m.t.Fatal(err)
	}
	var work embedding
	work.add(&workText{Content: p.Content, Label: p.Label, Author: p.Identity, OccurredAt: at}, nil, 32)
	e := &encodedText{id: p.ID, terms: make(map[string]bool)}
	for _, term := range m.analyzer.Terms(p.Identity + " " + p.Label + " " + p.Content) {
		e.terms[term] = true
	}
	for _, passage := range work.passages {
		e.vectors = append(e.vectors, m.encode(passage.text))
	}
	return e
}

type workText = work.Text

// near is a text with its cosine to a question.
type near struct {
	*encodedText
	cosine float64
}

// nearest returns the texts by their cosine, best first.
func (m *leastMeasure) nearest(texts []*encodedText, question string) []near {
	v := m.encode(question)
	code := make([]int16, len(v.Code))
	for i, c := range v.Code {
		code[i] = int16(int8(c))
	}
	list := make([]near, len(texts))
	for i, e := range texts {
		list[i] = near{e, e.cosine(v.Scale, code)}
	}
	slices.SortFunc(list, func(a, b near) int {
		switch {
		case a.cosine > b.cosine:
			return -1
		case a.cosine < b.cosine:
			return 1
		}
		return strings.Compare(a.id, b.id)
	})
	return list
}

// figures are the cosines of the dialogues of one data set.
type figures struct {
	// best are those of the nearest text, by the kind of the question.
	best map[string][]float64
	// evidence are those of the texts with an answer; unshared of those that hold no word of the question, and are among
	// the 200 nearest: only meaning finds these.
	evidence, unshared []float64
	// above counts, by kind and least cosine, the texts above it.
	above map[string]map[int]int
}

const leastSteps = 12

func leastOf(step int) float64 { return 0.10 + 0.025*float64(step) }

func (m *leastMeasure) measure(dialogues []score.Dialogue) *figures {
	f := &figures{best: make(map[string][]float64), above: make(map[string]map[int]int)}
	for n, d := range dialogues {
		var texts []*encodedText
		for _, p := range d.DataPoints {
			texts = append(texts, m.text(p))
		}
		ask := func(kind, question string) []near {
			list := m.nearest(texts, question)
			f.best[kind] = append(f.best[kind], list[0].cosine)
			if f.above[kind] == nil {
				f.above[kind] = make(map[int]int)
			}
			for step := range leastSteps {
				for i := 0; i < len(list) && list[i].cosine >= leastOf(step); i++ {
					f.above[kind][step]++
				}
			}
			return list
		}
		for _, q := range d.Questions {
			if q.Excluded {
				continue
			}
			asked := m.analyzer.Terms(q.Text)
			for i, e := range ask("own", q.Text) {
				if !slices.Contains(q.Evidence, e.id) {
					continue
				}
				f.evidence = append(f.evidence, e.cosine)
				if i < 200 && !slices.ContainsFunc(asked, func(term string) bool { return e.terms[term] }) {
					f.unshared = append(f.unshared, e.cosine)
				}
			}
		}
		for other, d := range dialogues {
			for _, q := range d.Questions {
				if other != n && !q.Excluded {
					ask("other dialogues", q.Text)
				}
			}
		}
		for _, q := range absent {
			ask("absent", q)
		}
		for _, q := range nonsense {
			ask("nonsense", q)
		}
	}
	return f
}

// quantiles describes cosines.
func quantiles(values []float64) string {
	values = slices.Sorted(slices.Values(values))
	var b strings.Builder
	fmt.Fprintf(&b, "%5d", len(values))
	for _, share := range []float64{0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1} {
		fmt.Fprintf(&b, " %.3f", values[int(share*float64(len(values)-1))])
	}
	return b.String()
}

func below(values []float64, least float64) (n int) {
	for _, v := range values {
		if v < least {
			n++
		}
	}
	return n
}

func (f *figures) log(t *testing.T, name string) {
	t.Logf("%s: cosine of the nearest text: number, minimum, 1 %%, 5 %%, 25 %%, median, 75 %%, 95 %%, 99 %%, maximum", name)
	kinds := []string{"own", "other dialogues", "absent", "nonsense"}
	for _, kind := range kinds {
		t.Logf("%-16s %s", kind, quantiles(f.best[kind]))
	}
	t.Logf("%-16s %s", "evidence", quantiles(f.evidence))
	t.Logf("%-16s %s", "by meaning alone", quantiles(f.unshared))
	for step := range leastSteps {
		least := leastOf(step)
		line := fmt.Sprintf("least %.3f: loses %d of %d by meaning alone, of %d in all;", least,
			below(f.unshared, least), len(f.unshared), len(f.evidence))
		for _, kind := range kinds {
			line += fmt.Sprintf(" %s: %.3f get nothing, %.1f texts;", kind,
				float64(below(f.best[kind], least))/float64(len(f.best[kind])),
				float64(f.above[kind][step])/float64(len(f.best[kind])))
		}
		t.Log(line)
	}
}

func TestLeastCosine_Dialogues(t *testing.T) {
	model, chats, folder := os.Getenv("ANNALS_TEST_LOCOMO"), os.Getenv("ANNALS_TEST_BEAM"), os.Getenv("ANNALS_TEST_MODEL")
	if model == "" || chats == "" || folder == "" {
		t.Skip("ANNALS_TEST_MODEL, ANNALS_TEST_LOCOMO and ANNALS_TEST_BEAM do not name the model and both data sets")
	}
	opened, err := minilm.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	m := &leastMeasure{t: t, model: opened, analyzer: recall.NewAnalyzer(), vectors: make(map[string]memory.Vector)}
	var short, long []score.Dialogue
	files, _ := filepath.Glob(filepath.Join(model, "*.json"))
	for _, name := range files {
		file, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		c, err := locomo.Read(file)
		_ = file.Close()
		if err != nil {
			t.Fatal(err)
		}
		short = append(short, c.Dialogue())
	}
	folders, _ := filepath.Glob(filepath.Join(chats, "*"))
	for _, name := range folders {
		d, err := beam.Read(name)
		if err != nil {
			t.Fatal(err)
		}
		long = append(long, d)
	}
	m.measure(short).log(t, "short texts (LoCoMo)")
	m.measure(long).log(t, "long texts (BEAM)")
}
