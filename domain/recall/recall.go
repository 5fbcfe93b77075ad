// Package recall turns text into search terms and candidates into a response: analysis, passages,
// ranking, budget and order. All of it is pure.
package recall

import (
	"slices"
	"strings"
	"sync"
	"unicode"
)

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
	speaks := sync.OnceValue(func() spoken { return a.spoken(cut(d.Content, languageBytes)) })
	terms := func(part string) []string {
		p := a.read(part)
		defer p.release()
		own := p.evidence.text()
		if !own.latinCertain && len(part) < len(d.Content) {
			own = speaks()
		}
		return p.terms(own)
	}
	var label []string
	if d.Label != "" || d.Author != "" {
		label = distinct(terms(d.Label + "\n" + d.Author))
	}
	return passages(d, label, terms)
}

func passages(d Document, label []string, terms func(string) []string) (all []Terms) {
	for span := range Split(d.Content) {
		content := d.Content[span.Start:span.End]
		if text := terms(content); len(text) > 0 {
			all = append(all, Terms{Text: text, Label: label, Traits: TraitsOf(content)})
		}
	}
	if len(all) == 0 && len(label) > 0 {
		all = append(all, Terms{Label: label})
	}
	return all
}

// Label analyses label and author: each term once, in order of appearance.
func (a *Analyzer) Label(label, author string) []string {
	if label == "" && author == "" {
		return nil
	}
	return distinct(a.Terms(label + "\n" + author))
}

// spoken returns the languages of a text.
func (a *Analyzer) spoken(text string) spoken {
	p := a.read(text)
	defer p.release()
	return p.evidence.text()
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

// symbols returns the visible characters of a text without words, each once and at most a few: the
// whole text may be an emoji.
func symbols(text string) []string {
	const most = 16
	var found []string
	for _, r := range text {
		if unicode.IsSpace(r) || !unicode.IsGraphic(r) || unicode.Is(unicode.Mn, r) {
			continue
		}
		if s := string(r); !slices.Contains(found, s) {
			found = append(found, s)
		}
		if len(found) == most {
			break
		}
	}
	return found
}
