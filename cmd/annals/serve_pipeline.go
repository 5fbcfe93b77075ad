package main

import (
	"context"
	"errors"
	"time"

	"github.com/annals-project/annals/projections/datapoints"
)

// derive is the role of the worker. It first ends the leases that earlier processes left.
func (p *process) derive(ctx context.Context) error {
	for {
		err := errors.Join(p.inheritLeases(ctx), p.pressure.begin(ctx))
		if err == nil {
			return p.worker.Run(ctx)
		}
		p.log.WarnContext(ctx, "leases of earlier processes cannot be ended, derivation waits, will retry", "err", err)
		if !sleep(ctx, time.Second) {
			return nil
		}
	}
}

// inheritLeases ends the leases of processes that have ended, and removes leases that nothing
// needs.
func (p *process) inheritLeases(ctx context.Context) error {
	queries, now := datapoints.Queries{DB: p.st.work}, p.now()
	if p.settings.EventStore == Embedded {
		// Only one process works on an embedded log, so every lease is one of a process that has
		// ended.
		if err := queries.AbandonLeases(ctx, now); err != nil {
			return err
		}
	}
	return queries.ForgetLeases(ctx, now)
}
