package recall

import "math"

// The constants of BM25. A passage of Length average terms is of average length; it is fixed, because the true average
// would let a reader sense the length of texts that they may not read.
const (
	bm25K1  = 0.9
	bm25B   = 0.4
	average = 16
)

// labelWeight is what a match in label or author counts beside one in the text.
const labelWeight = 2

// Count says how often something stands in the text, and in the label with author.
type Count struct{ Text, Label int }

// Statistics are the document frequencies that a query is ranked by: Docs passages, and for each term of the query in how
// many of them it stands.
type Statistics struct {
	Docs        int
	Frequencies []Count
}

// Weights are the weights of the terms of a query, in its order.
type Weights []struct{ text, label float64 }

// Weights rounds what is rare to powers of two, so that texts that a reader may not read have almost no say in an order.
func (s Statistics) Weights() Weights {
	weights := make(Weights, len(s.Frequencies))
	for i, f := range s.Frequencies {
		weights[i].text = rarity(s.Docs, f.Text)
		weights[i].label = labelWeight * rarity(s.Docs, f.Label)
	}
	return weights
}

// OfMemories are the statistics that lines of memory are ranked by. They are those of the sources, so that the scores of both
// compare; a term that stands in no source is as rare as it is among the memories.
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

// rarity is the inverse document frequency of BM25, of a share that is rounded to a power of two.
func rarity(docs, frequency int) float64 {
	n, df := float64(docs), float64(min(frequency, docs))
	odds := (n - df + 0.5) / (df + 0.5)
	return math.Log1p(math.Exp2(math.Round(math.Log2(odds))))
}

// Score is BM25 of one passage of length terms: counts say how often each term of the query stands in it.
func (w Weights) Score(counts []Count, length int) float64 {
	norm := bm25K1 * (1 - bm25B + bm25B*float64(length)/average)
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

// RelatedWeight is what a related word counts beside the one that was asked for.
const RelatedWeight = 0.4

// Usual is the mean weight of the first terms, of those that stand anywhere; 1 where none does.
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

// Lessened are the weights by which an index chooses candidates: terms from own on, which are related ones, count less.
func (w Weights) Lessened(own int) Weights {
	lessened := make(Weights, len(w))
	copy(lessened, w)
	for i := own; i < len(w); i++ {
		lessened[i].text *= RelatedWeight
		lessened[i].label *= RelatedWeight
	}
	return lessened
}

// Text is what a term of a query counts for in a text, times its impact there.
func (w Weights) Text(term int) float64 { return w[term].text }

// Label is what a term of a query adds to the score where it stands in the label.
func (w Weights) Label(term int) float64 { return w[term].label }

// Impact is how much of a term's weight a text of length terms gets in which it stands so often; it is less than MaxImpact.
func Impact(count, length int) float64 {
	tf := float64(count)
	return tf * (bm25K1 + 1) / (tf + bm25K1*(1-bm25B+bm25B*float64(length)/average))
}

// MaxImpact bounds every Impact.
const MaxImpact = bm25K1 + 1

// Counts says how often each term of a query stands in a passage.
func Counts(query []string, passage Terms) []Count {
	counts := make([]Count, len(query))
	for i, term := range query {
		for _, t := range passage.Text {
			if t == term {
				counts[i].Text++
			}
		}
		for _, t := range passage.Label {
			if t == term {
				counts[i].Label++
			}
		}
	}
	return counts
}
