package projections

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/eventstore"
)

// building is a projection that is built in a schema beside the live one.
type building struct {
	live *runner
	// next runs the projector on the schema beside. It has connections of its own, whose statements are planned for that schema.
	next *runner
	turn *turn
	kept chan struct{}
	// vacuumed is true once what was deleted while it was built is gone.
	vacuumed bool
}

// besideConnections is what a building takes: pages, the keeping of its turn, the switch.
const besideConnections = 4

// buildBeside takes the schema beside the live one and empties it. The turn in it keeps other processes out, as that of the live one does.
func (r *runner) buildBeside(ctx context.Context) (*building, error) {
	limited, cancel := context.WithTimeout(ctx, takeLimit)
	defer cancel()
	logID, err := r.logID(limited)
	if err != nil {
		return nil, fmt.Errorf("id of the log: %w", err)
	}
	if err := r.aside.refresh(limited); err != nil {
		return nil, err
	}
	if err := r.mayReplace(limited, logID); err != nil {
		return nil, err
	}
	cfg := r.db.Config()
	cfg.MaxConns, cfg.MinConns, cfg.MinIdleConns = besideConnections, 0, 0
	db, err := pgxpool.NewWithConfig(limited, cfg)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	next := &runner{
		projector: r.projector, table: newCheckpoints(db, r.projector.Name()+besideSuffix), db: db, store: r.store, codec: r.codec, logID: r.logID,
		holder: r.holder, lease: r.lease, log: r.log.With("beside", true), progress: &progress{}, aside: r.aside,
		bounds: bounds{page: r.bounds.page, event: r.bounds.event}, repeatLimit: r.repeatLimit,
	}
	b := &building{live: r, next: next, kept: make(chan struct{})}
	if b.turn, err = b.take(limited, logID); err != nil {
		db.Close()
		return nil, err
	}
	b.turn.ctx, b.turn.end = context.WithCancel(ctx)
	go func() {
		defer close(b.kept)
		next.guardedKeep(b.turn)
	}()
	return b, nil
}

// mayReplace is an error where what is live belongs to another log or to one that is further, or to an index of another process.
func (r *runner) mayReplace(ctx context.Context, logID uuid.UUID) error {
	row, err := r.table.read(ctx)
	if err != nil || row.epoch == 0 {
		return err
	}
	if row.logID != logID {
		return r.stopFor(fmt.Errorf("its rows are built from log %s, and the event store holds log %s: connect it to its own log, or drop schema %s to have it built anew",
			row.logID, logID, r.projector.Name()))
	}
	if _, outside := r.projector.(Outside); outside && row.holder != "" && row.holder != r.holder {
		return fmt.Errorf("%w: process %s feeds it, and its index is there", ErrElsewhere, row.holder)
	}
	return r.sameLog(ctx, row)
}

// take makes the schema beside the live one, unless another process is at it.
func (b *building) take(ctx context.Context, logID uuid.UUID) (*turn, error) {
	var row checkpoint
	n, began := b.next, time.Now()
	err := pgx.BeginFunc(ctx, n.db, func(tx pgx.Tx) (err error) {
		row, _, err = n.table.find(ctx, tx, n.holder)
		if held, ok := errors.AsType[*heldError](err); ok {
			return fmt.Errorf("%w: by process %s", ErrRebuilding, held.holder)
		}
		if err != nil {
			return err
		}
		if outside, ok := b.live.projector.(Outside); ok {
			if n.projector, err = outside.Beside(ctx); err != nil {
				return fmt.Errorf("begin beside: %w", err)
			}
		}
		if row, err = n.table.make(ctx, tx, n.projector, row.epoch, logID); err != nil {
			return err
		}
		row.epoch, err = n.table.raise(ctx, tx, n.holder, n.lease)
		return err
	})
	if err != nil {
		return nil, err
	}
	return newTurn(row.epoch, 0, began), nil
}

// run builds until the switch is done.
func (b *building) run(ctx context.Context, report func(passed int, at eventstore.Position)) error {
	for {
		if err := b.next.catchUp(b.turn.ctx, b.turn, 0, report); err != nil {
			return b.ended(ctx, err)
		}
		if err := b.vacuum(ctx); err != nil {
			return b.ended(ctx, err)
		}
		err := b.change(ctx)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, errBehind):
			continue // the live one went on in the meantime, by more than can be made good while it waits
		default:
			return b.ended(ctx, err)
		}
	}
}

// vacuum removes, once, the text that was built and deleted again: a deletion may be said to be cleaned already, by a round that
// began before the building. Those that begin later wait for its end.
func (b *building) vacuum(ctx context.Context) error {
	if b.vacuumed {
		return nil
	}
	if outside, ok := b.next.projector.(Expunger); ok {
		if err := outside.Expunge(ctx); err != nil {
			return fmt.Errorf("expunge what was built beside: %w", err)
		}
	}
	keeper, keeps := b.next.projector.(TextKeeper)
	if !keeps {
		b.vacuumed = true
		return nil
	}
	for _, table := range keeper.TextTables() {
		name := pgx.Identifier{b.next.table.name, table}.Sanitize()
		if _, err := b.next.db.Exec(ctx, "vacuum (index_cleanup on, truncate off) "+name, pgx.QueryExecModeSimpleProtocol); err != nil {
			return fmt.Errorf("vacuum %s: %w", name, err)
		}
	}
	b.vacuumed = true
	return nil
}

func (b *building) ended(ctx context.Context, err error) error {
	if ctx.Err() == nil && b.turn.ctx.Err() != nil {
		return fmt.Errorf("the turn beside was lost: %w", err)
	}
	return err
}

// close ends a building. One that was not switched leaves nothing behind.
func (b *building) close(ctx context.Context, switched bool) error {
	b.turn.end()
	<-b.kept
	defer b.next.db.Close()
	if switched {
		return nil
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), takeLimit)
	defer cancel()
	tag, err := b.next.db.Exec(limited, `update `+b.next.table.schema+`.checkpoint set until = clock_timestamp() where epoch = $1`, b.turn.epoch)
	if err != nil || tag.RowsAffected() == 0 {
		return err // another process has it by now
	}
	_, err = b.live.dropLeftovers(limited)
	return err
}
