package main

import (
	"context"
	"errors"
	"time"

	"github.com/annals-project/annals/bench"
)

// NeedlesCmd is "annals-bench needles". It writes to projects that it creates, and does not remove them.
type NeedlesCmd struct {
	MeasuredServer
	bench.NeedlesOptions
	MinR1 float64       `name:"min-r1" help:"Fail if fewer questions than this share have their text as the first result."`
	Wait  time.Duration `name:"wait" default:"15m" help:"Longest wait until everything that was sent can be recalled."`
	JSON  bool          `name:"json" help:"Print the report as one JSON value."`
}

// Run measures and prints. It fails if the bound is missed.
func (c *NeedlesCmd) Run(ctx context.Context, env *Env) error {
	cfg, err := c.config(env, c.Wait)
	if err != nil {
		return err
	}
	report, err := bench.Needles(ctx, cfg, c.NeedlesOptions)
	if err != nil {
		return err
	}
	if c.JSON {
		err = printJSON(env.Stdout, report)
	} else {
		err = report.Table(env.Stdout)
	}
	return errors.Join(err, report.Check(c.MinR1))
}
