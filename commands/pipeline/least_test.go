package pipeline

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/internal/bench/beam"
	"github.com/annals-project/annals/internal/bench/locomo"
	"github.com/annals-project/annals/internal/bench/score"
	"github.com/annals-project/annals/internal/minilm"
	"github.com/annals-project/annals/internal/quantized"
	"github.com/annals-project/annals/internal/runtest"
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

// encodedText is a data point as semantic search knows it, with the terms of its content.
type encodedText struct {
	id      string
	terms   []string
	vectors []memory.Vector
}

// encoder encodes texts and questions with the built-in model, each once.
type encoder struct {
	t        *testing.T
	model    *minilm.Model
	analyzer *recall.Analyzer
	vectors  map[string]memory.Vector
}

// newEncoder opens the model that ANNALS_TEST_MODEL names, or skips the test.
func newEncoder(t *testing.T) *encoder {
	folder := os.Getenv("ANNALS_TEST_MODEL")
	if folder == "" {
		t.Skip("ANNALS_TEST_MODEL names no folder with the model")
	}
	opened, err := minilm.Open(folder)
	runtest.Must(t, err)
	return &encoder{t: t, model: opened, analyzer: recall.NewAnalyzer(), vectors: make(map[string]memory.Vector)}
}

func (m *encoder) encode(text string) memory.Vector {
	v, known := m.vectors[text]
	if !known {
		direction, err := m.model.Embed(m.t.Context(), text)
		runtest.Must(m.t, err)
		v.Scale, v.Code, _ = memory.Quantize(direction)
		m.vectors[text] = v
	}
	return v
}

// text encodes a data point as the embedder does.
func (m *encoder) text(p client.DataPoint) encodedText {
	at, err := time.Parse(time.RFC3339, p.Timestamp)
	runtest.Must(m.t, err)
	const passages = 32 // as model.Builtin
	var prepared embedding
	prepared.add(&work.Text{Content: p.Content, Label: p.Label, Author: p.Identity, OccurredAt: at}, nil, passages)
	e := encodedText{id: p.ID, terms: m.analyzer.Terms(p.Content)}
	for _, passage := range prepared.passages {
		e.vectors = append(e.vectors, m.encode(passage.text))
	}
	return e
}

func (m *encoder) texts(points []client.DataPoint) (texts []encodedText, vectors []memory.Vector) {
	for _, p := range points {
		e := m.text(p)
		texts, vectors = append(texts, e), append(vectors, e.vectors...)
	}
	return texts, vectors
}

// cosines returns the cosine of each vector to a question.
func (m *encoder) cosines(question string, vectors []memory.Vector) []float64 {
	asked := m.encode(question)
	code := make([]int16, len(asked.Code))
	for i, c := range asked.Code {
		code[i] = int16(int8(c))
	}
	list := make([]float64, len(vectors))
	for i, v := range vectors {
		list[i] = float64(asked.Scale*v.Scale) * float64(quantized.Dot(code, v.Code))
	}
	return list
}

// near is a text with its cosine to a question.
type near struct {
	encodedText
	cosine float64
}

// nearest returns the texts by their cosine, best first.
func (m *encoder) nearest(texts []encodedText, question string) []near {
	list := make([]near, len(texts))
	for i, e := range texts {
		list[i] = near{e, slices.Max(m.cosines(question, e.vectors))}
	}
	slices.SortFunc(list, func(a, b near) int {
		return cmp.Or(cmp.Compare(b.cosine, a.cosine), cmp.Compare(a.id, b.id))
	})
	return list
}

// tally is what the questions of one kind get from semantic search.
type tally struct {
	best  []float64 // cosine of the nearest text
	empty int       // questions that get nothing
	texts int       // texts that they get
}

// lostWithin is the rank by cosine up to which evidence counts as found by meaning.
const lostWithin = 100

// figures are the measurements of one data set.
type figures struct {
	kinds map[string]*tally
	// evidence is how many texts hold answers; alone are the cosines of those that share no word with their question and
	// are among the lostWithin nearest, lost how many of these are below the least cosine.
	evidence, lost int
	alone          []float64
}

func (m *encoder) measure(dialogues []score.Dialogue) *figures {
	f := &figures{kinds: make(map[string]*tally)}
	for n, d := range dialogues {
		texts, vectors := m.texts(d.DataPoints)
		least := minilm.LeastCosine(len(vectors))
		ask := func(kind, question string) []near {
			if f.kinds[kind] == nil {
				f.kinds[kind] = &tally{}
			}
			of, list := f.kinds[kind], m.nearest(texts, question)
			hits := slices.IndexFunc(list, func(e near) bool { return e.cosine < least })
			of.best, of.texts = append(of.best, list[0].cosine), of.texts+max(0, hits)
			if hits == 0 {
				of.empty++
			}
			return list
		}
		for _, q := range d.Questions {
			if !q.Excluded {
				f.note(q, ask("own", q.Text), m.analyzer.Terms(q.Text), least)
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

// note notes the evidence of a question.
func (f *figures) note(q score.Question, list []near, asked []string, least float64) {
	for rank, e := range list {
		if !slices.Contains(q.Evidence, e.id) {
			continue
		}
		f.evidence++
		shares := slices.ContainsFunc(asked, func(term string) bool {
			return (term[0] != '~' || strings.Contains(term, ":")) && slices.Contains(e.terms, term) // no marker of a language
		})
		if rank >= lostWithin || shares {
			continue
		}
		f.alone = append(f.alone, e.cosine)
		if e.cosine < least {
			f.lost++
		}
	}
}

func quantile(sorted []float64, share float64) float64 {
	return sorted[int(share*float64(len(sorted)-1))]
}

// quantiles describes cosines.
func quantiles(values []float64) string {
	values = slices.Sorted(slices.Values(values))
	var b strings.Builder
	fmt.Fprintf(&b, "%5d", len(values))
	if len(values) == 0 {
		return b.String()
	}
	for _, share := range []float64{0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1} {
		fmt.Fprintf(&b, " %.3f", quantile(values, share))
	}
	return b.String()
}

func (f *figures) log(t *testing.T, name string) {
	t.Logf("%s: cosine of the nearest text: questions, minimum, 1 %%, 5 %%, 25 %%, median, 75 %%, 95 %%, 99 %%, maximum", name)
	for _, kind := range []string{"own", "other dialogues", "absent", "nonsense"} {
		of := f.kinds[kind]
		t.Logf("%-16s %s; %.3f get nothing, the mean is %.1f texts", kind, quantiles(of.best),
			float64(of.empty)/float64(len(of.best)), float64(of.texts)/float64(len(of.best)))
	}
	t.Logf("%-16s %s; %d lost, of %d with an answer", "by meaning alone", quantiles(f.alone), f.lost, f.evidence)
}

// byChance logs the cosine of the nearest of some vectors, drawn from a data set, to questions about what is not there.
func (m *encoder) byChance(name string, dialogues []score.Dialogue) {
	var all []memory.Vector
	for _, d := range dialogues {
		_, vectors := m.texts(d.DataPoints)
		all = append(all, vectors...)
	}
	questions := slices.Concat(absent, nonsense)
	cosines := make([][]float64, len(questions))
	for i, q := range questions {
		cosines[i] = m.cosines(q, all)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{10, 30, 100, 300, 1000} {
		var best []float64
		for range 50 {
			drawn := random.Perm(len(all))[:min(size, len(all))]
			for _, of := range cosines {
				most := of[drawn[0]]
				for _, i := range drawn {
					most = max(most, of[i])
				}
				best = append(best, most)
			}
		}
		slices.Sort(best)
		m.t.Logf("%s, nearest of %4d vectors to what is absent: median %.3f, 90 %% %.3f, 99 %% %.3f, 99.9 %% %.3f, least %.3f",
			name, size, quantile(best, 0.5), quantile(best, 0.9), quantile(best, 0.99), quantile(best, 0.999),
			minilm.LeastCosine(size))
	}
}

// leastDialogues reads the dialogues that ANNALS_TEST_LOCOMO and ANNALS_TEST_BEAM name, or skips the test.
func leastDialogues(t *testing.T) (short, long []score.Dialogue) {
	locomos, beams := os.Getenv("ANNALS_TEST_LOCOMO"), os.Getenv("ANNALS_TEST_BEAM")
	if locomos == "" || beams == "" {
		t.Skip("ANNALS_TEST_LOCOMO and ANNALS_TEST_BEAM do not name both data sets")
	}
	for _, name := range glob(t, locomos, "*.json") {
		file, err := os.Open(name)
		runtest.Must(t, err)
		c, err := locomo.Read(file)
		_ = file.Close()
		runtest.Must(t, err)
		short = append(short, c.Dialogue())
	}
	for _, name := range glob(t, beams, "*") {
		d, err := beam.Read(name)
		runtest.Must(t, err)
		long = append(long, d)
	}
	return short, long
}

func glob(t *testing.T, folder, pattern string) []string {
	names, err := filepath.Glob(filepath.Join(folder, pattern))
	if err != nil || len(names) < 2 {
		t.Fatalf("%d dialogues in %s, %v", len(names), folder, err)
	}
	return names
}

// The least cosine of the built-in model loses hardly any evidence that only meaning finds, while nonsense and absent
// things get nothing. It takes some minutes: see docs/embeddings.md for the command.
func TestLeastCosine_Dialogues(t *testing.T) {
	m := newEncoder(t)
	short, long := leastDialogues(t)
	for name, dialogues := range map[string][]score.Dialogue{"short texts": short, "long texts": long} {
		f := m.measure(dialogues)
		f.log(t, name)
		m.byChance(name, dialogues)
		if f.lost*100 > 3*f.evidence {
			t.Errorf("%s: %d of %d texts with an answer are lost", name, f.lost, f.evidence)
		}
		for _, kind := range []string{"absent", "nonsense"} {
			if of := f.kinds[kind]; of.empty < len(of.best)*99/100 {
				t.Errorf("%s, %s: %d of %d questions get nothing", name, kind, of.empty, len(of.best))
			}
		}
		if of := f.kinds["own"]; of.empty > 0 {
			t.Errorf("%s: %d questions of the dialogues get nothing", name, of.empty)
		}
	}
}

// In a project of a few short texts, what means the same is found, and what is not there finds nothing.
func TestLeastCosine_FewTexts(t *testing.T) {
	m := newEncoder(t)
	var points []client.DataPoint
	for _, content := range []string{
		"My automobile broke down on the motorway", "The roses in the garden are in bloom", "Never deploy on Fridays.",
		"The bank refused to lend us the money", "A cup of Earl Grey in the afternoon is what she likes best",
		"The helm chart sets two replicas", "The spare key of the boat is in the blue box", "Noor takes over the night shift",
		"The dentist appointment was moved to Thursday", "Our router stands behind the fridge",
	} {
		points = append(points, client.DataPoint{ID: content, Content: content, Identity: "ana", Timestamp: "2025-05-12T09:00:00Z"})
	}
	texts, vectors := m.texts(points)
	least := minilm.LeastCosine(len(vectors))
	for _, q := range slices.Concat(absent, nonsense) {
		if best := m.nearest(texts, q)[0]; best.cosine >= least {
			t.Errorf("%q finds %q, cosine %.3f, least %.3f", q, best.id, best.cosine, least)
		}
	}
	for question, want := range map[string]string{
		"Did the vehicle have engine trouble?": "My automobile", "Which flowers grow there?": "The roses", "loan": "The bank",
		"Could they borrow from a financial institution?": "The bank", "favourite drink": "A cup of Earl Grey",
		"who works after dark": "Noor takes", "tooth": "The dentist", "car": "My automobile", "tea": "A cup of Earl Grey",
	} {
		if best := m.nearest(texts, question)[0]; best.cosine < least || !strings.HasPrefix(best.id, want) {
			t.Errorf("%q finds %q, cosine %.3f, least %.3f", question, best.id, best.cosine, least)
		}
	}
}

// storeVariable names the environment variable with the size of the largest store of TestLeastCosine_Absent.
const storeVariable = "ANNALS_TEST_ABSENT"

// everyday makes short texts of an office and its people, no two alike, as many as are wanted.
func everyday(count int) (texts []string) {
	people := strings.Fields(`Paolo Wilma Tariq Eszter Jorge Maud Pekka Zofia Idris Carmen Anselm Birgit Dmitri Fatou Gustav
		Helmi Istvan Jolanta Karim Leonor Mirko Nadia Oskar Pilar Quentin Rosa Stefan Tamara Ugo Vera`)
	deeds := strings.Split(`ordered new chairs|wants to move the desk|forgot the folder|booked the small meeting room|`+
		`likes the blue curtains|lost the badge|prepares the slides|asked about the lunch menu|reviewed the draft|`+
		`signed the delivery note|watered the ferns|cleaned the coffee machine|parked in the yard|shared the calendar|`+
		`needs a longer cable|called the supplier|archived the letters|tested the new scanner|prefers green tea|`+
		`brought cinnamon rolls|fixed the wobbly table|updated the phone list|closed the ticket|hung up the poster|`+
		`counted the stock|labelled the boxes|wrote the minutes|greeted the visitors|checked the fire exit|`+
		`rearranged the shelves|paid for the stamps|printed the badges|answered the mail|missed the bus|`+
		`renewed the parking permit|joined the hiking group|borrowed the projector|swapped the shift|`+
		`planned the summer party|took the minutes home`, "|")
	when := strings.Split(`on Monday|on Tuesday|on Friday|before lunch|after the break|in the morning|in the evening|`+
		`last week|this week|twice|again|with a colleague|for the new office|for the customer|without asking|`+
		`as agreed|by mistake|in a hurry|with great care|for the second time|during the audit|after the meeting|`+
		`at the front desk|in the back office|on behalf of the team`, "|")
	for n := range count {
		text := fmt.Sprintf("%s %s %s.", people[n%len(people)], deeds[n/len(people)%len(deeds)],
			when[n/len(people)/len(deeds)%len(when)])
		texts = append(texts, text)
	}
	return texts
}

// linesOf returns the lines of a file of testdata.
func linesOf(t *testing.T, name string) (lines []string) {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	runtest.Must(t, err)
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines
}

// At least 90 of 100 questions about what is not there get nothing, in stores of few texts and of many. Of 100 texts
// that answer a question in other words one is lost among few texts, and more of them among many: the model cannot tell
// them from what is near by chance. ANNALS_TEST_ABSENT=30000 adds a store of so many texts, which takes some minutes.
func TestLeastCosine_Absent(t *testing.T) {
	m := newEncoder(t)
	questions, pairs := linesOf(t, "absent.txt"), linesOf(t, "paraphrases.txt")
	sizes := []int{3, 300}
	if more := os.Getenv(storeVariable); more != "" {
		var size int
		runtest.Must(t, errorOf(fmt.Sscan(more, &size)))
		sizes = append(sizes, size)
	}
	var cosines []float64
	for _, pair := range pairs {
		text, question, _ := strings.Cut(pair, " | ")
		of := m.text(pointOf(text))
		asked := m.analyzer.Query(question)
		for _, term := range asked {
			if slices.Contains(of.terms, term.Text) {
				t.Errorf("%q shares %q with its question", text, term.Text)
			}
		}
		cosines = append(cosines, slices.Max(m.cosines(question, of.vectors)))
	}
	var all []memory.Vector
	for _, text := range everyday(slices.Max(sizes)) {
		all = append(all, m.text(pointOf(text)).vectors...)
	}
	random := rand.New(rand.NewPCG(46, 4))
	for _, size := range sizes {
		least := minilm.LeastCosine(size)
		drawn := random.Perm(len(all))[:size]
		var best []float64
		empty := 0
		for _, question := range questions {
			of, nearest := m.cosines(question, all), -1.0
			for _, i := range drawn {
				nearest = max(nearest, of[i])
			}
			best = append(best, nearest)
			if nearest < least {
				empty++
			}
		}
		lost := 0
		for i, cosine := range cosines {
			if cosine < least {
				lost++
				t.Logf("of %d texts, %q is lost: %.3f", size, pairs[i], cosine)
			}
		}
		slices.Sort(best)
		t.Logf("of %d texts, least cosine %.3f: %d of %d questions about absent things get nothing, nearest %s; %d of %d "+
			"paraphrases are lost", size, least, empty, len(questions), quantiles(best), lost, len(pairs))
		if 10*empty < 9*len(questions) {
			t.Errorf("of %d texts, only %d of %d questions about absent things get nothing", size, empty, len(questions))
		}
		most := 10
		switch {
		case size <= 3:
			most = 1
		case size > 300:
			most = 15
		}
		if 100*lost > most*len(pairs) {
			t.Errorf("of %d texts, %d of %d paraphrases are lost", size, lost, len(pairs))
		}
	}
	slices.Sort(cosines)
	t.Logf("paraphrases: %s", quantiles(cosines))
}

func pointOf(text string) client.DataPoint {
	return client.DataPoint{ID: text, Content: text, Identity: "ana", Timestamp: "2025-05-12T09:00:00Z"}
}
