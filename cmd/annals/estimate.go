package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/annals-project/annals/cmd/annals/internal/transfer"
	"github.com/annals-project/annals/domain/estimate"
)

// EstimateCmd is "annals estimate".
type EstimateCmd struct {
	Remote
	Paths    []string `arg:"" name:"path" help:"Files, and folders with all that is in them."`
	Kind     string   `name:"kind" placeholder:"KIND" help:"What all files are: email, chat, transcript, table, records, code, documentation or notes; default: detected."`
	TimeZone string   `name:"time-zone" placeholder:"ZONE" help:"IANA zone of times that are written without one, such as Europe/Rome; default UTC."`
	JSON     bool     `name:"json" help:"Print the estimate as one JSON value, in the shape of the API."`
}

// Validate is called by the parser.
func (c *EstimateCmd) Validate() error {
	if c.Kind != "" && !estimate.IsKind(c.Kind) {
		return fmt.Errorf("--kind is %q: want %s", c.Kind, strings.Join(estimate.KindNames(), ", "))
	}
	return nil
}

// Run estimates the files.
func (c *EstimateCmd) Run(ctx context.Context, env *Env) error {
	cut := transfer.Cut{Kind: c.Kind, TimeZone: c.TimeZone}
	estimated, err := transfer.Estimate(ctx, c.client, c.Paths, cut, env.terminal())
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(env.Stdout, estimated)
	}
	return transfer.PrintEstimate(env.Stdout, estimated)
}
