package main

import (
	"context"
	"errors"
	"time"

	"github.com/annals-project/annals/projections/datapoints"
)

// derive is the role of the worker. It begins with what earlier processes left leased.
func (p *process) derive(ctx context.Context) error {
	for {
		err := errors.Join(p.inheritLeases(ctx), p.pressure.begin(ctx))
		if err == nil {
			return p.worker.Run(ctx)
		}
		p.log.WarnContext(ctx, "the leases of earlier processes cannot be ended, so nothing is derived yet", "err", err)
		if !sleep(ctx, time.Second) {
			return nil
		}
	}
}

// inheritLeases ends the leases of processes that are known to be gone, and removes those that are of no use any more.
func (p *process) inheritLeases(ctx context.Context) error {
	queries, now := datapoints.Queries{DB: p.st.work}, p.now()
	if p.settings.EventStore == Embedded {
		// One process alone works on an embedded log, so whatever is leased was leased by one that is gone.
		if err := queries.AbandonLeases(ctx, now); err != nil {
			return err
		}
	}
	return queries.ForgetLeases(ctx, now)
}
