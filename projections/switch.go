package projections

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/eventstore"
)

// errBehind is a schema beside that is behind the live one by more than can be made good while that one waits.
var errBehind = errors.New("the live projection went on")

// While a switch holds the live checkpoint, pages of the live projection wait for it.
const (
	switchLimit = 20 * time.Second
	// holdLimit is how long the building may take to come to where the live one waits.
	holdLimit = time.Second
)

// change puts the schema beside in the place of the live one, in one transaction: it locks both checkpoints, requires that the
// one beside is not behind, and renames the schemas. The epoch rises, so that a page of the live projector that is at work, and
// has written into tables that are no longer in use, commits nothing and comes again.
func (b *building) change(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, switchLimit)
	defer cancel()
	var epoch int64
	err := pgx.BeginTxFunc(ctx, b.next.db, pgx.TxOptions{BeginQuery: "begin; set local synchronous_commit = on"}, func(tx pgx.Tx) (err error) {
		epoch, err = b.rename(ctx, tx)
		return err
	})
	if err != nil && epoch > 0 && b.switched(ctx) {
		err = nil // it was committed, and the answer was lost
	}
	if err != nil {
		return err
	}
	if outside, ok := b.live.projector.(Outside); ok {
		if _, err := outside.Adopt(ctx, targetOf(b.next.projector)); err != nil {
			return fmt.Errorf("put the new index into use: %w", err)
		}
	}
	if t := b.live.turn.Load(); t != nil {
		t.end() // it is over anyway; so the live projector goes on at once
	}
	return nil
}

// rename does the work of change within its transaction, and answers the new epoch.
func (b *building) rename(ctx context.Context, tx pgx.Tx) (epoch int64, err error) {
	live, next := b.live.table, b.next.table
	row, found, err := live.find(ctx, tx, "")
	if _, held := errors.AsType[*heldError](err); err != nil && !held {
		return 0, err
	}
	if found {
		if err := b.comeTo(ctx, row.position); err != nil {
			return 0, err
		}
	}
	if err := b.next.flush(ctx, b.turn); err != nil {
		return 0, err
	}
	epoch = max(row.epoch, b.turn.epoch) + 1
	tag, err := tx.Exec(ctx, `update `+next.schema+`.checkpoint set epoch = $1, holder = '', until = clock_timestamp(), stopped = null
		where epoch = $2 and position >= $3`, epoch, b.turn.epoch, int64(row.position))
	if err := staleUnlessOne(tag, err); err != nil {
		return 0, err
	}
	statements := []string{"alter schema " + next.schema + " rename to " + live.schema}
	if found {
		// Whose turn it was keeps it, as far as other processes are concerned, if it can do anything with these rows.
		if _, err := tx.Exec(ctx, `update `+next.schema+`.checkpoint n set holder = l.holder, until = l.until, server = l.server
			from `+live.schema+`.checkpoint l where l.version = n.version`); err != nil {
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

// comeTo builds on to where the live projection waits.
func (b *building) comeTo(ctx context.Context, live eventstore.Position) error {
	if _, reached, _ := b.turn.at(); reached >= live {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, holdLimit)
	defer cancel()
	err := b.next.catchUp(limited, b.turn, live, nil)
	if _, reached, _ := b.turn.at(); reached >= live {
		return nil
	}
	if err == nil || limited.Err() != nil && ctx.Err() == nil {
		return errBehind
	}
	return err
}

// switched reports whether a switch whose answer was lost happened.
func (b *building) switched(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), switchLimit)
	defer cancel()
	for p := newPause(20*time.Millisecond, time.Second); ctx.Err() == nil; p.wait(ctx) {
		// A building that was not switched still has its schema.
		if row, err := b.next.table.read(ctx); err == nil {
			return row.epoch == 0
		}
	}
	return false
}
