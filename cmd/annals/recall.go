package main

import (
	"context"
	"errors"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/cmd/annals/internal/recallview"
)

// RecallCmd is "annals recall".
type RecallCmd struct {
	operatorapi.WhoFlags
	Remote
	OrgFlag
	Query         string   `arg:"" help:"The question."`
	Identity      string   `name:"identity" required:"" help:"Customer id to answer as."`
	Limit         int      `name:"limit" help:"Most results, 1 to 200; default 100."`
	Level         string   `name:"level" help:"Budget: low, medium, high or extra-high."`
	MaxTokens     int      `name:"max-tokens" help:"Budget in tokens, instead of a level."`
	At            string   `name:"at" placeholder:"TIME" help:"Answer as of this time (ISO 8601); \"yesterday\" is a day at its offset, default UTC."`
	From          string   `name:"from" placeholder:"TIME" help:"Only what occurred at or after this time."`
	To            string   `name:"to" placeholder:"TIME" help:"Only what occurred at or before this time; a date alone is that UTC day to its end."`
	Chronological bool     `name:"chronological" help:"Oldest first, instead of best first."`
	Full          bool     `name:"full" help:"Print long texts whole, not only their lines with words of the question."`
	Explain       bool     `name:"explain" help:"Show why each result is there; asks the server that runs on the data folder, as its operator."`
	Missing       []string `name:"missing" sep:"none" placeholder:"SOURCE_ID" help:"With --explain: show where recall lost this source; may be repeated."`
	Project       string   `name:"project" placeholder:"SLUG" help:"With --explain: project to ask; default that of the key."`
	JSON          bool     `name:"json" help:"Print the answer as one JSON value."`
}

// Validate is called by the parser.
func (c *RecallCmd) Validate() error {
	if !c.Explain && (len(c.Missing) > 0 || c.Project != "" || c.Org != "") {
		return errors.New("--missing, --project and --org need --explain")
	}
	return nil
}

// Run sends the query.
func (c *RecallCmd) Run(ctx context.Context, env *Env) error {
	q := client.RecallRequest{
		Query: c.Query, Identity: c.Identity, Limit: c.Limit, Level: c.Level, MaxTokens: c.MaxTokens,
		QueryTimestamp: c.At, OccurredFrom: c.From, OccurredTo: c.To,
	}
	if c.Chronological {
		q.Sort = "chronological"
	}
	if c.Explain {
		return c.explain(ctx, env, q)
	}
	to, err := c.client()
	if err != nil {
		return err
	}
	page, err := to.Recall(ctx, q)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(env.Stdout, page)
	}
	return recallview.PrintResponse(env.Stdout, *page, c.Query, c.Full)
}

// explain explains the query through the socket of the data folder.
func (c *RecallCmd) explain(ctx context.Context, env *Env, q client.RecallRequest) error {
	if c.Project == "" {
		if _, err := c.client(); err != nil { // finds the key
			return err
		}
	}
	in, err := operatorapi.NewExplainRequest(q, c.Key, c.Missing)
	if err != nil {
		return err
	}
	in.Organization, in.Project = c.Org, c.Project
	explained, err := operatorapi.ExplainRecall.Call(ctx, operatorapi.Dial(c.DataDir), in)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(env.Stdout, explained)
	}
	return recallview.PrintExplanation(env.Stdout, explained)
}
