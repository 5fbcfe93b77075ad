// Package recallview prints recalls and their explanations for people.
package recallview

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize/english"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/projections/recall/explained"
)

// PrintResponse prints each result as its rank, kind and time, then its text and its sources. Of a long text it prints
// the lines with words of the question, unless full is set.
func PrintResponse(w io.Writer, page client.RecallResponse, question string, full bool) error {
	var b strings.Builder
	shown := newExcerpts(question)
	if len(page.Results) == 0 {
		b.WriteString("nothing is remembered that matches\n")
	}
	for _, r := range page.Results {
		_, _ = fmt.Fprintf(&b, "%d. %s, %s", r.Rank, r.Artifact.Kind, r.OccurredAt.UTC().Format("2006-01-02 15:04"))
		if r.Artifact.SupersededAt != nil {
			_, _ = fmt.Fprintf(&b, ", superseded %s", r.Artifact.SupersededAt.UTC().Format("2006-01-02 15:04"))
		}
		content := r.Content
		if !full {
			content = shown.of(content)
		}
		b.WriteString("\n" + indent(content))
		for _, s := range r.Sources {
			_, _ = fmt.Fprintf(&b, "   from %s", s.SourceID)
			if s.Label != "" {
				_, _ = fmt.Fprintf(&b, " (%s)", s.Label)
			}
			b.WriteString("\n")
			for _, e := range s.Excerpts {
				b.WriteString(indent("> " + e))
			}
		}
	}
	if len(page.Results) > 0 {
		_, _ = fmt.Fprintf(&b, "%s, %s\n", english.Plural(len(page.Results), "result", "results"),
			english.Plural(page.UsedEvidenceTokens, "token", "tokens"))
	}
	if shown.cut {
		b.WriteString("long texts are cut to the lines with words of the question; --full prints them whole\n")
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write answer: %w", err)
	}
	return nil
}

func indent(text string) string {
	return "   " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n   ") + "\n"
}

// PrintExplanation prints the analysis of the question, what each step left, a table of the results and,
// if sources were asked for, a table of what became of them.
func PrintExplanation(w io.Writer, e explained.Explanation) error {
	var b strings.Builder
	explainQuestion(&b, e.Question)
	s := e.Search
	_, _ = fmt.Fprintf(&b, "search: %s and %s by words, %d by embedding alone: %s\n",
		english.Plural(s.Passages, "passage", "passages"), english.Plural(s.Memories, "memory", "memories"), s.ByEmbedding,
		english.Plural(s.DataPoints, "data point", "data points"))
	_, _ = fmt.Fprintf(&b, "gate: %d checked; %d passed, neighbours included; %d ranked\n", s.Checked, s.Passed, s.Ranked)
	_, _ = fmt.Fprintf(&b, "response: as of %s, limit %d, %d of %d tokens\n", e.AsOf.Format(time.RFC3339), e.Limit,
		e.UsedEvidenceTokens, e.Budget)
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	if len(e.Results) > 0 {
		_, _ = fmt.Fprint(t, "\nRANK\tKIND\tSOURCE\tOCCURRED\tTOKENS\tGATE\tFOUND BY\tSCORE\n")
	}
	for _, r := range e.Results {
		_, _ = fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%d\t%s\t%s\t%s\n", r.Rank, r.Kind, printable(r.SourceID),
			r.OccurredAt.Format(time.DateOnly), r.Tokens, gate(r.Gate), strings.Join(r.FoundBy, ", "), formula(r.Scored))
	}
	_ = t.Flush()
	if len(e.Sources) > 0 {
		_, _ = fmt.Fprint(t, "\nSOURCE\tVERDICT\tRANK\tREASON\tSCORE\n")
	}
	for _, s := range e.Sources {
		rank, score := "", ""
		if s.Rank > 0 {
			rank = strconv.Itoa(s.Rank)
		}
		if s.Scored != nil {
			score = formula(*s.Scored)
		}
		if s.LastScore != nil {
			score += "; the last one has " + number(*s.LastScore)
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", printable(s.SourceID), s.Verdict, rank, printable(s.Why), score)
	}
	_ = t.Flush()
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write explanation: %w", err)
	}
	return nil
}

func explainQuestion(b *strings.Builder, q explained.Question) {
	var own, spellings []string
	for _, t := range q.Terms {
		text := printable(t.Term) + " " + number(t.Weight)
		switch {
		case t.StemOf != "":
		case t.SpellingOf != "":
			spellings = append(spellings, text+" ("+printable(t.SpellingOf)+")")
		case t.NamesAuthor:
			own = append(own, text+" (names an author)")
		default:
			own = append(own, text)
		}
	}
	_, _ = fmt.Fprintf(b, "words: %s\n", cmp.Or(strings.Join(own, ", "), "none"))
	if len(spellings) > 0 {
		_, _ = fmt.Fprintf(b, "other spellings: %s\n", strings.Join(spellings, ", "))
	}
	var asks []string
	if q.Answer != "" {
		asks = append(asks, "a "+q.Answer)
	}
	if q.AsksOrder {
		asks = append(asks, "an order of events")
	}
	if q.AsksLatest {
		asks = append(asks, "what is current")
	}
	for _, p := range q.Periods {
		asks = append(asks, "what occurred from "+p.Start.Format(time.DateOnly)+" to "+p.End.Format(time.DateOnly))
	}
	if q.Author != "" {
		asks = append(asks, "the author "+printable(q.Author))
	}
	if q.OtherThan != "" {
		asks = append(asks, "an author other than "+printable(q.OtherThan))
	}
	if len(asks) > 0 {
		_, _ = fmt.Fprintf(b, "asks for: %s\n", strings.Join(asks, ", "))
	}
}

func gate(g explained.Gate) string {
	verdict := "passed"
	if !g.Passed {
		verdict = "refused"
	}
	return verdict + ", " + printable(g.Audience)
}

// formula shows a score with its parts: value × weight of each signal, and the factors.
func formula(s explained.Scored) string {
	if len(s.Signals) == 0 {
		return number(s.Score)
	}
	parts := make([]string, len(s.Signals))
	for i, c := range s.Signals {
		parts[i] = c.Signal + " " + number(c.Value) + "×" + number(c.Weight)
	}
	text := strings.Join(parts, " + ")
	if len(s.Factors) > 0 {
		text = "(" + text + ")"
	}
	for _, f := range s.Factors {
		text += " × " + f.Name + " " + number(f.Value)
	}
	return number(s.Score) + " = " + text
}

// number shows at most three decimal digits.
func number(value float64) string {
	return strings.TrimSuffix(strings.TrimRight(strconv.FormatFloat(value, 'f', 3, 64), "0"), ".")
}

// printable quotes text of a customer that would break a table or a terminal.
func printable(text string) string {
	for _, r := range text {
		if !strconv.IsPrint(r) {
			return strconv.Quote(text)
		}
	}
	return text
}

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
