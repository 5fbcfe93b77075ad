package main

import (
	"context"

	"github.com/annals-project/annals/bench"
)

// EngineCmd is "annals-bench engine".
type EngineCmd struct{ bench.EngineOptions }

// Run measures, and prints a table in Markdown.
func (c *EngineCmd) Run(ctx context.Context, env *Env) error {
	return bench.Engine(ctx, c.EngineOptions, env.Stderr, env.Stdout)
}
