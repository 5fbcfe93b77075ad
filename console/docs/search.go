package docs

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/annals-project/annals/domain/recall"
)

const (
	// maxQuery is the most bytes of a query, and maxTerms how many of its terms are looked for.
	maxQuery = 400
	maxTerms = 64
	// maxOfPage is how many sections of one page a search finds.
	maxOfPage = 3
	// excerptBytes is about how long an excerpt is.
	excerptBytes = 300
	// titleWeight is how many times the words of a heading count.
	titleWeight = 3
	// referenceWeight is that of a section of the reference, which has the words of all guides.
	referenceWeight = .75
	// named is the weight of a section whose heading has the query as it was typed.
	named = 2
)

// The constants of BM25.
const (
	saturation = 1.2
	lengthNorm = 0.6
)

// index finds sections by their words (BM25).
type index struct {
	words    *recall.Analyzer
	sections []section
	lengths  []float64
	average  float64
	postings map[string][]posting
}

type posting struct{ section, count int }

// newIndex reads all sections of a library.
func newIndex(l *library) *index {
	x := &index{words: recall.NewAnalyzer(), postings: map[string][]posting{}}
	for _, p := range l.pages {
		for _, s := range sectionsOf(p) {
			n := len(x.sections)
			terms := x.words.Terms(plain(s.text))
			for range titleWeight {
				terms = append(terms, x.words.Terms(p.Title+" "+s.Title)...)
			}
			counts := map[string]int{}
			for _, term := range terms {
				counts[term]++
			}
			for term, count := range counts {
				x.postings[term] = append(x.postings[term], posting{n, count})
			}
			x.sections, x.lengths = append(x.sections, s), append(x.lengths, float64(len(terms)))
			x.average += float64(len(terms))
		}
	}
	x.average /= float64(max(1, len(x.sections)))
	return x
}

// found is a section that has words of a query, with an excerpt.
type found struct {
	section

	excerpt string
}

// search finds at most so many sections, the best first.
func (x *index) search(query string, limit int) (list []found) {
	if len(query) > maxQuery {
		query = strings.ToValidUTF8(query[:maxQuery], "")
	}
	terms := x.words.Terms(query)
	slices.Sort(terms)
	terms = slices.Compact(terms)
	terms = terms[:min(len(terms), maxTerms)]
	scores := map[int]float64{}
	rarity := map[string]float64{}
	for _, term := range terms {
		has := x.postings[term]
		if 2*len(has) > len(x.sections) {
			continue
		}
		rarity[term] = math.Log(1 + (float64(len(x.sections))-float64(len(has))+.5)/(float64(len(has))+.5))
		for _, p := range has {
			count, weight := float64(p.count), rarity[term]
			if x.sections[p.section].page.Group == referenceGroup {
				weight *= referenceWeight
			}
			scores[p.section] += weight * count * (saturation + 1) /
				(count + saturation*(1-lengthNorm+lengthNorm*x.lengths[p.section]/x.average))
		}
	}
	order := make([]int, 0, len(scores))
	for n := range scores {
		if strings.Contains(strings.ToLower(x.sections[n].Title), strings.ToLower(query)) {
			scores[n] *= named
		}
		order = append(order, n)
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Or(cmp.Compare(scores[b], scores[a]), cmp.Compare(a, b)) })
	ofPage := map[*Page]int{}
	for _, n := range order {
		s := x.sections[n]
		if ofPage[s.page]++; ofPage[s.page] > maxOfPage {
			continue
		}
		if list = append(list, found{s, x.excerpt(s, rarity)}); len(list) == limit {
			break
		}
	}
	return list
}

// excerpt is the paragraph or row of a section that has the rarest words of a query.
func (x *index) excerpt(s section, rarity map[string]float64) (best string) {
	most := -1.0
	for paragraph := range strings.SplitSeq(strings.ReplaceAll(s.text, "\n|", "\n\n|"), "\n\n") {
		text := plain(headings.ReplaceAllString(paragraph, ""))
		if strings.Trim(text, "- ·") == "" {
			continue
		}
		terms := x.words.Terms(text)
		slices.Sort(terms)
		score := 0.0
		for _, term := range slices.Compact(terms) {
			score += rarity[term]
		}
		if score > most {
			best, most = text, score
		}
	}
	return cut(strings.Trim(best, " ·"), excerptBytes)
}

// cut shortens a text at a space.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for !utf8.RuneStart(text[most]) {
		most--
	}
	if space := strings.LastIndexByte(text[:most], ' '); space > most/2 {
		most = space
	}
	return text[:most] + "…"
}
