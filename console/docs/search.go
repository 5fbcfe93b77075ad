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
	// titleWeight is how many times the words of a heading count, and pageWeight those of the title of its page.
	titleWeight = 5
	pageWeight  = 2
	// innerWeight is that of the pages for who changes the program, which touch on everything.
	innerWeight = .6
	// aliasWeight is that of a word that means the same as one of the query.
	aliasWeight = .9
	// referenceWeight is that of a section of the reference, which has the words of all guides.
	referenceWeight = .75
	// named is the weight of a section whose heading has the query as it was typed, and of the page of settings for one.
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
				terms = append(terms, x.words.Terms(s.Title)...)
			}
			for range pageWeight {
				terms = append(terms, x.words.Terms(p.Title)...)
			}
			if s.level == 1 {
				terms = append(terms, x.words.Terms(p.Summary)...)
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

// aliases are words of users for what the pages call something else, in the words of the pages.
var aliases = map[string]string{
	"delete": "deletion", "forget": "delete deletion", "remove": "delete deletion", "port": "addresses",
	"scrape": "metrics", "prometheus": "metrics", "private": "audience", "permissions": "rights", "docker": "compose",
	"behind": "front", "results": "result rank", "ranked": "ranks",
}

// score scores the sections that have words of a query, or of what means the same, and returns how rare the words are.
// A section with more of the words is better than one with some of them often.
func (x *index) score(query string) (scores map[int]float64, rarity map[string]float64) {
	scores, rarity = map[int]float64{}, map[string]float64{}
	matched, all := map[int]float64{}, 0.0
	for _, word := range strings.Fields(strings.ToLower(query))[:min(len(strings.Fields(query)), maxTerms)] {
		best, most := map[int]float64{}, 0.0
		for i, text := range []string{word, aliases[strings.Trim(word, ".,?!")]} {
			for _, term := range x.words.Terms(text) {
				has := x.postings[term]
				if 2*len(has) > len(x.sections) {
					continue
				}
				rare := math.Log(1 + (float64(len(x.sections))-float64(len(has))+.5)/(float64(len(has))+.5))
				rarity[term], most = rare, max(most, rare)
				if i > 0 {
					rare *= aliasWeight
				}
				for _, p := range has {
					best[p.section] = max(best[p.section], rare*x.frequency(p))
				}
			}
		}
		for section, score := range best {
			scores[section] += score
			matched[section] += most
		}
		all += most
	}
	for section := range scores {
		scores[section] *= x.weight(section) * (.5 + .5*matched[section]/all)
	}
	return scores, rarity
}

// frequency is what the occurrences of a term in a section count.
func (x *index) frequency(p posting) float64 {
	count := float64(p.count)
	return count * (saturation + 1) / (count + saturation*(1-lengthNorm+lengthNorm*x.lengths[p.section]/x.average))
}

// weight is that of a section by its page.
func (x *index) weight(section int) float64 {
	switch x.sections[section].page.Group {
	case referenceGroup:
		return referenceWeight
	case "Why it is so":
		return innerWeight
	}
	if strings.HasPrefix(x.sections[section].Title, "Annals") { // an alert
		return innerWeight
	}
	switch x.sections[section].page.ID {
	case "glossary", "changelog", "limits":
		return innerWeight
	}
	return 1
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
	scores, rarity := x.score(query)
	order := make([]int, 0, len(scores))
	for n := range scores {
		isSetting := strings.Contains(query, "ANNALS_") && x.sections[n].page.ID == "settings"
		if isSetting || strings.Contains(strings.ToLower(x.sections[n].Title), strings.ToLower(query)) {
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
