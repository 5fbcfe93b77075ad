package main

import (
	"context"

	"github.com/annals-project/annals/bench"
)

// AuditCmd is "annals-bench audit": what the audit log costs. It starts a separate server.
type AuditCmd struct {
	bench.AuditOptions
	RowFlags
}

// Run runs the benchmark.
func (c *AuditCmd) Run(ctx context.Context, env *Env) error {
	return measure(ctx, env, &MeasuredServer{Own: true}, &c.RowFlags, c.AuditOptions, bench.Audit)
}
