// Package recall turns text into search terms and candidates into a response: analysis, passages,
// ranking, budget and order. All of it is pure.
package recall

import "strings"

// Document is the searchable text of one revision of a data point.
type Document struct {
	Content string
	// Label is "" if there is none; Author is the customer's id of the author or "".
	Label  string
	Author string
}

// Terms are the search terms of one passage, in the order of the text, with repetitions.
type Terms struct {
	Text []string
	// Label holds the terms of label and author, each once.
	Label []string
	// Traits describe the passage.
	Traits Traits
}

// Passages analyses a document: one Terms for each passage that has any, the label's terms with
// each of them. A document without any term yields none.
func (a *Analyzer) Passages(d Document) []Terms {
	label := a.Label(d.Label, d.Author)
	var passages []Terms
	for span := range Split(d.Content) {
		content := d.Content[span.Start:span.End]
		if text := a.Terms(content); len(text) > 0 {
			passages = append(passages, Terms{Text: text, Label: label, Traits: TraitsOf(content)})
		}
	}
	if len(passages) == 0 && len(label) > 0 {
		passages = append(passages, Terms{Label: label})
	}
	return passages
}

// Label analyses label and author: each term once, in order of appearance.
func (a *Analyzer) Label(label, author string) []string {
	if label == "" && author == "" {
		return nil
	}
	return distinct(a.Terms(label + "\n" + author))
}

// Query analyses a query: each word once, at most queryTerms of them, in order of appearance.
func (a *Analyzer) Query(text string) []Term {
	words := distinct(a.former.terms(cut(text, queryBytes)))
	return Wholes(words[:min(len(words), queryTerms)]...)
}

// queryTerms is the most terms of a query; queryBytes is the most bytes of a query that are read.
const (
	queryTerms = 64
	queryBytes = 64 << 10
)

func distinct(terms []string) []string {
	seen := make(map[string]struct{}, len(terms))
	once := terms[:0]
	for _, t := range terms {
		if _, twice := seen[t]; twice {
			continue
		}
		seen[t] = struct{}{}
		once = append(once, t)
	}
	return once
}

// cut shortens a text to at most n bytes, at the beginning of a code point.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && text[n]&0xC0 == 0x80 {
		n--
	}
	return strings.ToValidUTF8(text[:n], "")
}
