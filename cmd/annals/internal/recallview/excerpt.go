package recallview

import (
	"slices"
	"strings"

	"github.com/annals-project/annals/domain/recall"
)

const (
	// shownLines is how many lines of a long text are shown, of at most shownRunes characters each.
	shownLines = 5
	shownRunes = 240
)

// excerpts shows of a long text the lines that have words of a question.
type excerpts struct {
	analyzer *recall.Analyzer
	words    map[string]struct{}
	// cut is true once something was left out.
	cut bool
}

func newExcerpts(question string) *excerpts {
	e := &excerpts{analyzer: recall.Shared(), words: map[string]struct{}{}}
	for _, word := range e.wordsOf(question) {
		e.words[word] = struct{}{}
	}
	return e
}

// wordsOf returns the words of a text and their stems.
func (e *excerpts) wordsOf(text string) []string {
	return append(e.analyzer.Words(text), e.analyzer.Stems(text)...)
}

// of returns a short text as it is, and of a long one the lines with the most words of the question, in their order. A
// text without any shows its beginning.
func (e *excerpts) of(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, split(strings.TrimSpace(line))...)
	}
	if len(lines) <= shownLines {
		return text
	}
	e.cut = true
	type rated struct{ index, words int }
	best := make([]rated, len(lines))
	for i, line := range lines {
		best[i] = rated{i, e.count(line)}
	}
	slices.SortStableFunc(best, func(a, b rated) int { return b.words - a.words })
	best = best[:shownLines]
	if best[0].words > 0 {
		best = slices.DeleteFunc(best, func(r rated) bool { return r.words == 0 })
	}
	slices.SortFunc(best, func(a, b rated) int { return a.index - b.index })
	var b strings.Builder
	next := 0
	for _, r := range best {
		if r.index > next {
			b.WriteString("…\n")
		}
		b.WriteString(lines[r.index] + "\n")
		next = r.index + 1
	}
	if next < len(lines) {
		b.WriteString("…\n")
	}
	return b.String()
}

// count returns how many words of the question a line has.
func (e *excerpts) count(line string) int {
	found := map[string]struct{}{}
	for _, word := range e.wordsOf(line) {
		if _, asked := e.words[word]; asked {
			found[word] = struct{}{}
		}
	}
	return len(found)
}

// split cuts a long line at spaces, after the end of a sentence if there is one. An empty line is no line.
func split(line string) (parts []string) {
	for {
		runes := []rune(line)
		if len(runes) <= shownRunes {
			break
		}
		head := string(runes[:shownRunes])
		end := len(head)
		if i := max(strings.LastIndex(head, ". "), strings.LastIndex(head, "? "), strings.LastIndex(head, "! ")); i > 0 {
			end = i + 1
		} else if i := strings.LastIndex(head, " "); i > 0 {
			end = i
		}
		parts = append(parts, line[:end])
		line = strings.TrimSpace(line[end:])
	}
	if line != "" {
		parts = append(parts, line)
	}
	return parts
}
