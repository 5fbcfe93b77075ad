package recall_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	domainrecall "github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/projections/recall"
	"github.com/annals-project/annals/projections/recall/recalltest"
	"github.com/annals-project/annals/projections/recallindex"
)

// orderedTexts are texts of which many have the same score for a question.
func orderedTexts() (texts []recalltest.DataPoint) {
	r := rand.New(rand.NewPCG(30, 2))
	for i := range 120 {
		texts = append(texts, recalltest.DataPoint{
			ID: fmt.Sprintf("%x", (i*7919)%120), Content: sentence(r, 3+i%4), Author: []string{"ana", "ben"}[i%2],
			OccurredAt: at(1).Add(time.Duration(i/6) * time.Hour),
		})
	}
	return texts
}

// The same texts have the same order in every project, whatever their uuids are, in which order they were sent, and
// after a rebuild of the index.
func TestRecall_SameOrderInEveryProject(t *testing.T) {
	h := recalltest.New(t, nil)
	texts, questions := orderedTexts(), slices.Clone(contentWords[:30])
	for i := range len(questions) - 1 {
		questions = append(questions, contentWords[i]+" and "+contentWords[i+1]+"?")
	}
	send := func(texts []recalltest.DataPoint) {
		inNewProject(h)
		for _, p := range texts {
			sendText(h, p)
		}
		h.CatchUp()
	}
	ask := func() (orders []string) {
		for _, question := range questions {
			orders = append(orders, question+": "+strings.Join(sourcesOf(h.Recall(h.Ask(question))), " "))
		}
		return orders
	}
	send(texts)
	want := ask()
	check := func(what string) {
		t.Helper()
		different := 0
		for i, got := range ask() {
			if got == want[i] {
				continue
			}
			if different++; different == 1 {
				t.Errorf("%s finds\n%s, want\n%s", what, got, want[i])
			}
		}
		if different > 0 {
			t.Errorf("%s: %d of %d questions have another order", what, different, len(questions))
		}
	}
	for n := range 3 {
		send(texts)
		check(fmt.Sprintf("project %d of equal texts", n+2))
	}
	shuffled := slices.Clone(texts)
	r := rand.New(rand.NewPCG(30, 3))
	r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	send(shuffled)
	check("a project of texts sent in another order")
	index := h.Projector(recallindex.Name)
	if err := index.(interface{ Reset(context.Context) error }).Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.MakeSchema(index)
	h.CatchUp()
	check("after a rebuild of the index, that project")
}

// Of equal scores the newer comes first, then the lesser source id, byte by byte.
func TestRecall_Ties(t *testing.T) {
	h := recalltest.New(t, nil)
	byBytes := []string{"10", "9", "B", "a", "aa", "b", "~", "ä", "日"}
	for n := range 4 {
		inNewProject(h)
		var want []string
		for _, day := range []int{2, 1, 0} {
			for _, id := range byBytes {
				want = append(want, id+fmt.Sprint("/", day))
			}
		}
		order := rand.New(rand.NewPCG(30, uint64(n))).Perm(len(want))
		for _, i := range order {
			// No two say the same, and all are of one length, so that their scores are equal.
			h.Send(recalltest.DataPoint{
				ID: want[i], Content: fmt.Sprintf("helix x%02dy", i), OccurredAt: at(3 - i/len(byBytes)), Author: "ana",
			})
		}
		h.CatchUp()
		equal(t, fmt.Sprint("project ", n), sourcesOf(h.Recall(h.Ask("helix"))), want)
	}
}

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

// If the first candidates do not fill the response, it takes from all the others.
func TestRecall_FirstCandidatesDoNotFill(t *testing.T) {
	h := recalltest.New(t, nil)
	for n := range 40 {
		// The fewer words, the better. No two state the same.
		h.Send(recalltest.DataPoint{
			ID: fmt.Sprint(n), Content: fmt.Sprint("helix n", n) + strings.Repeat(" internationalization", 5+n),
			OccurredAt: at(1),
		})
	}
	// This one has the most words and the fewest letters: it ranks last and still fits.
	small := strings.Repeat("q ", 50) + "helix"
	h.Send(recalltest.DataPoint{ID: "small", Content: small, OccurredAt: at(1)})
	h.Send(recalltest.DataPoint{ID: "memory", Content: strings.Repeat("unrelated ", 400), OccurredAt: at(1)})
	h.Derive("memory", 1, at(1), false,
		recalltest.Line{Kind: "observation", Content: strings.Repeat("q ", 90) + "helix", Excerpt: "unrelated"})
	h.CatchUp()
	q := h.Ask("helix")
	q.Limit = 3 // eleven are authorized at first
	full := contents(h.Recall(q))
	if len(full) != 3 || len(full[0]) > len(full[1]) || len(full[1]) > len(full[2]) {
		t.Fatalf("the page is %.100q", full)
	}
	// Two of the best leave room for the small one only.
	q.Budget = domainrecall.Tokens(full[0]) + domainrecall.Tokens(full[1]) + domainrecall.Tokens(small)
	page := h.Recall(q)
	if got := len(page.Results); got != 3 || page.Results[2].Sources[0].SourceID != "small" {
		t.Errorf("%d results of %d tokens: %.100q", got, page.UsedEvidenceTokens, contents(page))
	}
	// With enough room the last of all is there, too, although only its memory was found.
	q.Limit, q.Budget = 200, 32000
	page = h.Recall(q)
	found := map[string]bool{}
	for _, r := range page.Results {
		found[r.Sources[0].SourceID] = true
	}
	if len(found) != 42 || !found["memory"] {
		t.Errorf("%d data points are found, the one by its memory: %t", len(found), found["memory"])
	}
}

// Of equal scores the newer come first, however many data points were authorized.
func TestRecall_TiesAcrossFirstCandidates(t *testing.T) {
	h := recalltest.New(t, nil)
	for n := range 60 {
		h.Send(recalltest.DataPoint{ID: fmt.Sprint(n), Content: fmt.Sprintf("helix n%d", n), OccurredAt: at(20).AddDate(0,
			0, -n/2)})
	}
	h.CatchUp()
	q := h.Ask("helix")
	for _, limit := range []int{1, 2, 5, 17, 40, 60} {
		q.Limit = limit
		page := h.Recall(q)
		if len(page.Results) != limit {
			t.Fatalf("%d results, want %d", len(page.Results), limit)
		}
		for i, r := range page.Results {
			if want := at(20).AddDate(0, 0, -i/2); !r.OccurredAt.Equal(want) {
				t.Errorf("limit %d: result %d occurred at %s, want %s", limit, i, r.OccurredAt, want)
			}
		}
	}
}

var (
	contentWords = strings.Fields("oak gate mill river lantern copper basket harbour velvet marble anchor thistle saddle " +
		"violin pepper glacier orchard tunnel beacon feather candle hammer barrel meadow compass ribbon kettle falcon walnut " +
		"canyon magnet puzzle rocket silver turnip window zipper bridge cotton dragon engine fossil gravel island jungle " +
		"ladder mirror needle oyster pillow quartz rabbit salmon timber urchin valley whistle yonder amber bishop cactus " +
		"dolphin ember")
	functionWords = strings.Fields("the a of and to in is was that for with on by from it this at or")
)

// sentence draws words, one of them at least no stop word.
func sentence(r *rand.Rand, length int) string {
	words := make([]string, length)
	for i := range words {
		if r.IntN(3) == 0 {
			words[i] = functionWords[r.IntN(len(functionWords))]
		} else {
			words[i] = contentWords[r.IntN(len(contentWords))]
		}
	}
	words[r.IntN(length)] = contentWords[r.IntN(len(contentWords))]
	return strings.Join(words, " ")
}

// A question that is a stored text word for word gets that text first, whatever other texts have its words.
func TestRecall_WordForWord(t *testing.T) {
	r := rand.New(rand.NewPCG(30, 1))
	random := func(most int) (texts []string) {
		for range 120 {
			texts = append(texts, sentence(r, 1+r.IntN(most)))
		}
		return texts
	}
	corpora := map[string][]string{"short texts": random(6), "texts of any length": random(64)}
	for _, text := range random(20) {
		words := strings.Fields(text)
		from := r.IntN(len(words))
		part := strings.Join(words[from:from+1+r.IntN(len(words)-from)], " ")
		if slices.ContainsFunc(strings.Fields(part), func(w string) bool { return slices.Contains(contentWords, w) }) {
			corpora["texts within others"] = append(corpora["texts within others"], text, part)
		}
		for range 3 {
			r.Shuffle(len(words), func(i, j int) { words[i], words[j] = words[j], words[i] })
			corpora["other orders"] = append(corpora["other orders"], strings.Join(words, " "))
		}
		for i, w := range words {
			if slices.Contains(functionWords, w) {
				words[i] = functionWords[r.IntN(len(functionWords))]
			}
		}
		corpora["other stop words"] = append(corpora["other stop words"], text, strings.Join(words, " "))
	}
	for name, texts := range corpora {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testWordForWord(t, texts)
		})
	}
}

func testWordForWord(t *testing.T, texts []string) {
	h := recalltest.New(t, nil)
	ids := map[string]string{}
	for i, text := range texts {
		if _, known := ids[text]; known {
			continue
		}
		ids[text] = fmt.Sprint(i)
		sendText(h, recalltest.DataPoint{
			ID: ids[text], Content: text, Author: []string{"ana", "ben", "cem"}[i%3], OccurredAt: at(1).AddDate(0, 0, i*7%30),
		})
	}
	h.CatchUp()
	for _, text := range texts {
		page := h.Recall(h.Ask(text))
		if len(page.Results) == 0 {
			t.Errorf("%q finds nothing", text)
		} else if first := page.Results[0]; first.Sources[0].SourceID != ids[text] {
			t.Errorf("%q finds %q first, its own text is result %d", text, first.Content, placeOfSource(page, ids[text]))
		}
	}
}

// More texts tie for the last place among the first candidates than are read with their data points. The best ones are
// read all the same, and compared: a text that restates another goes below one that states something else.
func TestRecall_ManyTiesAtTheEnd(t *testing.T) {
	h := recalltest.New(t, nil)
	for n := range 320 {
		text := "The harbour is old."
		switch {
		case n < 10:
			text = "The harbour has ropes and sails."
		case n < 20:
			text = "The harbour has ropes and boats."
		}
		h.Send(recalltest.DataPoint{
			ID: fmt.Sprint("turn/", n), Content: text, OccurredAt: at(1).Add(time.Duration(n) * time.Minute),
		})
	}
	h.CatchUp()
	q := h.Ask("harbour ropes")
	q.Limit = 10
	found := h.Recall(q).Results
	if len(found) != q.Limit || found[0].Content != "The harbour has ropes and boats." ||
		found[1].Content != "The harbour has ropes and sails." {
		t.Errorf("%d results, the first are %q and %q", len(found), found[0].Content, found[1].Content)
	}
}

// A recorded claim is below the one that supersedes it, unless the question names a value that only the earlier has.
func TestRecall_SupersededClaims(t *testing.T) {
	h := recalltest.New(t, nil)
	for _, c := range []struct {
		name string
		// texts are by ana, a day apart.
		texts []string
		// first has the index of the text that must be first, by question.
		first map[string]int
	}{
		{"favourite", []string{"My favourite editor is Vim.", "My favourite editor is Helix."}, map[string]int{
			"What is Ana's favourite editor?": 1, "Which editor does Ana like best, what is her favourite?": 1,
			"Is Ana's favourite editor Vim?": 0, "Is Ana's favourite editor Helix?": 1, "Vim": 0, "Helix": 1,
		}},
		{"three values", []string{
			"My favourite city is Gent.", "My favourite city is Lund.", "My favourite city is Cork.",
		}, map[string]int{
			"What is Ana's favourite city?": 2, "Is Ana's favourite city Gent?": 0, "Is Ana's favourite city Lund?": 1,
			"Is Ana's favourite city Cork?": 2,
		}},
		{"two subjects", []string{
			"My favourite tea is Assam.", "My favourite cheese is Gouda.", "My favourite tea is Sencha.",
		}, map[string]int{
			"What is Ana's favourite tea?": 2, "What is Ana's favourite cheese?": 1, "Is Ana's favourite tea Assam?": 0,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inNewProject(h)
			claims := map[string][]claimKey{}
			for i, text := range c.texts {
				id := fmt.Sprint(i)
				claims[id] = sendText(h, recalltest.DataPoint{ID: id, Content: text, Author: "ana", OccurredAt: at(1 + i)})
			}
			sendEveryday(h)
			h.CatchUp()
			if len(claims["0"]) != 1 || claims["0"][0] != claims[fmt.Sprint(len(c.texts)-1)][0] {
				t.Fatalf("the claims are %v: the last supersedes none", claims)
			}
			for question, want := range c.first {
				page := h.Recall(h.Ask(question))
				if place := placeOfSource(page, fmt.Sprint(want)); place != 0 {
					t.Errorf("%s: %q is result %d of %q", question, c.texts[want], place, contents(page))
				}
			}
		})
	}
}
