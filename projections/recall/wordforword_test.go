package recall_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/annals-project/annals/projections/recall/recalltest"
)

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
