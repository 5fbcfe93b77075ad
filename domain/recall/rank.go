package recall

import (
	"math"
	"slices"
	"strings"
)

// The constants of BM25. averageLength is fixed, since the true average would reveal the length of
// texts that the viewer may not read.
const (
	bm25K1        = 0.9
	bm25B         = 0.4
	averageLength = 60
)

// labelWeight is the weight of a match in label or author, relative to one in the text.
const labelWeight = 2

// Count is how often a term occurs in the text, and in label and author.
type Count struct{ Text, Label int }

// Statistics are the document frequencies that rank a query: Docs passages, and for each term of
// the query in how many of them it occurs.
type Statistics struct {
	Docs        int
	Frequencies []Count
}

// Weights are the weights of the terms of a question, in its order.
type Weights []struct{ text, label float64 }

// Weights rounds rarity to powers of two, so that texts that the viewer may not read have almost no
// influence on an order. A word and its stems are as rare as all of them together: the language of a text changes
// nothing.
func (s Statistics) Weights(terms []Term) Weights {
	frequencies := s.ofWords(terms)
	weights := make(Weights, len(frequencies))
	for i, f := range frequencies {
		weights[i].text = rarity(s.Docs, f.Text)
		weights[i].label = labelWeight * rarity(s.Docs, f.Label)
	}
	return weights
}

// ofWords returns the frequencies of the terms, those of words and their stems taken together. A beginning of a Korean
// word has its own: one syllable is in many words.
func (s Statistics) ofWords(terms []Term) []Count {
	frequencies := slices.Clone(s.Frequencies)
	together := func(t Term) bool {
		return t.Kind == Whole || t.Kind == Stem &&
			(!strings.HasPrefix(t.Text, koreanStem) || t.Text[len(koreanStem):] == terms[t.For].Text)
	}
	// A text has all stems of a word in one language, and those of other languages are in other texts.
	stems, last := make([]Count, ownOf(terms)), make(map[Term]Count)
	for i, t := range terms {
		if t.Kind != Stem || !together(t) {
			continue
		}
		marker, _ := LanguageMarker(t.Text)
		in := Term{Text: marker, For: t.For}
		most := Count{max(last[in].Text, frequencies[i].Text), max(last[in].Label, frequencies[i].Label)}
		stems[t.For].Text += most.Text - last[in].Text
		stems[t.For].Label += most.Label - last[in].Label
		last[in] = most
	}
	for i, t := range terms {
		if t.Kind == Spelling && s.Frequencies[t.For] == (Count{}) { // it was looked for since no text has the word
			stems[t.For].Text += frequencies[i].Text
			stems[t.For].Label += frequencies[i].Label
		}
	}
	for i, t := range terms {
		if together(t) {
			frequencies[i].Text = max(s.Frequencies[t.For].Text, stems[t.For].Text)
			frequencies[i].Label = max(s.Frequencies[t.For].Label, stems[t.For].Label)
		}
	}
	return frequencies
}

// koreanStem begins the stems of Korean.
var koreanStem = inKorean.marker() + ":"

// OfMemories returns the statistics that rank memories. They are those of the sources, so that both
// kinds of scores compare; a term that no source contains is as rare as it is among the memories.
func (s Statistics) OfMemories(memories Statistics) Statistics {
	of := Statistics{Docs: max(s.Docs, 1), Frequencies: make([]Count, len(memories.Frequencies))}
	for i, m := range memories.Frequencies {
		f := 0
		if i < len(s.Frequencies) {
			f = max(s.Frequencies[i].Text, s.Frequencies[i].Label)
		}
		if f == 0 && memories.Docs > 0 {
			f = m.Text * of.Docs / memories.Docs
		}
		of.Frequencies[i].Text = f
	}
	return of
}

// rarity is the inverse document frequency of BM25, with the odds rounded to a power of two.
func rarity(docs, frequency int) float64 {
	n, df := float64(docs), float64(min(frequency, docs))
	odds := (n - df + 0.5) / (df + 0.5)
	return math.Log1p(math.Exp2(math.Round(math.Log2(odds))))
}

// Score is BM25 of a passage of length terms, where counts are the occurrences of each term of the
// query.
func (w Weights) Score(counts []Count, length int) float64 {
	norm := bm25K1 * (1 - bm25B + bm25B*float64(length)/averageLength)
	score := 0.0
	for i, c := range counts {
		if c.Text > 0 {
			tf := float64(c.Text)
			score += w[i].text * tf * (bm25K1 + 1) / (tf + norm)
		}
		if c.Label > 0 {
			score += w[i].label
		}
	}
	return score
}

// Usual returns the mean weight of the first own terms, 1 if there is none. A word that no text has weighs as the
// rarest.
func (w Weights) Usual(own int) float64 {
	sum, met := 0.0, 0
	for _, weight := range w[:min(own, len(w))] {
		if weight.text > 0 {
			sum += weight.text
			met++
		}
	}
	if met == 0 {
		return 1
	}
	return sum / float64(met)
}

// Shared returns the weights by which an index chooses candidates: each term has its share.
func (w Weights) Shared(terms []Term) Weights {
	shared := slices.Clone(w)
	for i := range shared {
		shared[i].text *= terms[i].Share
		shared[i].label *= terms[i].Share
	}
	return shared
}

// Text is the weight of a term in a text, to be multiplied by its impact.
func (w Weights) Text(term int) float64 { return w[term].text }

// Label is what a term adds to the score if it is in the label.
func (w Weights) Label(term int) float64 { return w[term].label }

// Impact is the share of a term's weight that a text of length terms gets if it contains the term
// count times. It is less than MaxImpact.
func Impact(count, length int) float64 {
	tf := float64(count)
	return tf * (bm25K1 + 1) / (tf + bm25K1*(1-bm25B+bm25B*float64(length)/averageLength))
}

// MaxImpact bounds every Impact.
const MaxImpact = bm25K1 + 1

// Counts counts how often each term of a query occurs in a passage.
func Counts(query []Term, passage Terms) []Count {
	counts := make([]Count, len(query))
	for i, term := range query {
		for _, t := range passage.Text {
			if t == term.Text {
				counts[i].Text++
			}
		}
		for _, t := range passage.Label {
			if t == term.Text {
				counts[i].Label++
			}
		}
	}
	return counts
}

// evidenceNames are the signals of what answers a question.
var evidenceNames = map[Traits]string{
	TimeEvidence: "time evidence", NameEvidence: "name evidence",
}

// Promise estimates the score that Rank gives to a passage, by what is known of it alone: the score of its words, and
// its traits. usual is the mean weight of the question's words.
func (q *Question) Promise(words, usual float64, traits Traits) float64 {
	if name, asked := evidenceNames[q.Answer]; asked && traits.Has(q.Answer) {
		words += signalWeights[name] * usual
	}
	if traits.Has(IsQuestion) {
		words *= 1 - questionDiscount
	}
	return words
}
