package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/dustin/go-humanize/english"

	"github.com/annals-project/annals/internal/client"
)

// RecallCmd is "annals recall".
type RecallCmd struct {
	Remote
	Query         string `arg:"" help:"The question."`
	Identity      string `name:"identity" required:"" help:"Customer id to answer as."`
	Limit         int    `name:"limit" help:"Most results, 1 to 200; default 100."`
	Level         string `name:"level" help:"Budget: low, medium, high or extra-high."`
	MaxTokens     int    `name:"max-tokens" help:"Budget in tokens, instead of a level."`
	At            string `name:"at" placeholder:"TIME" help:"Answer as of this time (ISO 8601)."`
	From          string `name:"from" placeholder:"TIME" help:"Only what occurred at or after this time."`
	To            string `name:"to" placeholder:"TIME" help:"Only what occurred at or before this time."`
	Chronological bool   `name:"chronological" help:"Oldest first, instead of best first."`
	JSON          bool   `name:"json" help:"Print the answer as one JSON value."`
}

// Run sends the query.
func (c *RecallCmd) Run(ctx context.Context, env *Env) error {
	to, err := c.client(client.Options{})
	if err != nil {
		return err
	}
	q := client.RecallRequest{
		Query: c.Query, Identity: c.Identity, Limit: c.Limit, Level: c.Level, MaxTokens: c.MaxTokens,
		QueryTimestamp: c.At, OccurredFrom: c.From, OccurredTo: c.To,
	}
	if c.Chronological {
		q.Sort = "chronological"
	}
	page, err := to.Recall(ctx, q)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(env.Stdout, page)
	}
	if len(page.Results) == 0 {
		_, err = fmt.Fprintln(env.Stdout, "nothing is remembered that matches")
	} else {
		_, err = io.WriteString(env.Stdout, recallText(page))
	}
	if err != nil {
		return fmt.Errorf("write answer: %w", err)
	}
	return nil
}

// recallText shows each result as its rank, kind and time, then its text and its sources.
func recallText(page client.RecallResponse) string {
	var b strings.Builder
	for _, r := range page.Results {
		_, _ = fmt.Fprintf(&b, "%d. %s, %s", r.Rank, r.Artifact.Kind, r.OccurredAt.UTC().Format("2006-01-02 15:04"))
		if r.Artifact.SupersededAt != nil {
			_, _ = fmt.Fprintf(&b, ", superseded %s", r.Artifact.SupersededAt.UTC().Format("2006-01-02 15:04"))
		}
		b.WriteString("\n" + indent(r.Content))
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
	_, _ = fmt.Fprintf(&b, "%s, %s\n", english.Plural(len(page.Results), "result", "results"),
		english.Plural(page.UsedEvidenceTokens, "token", "tokens"))
	return b.String()
}

func indent(text string) string {
	return "   " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n   ") + "\n"
}
