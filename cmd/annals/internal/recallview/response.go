// Package recallview prints recalls and their explanations for people.
package recallview

import (
	"fmt"
	"io"
	"strings"

	"github.com/dustin/go-humanize/english"

	client "github.com/annals-project/annals/client"
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
