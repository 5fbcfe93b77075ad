package runner

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/projections"
)

// errShadowLags means that the shadow lags too far to catch up within holdLimit.
var errShadowLags = errors.New("shadow lags the live projection")

// Pages of the live projection wait while a switch-over locks the live checkpoint.
const (
	switchLimit = 20 * time.Second
	// holdLimit bounds the catch-up of the shadow while the live projection waits.
	holdLimit = time.Second
)

// switchOver makes the shadow live in one transaction: it locks both checkpoints, requires that the
// shadow has caught up, and renames the schemas. It raises the epoch, so that a running page of the
// live projector, which has written to tables that are no longer live, fails to commit and comes
// again.
func (b *shadowBuild) switchOver(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, switchLimit)
	defer cancel()
	var epoch int64
	begin := pgx.TxOptions{
		BeginQuery: "begin; set local synchronous_commit = on; set local idle_in_transaction_session_timeout = '5s'",
	}
	err := pgx.BeginTxFunc(ctx, b.next.db, begin, func(tx pgx.Tx) (err error) {
		epoch, err = b.rename(ctx, tx)
		return err
	})
	if err != nil && epoch > 0 && b.switched(ctx) {
		err = nil // the commit succeeded, its reply was lost
	}
	if err != nil {
		return err
	}
	if external, ok := b.live.projector.(projections.External); ok {
		if _, err := external.Promote(ctx, projections.TargetOf(b.next.projector)); err != nil {
			return fmt.Errorf("promote the external target: %w", err)
		}
	}
	if l := b.live.current.Load(); l != nil {
		l.end() // the epoch has ended it; now the live projector continues at once
	}
	return nil
}

// rename is the transaction of switchOver. It returns the new epoch.
func (b *shadowBuild) rename(ctx context.Context, tx pgx.Tx) (epoch int64, err error) {
	live, next := b.live.table, b.next.table
	row, found, err := live.find(ctx, tx, "", b.logID)
	if _, held := errors.AsType[*heldError](err); err != nil && !held {
		return 0, err
	}
	if found {
		if err := b.catchUpTo(ctx, row.position); err != nil {
			return 0, err
		}
	}
	if err := b.next.flush(ctx, b.lease); err != nil {
		return 0, err
	}
	epoch = max(row.epoch, b.lease.epoch) + 1
	tag, err := tx.Exec(ctx, `update `+next.schema+`.checkpoint
		set epoch = $1, holder = '', until = clock_timestamp(), stopped = null where epoch = $2 and position >= $3`,
		epoch, b.lease.epoch, int64(row.position))
	if err := staleUnlessOne(tag, err); err != nil {
		return 0, err
	}
	statements := []string{"alter schema " + next.schema + " rename to " + live.schema}
	if found {
		// The holder of the live lease keeps it, if it runs this version.
		if _, err := tx.Exec(ctx, `update `+next.schema+`.checkpoint n
			set holder = l.holder, until = l.until, server = l.server
			from `+live.schema+`.checkpoint l where l.version = n.version or l.holder = $1`, b.live.holder); err != nil {
			return 0, err
		}
		if _, err := tx.Exec(ctx, `update `+live.schema+`.checkpoint set epoch = $1`, epoch); err != nil {
			return 0, err
		}
		old := pgx.Identifier{live.name + oldSuffix + strconv.FormatInt(epoch, 10)}.Sanitize()
		statements = append([]string{"alter schema " + live.schema + " rename to " + old}, statements...)
	}
	for _, s := range statements {
		if _, err := tx.Exec(ctx, s); err != nil {
			return 0, fmt.Errorf("%s: %w", s, err)
		}
	}
	return epoch, nil
}

// catchUpTo applies the log up to the position at which the live projection waits.
func (b *shadowBuild) catchUpTo(ctx context.Context, live eventstore.Position) error {
	if _, reached, _ := b.lease.at(); reached >= live {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, holdLimit)
	defer cancel()
	err := b.next.catchUp(limited, b.lease, logEnd{at: live}, nil)
	if _, reached, _ := b.lease.at(); reached >= live {
		return nil
	}
	if err == nil || limited.Err() != nil && ctx.Err() == nil {
		return errShadowLags
	}
	return err
}

// switched reports whether a switch-over happened whose reply was lost.
func (b *shadowBuild) switched(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), switchLimit)
	defer cancel()
	for p := (backoff.Backoff{First: 20 * time.Millisecond, Longest: time.Second}); ctx.Err() == nil; _ = p.Wait(ctx) {
		// Without a switch-over the shadow still has its schema.
		if row, err := b.next.table.read(ctx); err == nil {
			return row.epoch == 0
		}
	}
	return false
}
