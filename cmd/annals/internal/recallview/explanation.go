package recallview

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize/english"

	"github.com/annals-project/annals/projections/recall/explained"
)

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
