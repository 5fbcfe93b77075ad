package score

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"unicode"

	"github.com/kljensen/snowball/english"

	client "github.com/annals-project/annals/client"
)

// commonest are Lucene's English stop words.
const commonest = ` a an and are as at be but by for if in into is it no not of on or such that the their then there these they this to was will with `

// The constants of BM25 in the baseline.
const (
	k1 = 0.9
	b  = 0.4
)

// plain is a dialogue as plain full-text search sees it: whole turns.
type plain struct {
	dataPoints []client.DataPoint
	counts     []map[string]int
	lengths    []float64
	docs       map[string]int
	mean       float64
}

func newPlain(d Dialogue) *plain {
	p := &plain{dataPoints: d.DataPoints, docs: map[string]int{}}
	for _, point := range d.DataPoints {
		counts := map[string]int{}
		terms := plainTerms(point.Content)
		for _, t := range terms {
			if counts[t]++; counts[t] == 1 {
				p.docs[t]++
			}
		}
		p.counts = append(p.counts, counts)
		p.lengths = append(p.lengths, float64(len(terms)))
		p.mean += float64(len(terms)) / float64(len(d.DataPoints))
	}
	return p
}

// plainTerms returns the stems of a text without the commonest words.
func plainTerms(text string) []string {
	var terms []string
	for _, w := range strings.FieldsFunc(strings.ToLower(text), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '\''
	}) {
		w = strings.TrimSuffix(strings.Trim(w, "'"), "'s")
		if w != "" && !strings.Contains(commonest, " "+w+" ") {
			terms = append(terms, english.Stem(w, false))
		}
	}
	return terms
}

// search ranks the turns that contain a word of the question.
func (p *plain) search(question string) []client.RecallResult {
	scores := make([]float64, len(p.dataPoints))
	terms := plainTerms(question)
	slices.Sort(terms)
	for _, t := range slices.Compact(terms) {
		n, df := float64(len(p.dataPoints)), float64(p.docs[t])
		rarity := math.Log1p((n - df + 0.5) / (df + 0.5))
		for i, counts := range p.counts {
			if tf := float64(counts[t]); tf > 0 {
				scores[i] += rarity * tf * (k1 + 1) / (tf + k1*(1-b+b*p.lengths[i]/p.mean))
			}
		}
	}
	order := make([]int, 0, len(scores))
	for i, s := range scores {
		if s > 0 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(scores[j], scores[i]) })
	results := make([]client.RecallResult, len(order))
	for place, i := range order {
		results[place] = client.RecallResult{
			Rank: place + 1, Content: p.dataPoints[i].Content, Sources: []client.RecallSource{{SourceID: p.dataPoints[i].ID}},
		}
	}
	return results
}

// baseline answers the questions of a dialogue by plain full-text search.
func baseline(d Dialogue) []Answer {
	p := newPlain(d)
	answers := make([]Answer, len(d.Questions))
	for i, q := range d.Questions {
		answers[i] = Answer{Question: q, Results: p.search(q.Text)}
	}
	return answers
}
