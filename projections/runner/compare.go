package runner

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/projections"
)

// querier reads one row.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// compareLimit bounds the wait for the follow-ups of the live projection.
const compareLimit = time.Minute

// compare builds up to the position of the live projection and compares how many rows both have
// there. It compares nothing if the live rows are of another version, or before the shadow.
func (b *shadowBuild) compare(passed func(events int, at eventstore.Position)) error {
	ctx := b.lease.ctx
	row, err := b.live.table.read(ctx)
	if err != nil {
		return err
	}
	if row.position == 0 || row.version != b.next.projector.Version() || b.options.Force {
		return nil
	}
	if err := b.next.catchUp(ctx, b.lease, logEnd{row.position, true}, passed); err != nil {
		return err
	}
	// The live projection has moved on a little meanwhile.
	at, live, left, err := b.countLive(ctx)
	limited, cancel := context.WithTimeout(ctx, compareLimit)
	defer cancel()
	for p := (backoff.Backoff{First: firstPoll, Longest: time.Second}); left && err == nil; {
		if p.Wait(limited) != nil {
			b.live.log.WarnContext(ctx, "rows of a rebuild not compared, the live projection has follow-ups", "position", at)
			return ctx.Err()
		}
		at, live, left, err = b.countLive(ctx)
	}
	if err != nil {
		return err
	}
	if _, reached, _ := b.lease.at(); at < reached {
		b.live.log.WarnContext(ctx, "rows of a rebuild not compared, the live projection lags it",
			"position", reached, "live", at)
		return nil
	}
	if err := b.next.catchUp(ctx, b.lease, logEnd{at, true}, passed); err != nil {
		return err
	}
	if err := b.next.doAllFollowUps(b.lease); err != nil {
		return err
	}
	tables := b.next.projector.Counted()
	next, err := countRows(ctx, b.next.db, b.next.table.schema, tables)
	if err != nil {
		return err
	}
	var differ []string
	for n, table := range tables {
		if live[n] != next[n] {
			differ = append(differ, fmt.Sprintf("%s has %d rows and %d rebuilt", table, live[n], next[n]))
		}
	}
	if len(differ) > 0 {
		return fmt.Errorf("%w: at position %d %s", ErrCounts, at, strings.Join(differ, ", "))
	}
	b.compared = len(tables) > 0
	return nil
}

// countLive counts the live rows, and returns the position that they are of. left is true if follow-ups still
// change them: then nothing is counted.
func (b *shadowBuild) countLive(ctx context.Context) (at eventstore.Position, counts []int64, left bool, err error) {
	snapshot := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err = pgx.BeginTxFunc(ctx, b.next.db, snapshot, func(tx pgx.Tx) error {
		var position int64
		err := tx.QueryRow(ctx, `select position from `+b.live.table.schema+`.checkpoint`).Scan(&position)
		if err != nil {
			return fmt.Errorf("read checkpoint of %s: %w", b.live.table.name, err)
		}
		at = eventstore.Position(position)
		if _, follows := b.live.projector.(projections.Following); follows {
			if left, err = hasFollowUps(ctx, tx, b.live.table.schema); err != nil || left {
				return err
			}
		}
		counts, err = countRows(ctx, tx, b.live.table.schema, b.live.projector.Counted())
		return err
	})
	return at, counts, left, err
}

// countRows counts the rows of tables in a schema.
func countRows(ctx context.Context, db querier, schema string, tables []string) ([]int64, error) {
	counts := make([]int64, len(tables))
	for n, table := range tables {
		if err := db.QueryRow(ctx, `select count(*) from `+schema+"."+table).Scan(&counts[n]); err != nil {
			return nil, fmt.Errorf("count %s.%s: %w", schema, table, err)
		}
	}
	return counts, nil
}
