package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/projections"
)

// shadowBuild builds a projection in a shadow: the schema <name>_next.
type shadowBuild struct {
	live  *runner
	logID uuid.UUID
	// next runs the projector on the shadow. It has separate connections, whose statements are planned
	// for that schema.
	next       *runner
	lease      *lease
	maintained chan struct{}
	// purged is true once what was deleted during the build is off the disk.
	purged  bool
	options RebuildOptions
	// resumed is the position at which an interrupted build continues, 0 for a new one.
	resumed eventstore.Position
	// compared is true once the counts of the rows were compared with the live ones.
	compared bool
	// target is the projector of the shadow if it has an external target, nil otherwise.
	target projections.External
	// refuted is true if the external target does not hold what was written to it.
	refuted bool
}

// shadowConnections is what one build uses: for pages, its lease and the switch-over.
const shadowConnections = 4

// startShadow takes the lease of the shadow. It continues an interrupted build, or empties the
// schema. Like a live lease, it keeps other processes out.
func (r *runner) startShadow(ctx context.Context, options RebuildOptions) (*shadowBuild, error) {
	limited, cancel := context.WithTimeout(ctx, takeLimit)
	defer cancel()
	logID, err := r.logID(limited)
	if err != nil {
		return nil, fmt.Errorf("read id of the log: %w", err)
	}
	if err := r.setAside.Refresh(limited); err != nil {
		return nil, err
	}
	err = r.checkReplaceable(limited, logID)
	if stop, older := errors.AsType[*Stop](err); older && errors.Is(stop, errOlderCopy) {
		if !options.OlderCopy {
			return nil, fmt.Errorf("%w (to accept it, stop every service and run annals rebuild all --older-copy)", err)
		}
		err = r.dropRows(limited, logID)
	}
	if err != nil {
		return nil, err
	}
	cfg := r.db.Config()
	cfg.MaxConns, cfg.MinConns, cfg.MinIdleConns = shadowConnections, 0, 0
	db, err := pgxpool.NewWithConfig(limited, cfg)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	next := &runner{
		projector: r.projector, table: newCheckpoints(db, r.projector.Name()+shadowSuffix), db: db,
		store: r.store, codec: r.codec, logID: r.logID,
		holder: r.holder, leaseTime: r.leaseTime, log: r.log.With("shadow", true),
		progress: &progress{}, setAside: r.setAside, shared: options.shared,
		bounds: bounds{page: r.bounds.page, event: r.bounds.event}, repeatLimit: r.repeatLimit,
	}
	b := &shadowBuild{live: r, logID: logID, next: next, maintained: make(chan struct{}), options: options}
	if b.lease, err = b.takeLease(limited); err != nil {
		db.Close()
		return nil, err
	}
	b.lease.target = projections.TargetOf(next.projector)
	b.lease.ctx, b.lease.end = context.WithCancel(ctx)
	go func() {
		defer close(b.maintained)
		next.maintainOrEnd(b.lease)
	}()
	return b, nil
}

// checkReplaceable returns an error if the live rows are of another log or a later state of it, or
// if another process feeds the external target.
func (r *runner) checkReplaceable(ctx context.Context, logID uuid.UUID) error {
	if exists, err := isOurs(ctx, r.db, r.table.inDatabase(), logID); err != nil || !exists {
		return err
	}
	row, err := r.table.read(ctx)
	if err != nil || row.epoch == 0 {
		return err
	}
	if _, is := r.projector.(projections.External); is && row.holder != "" && row.holder != r.holder {
		return fmt.Errorf("%w: process %s feeds its external target", errFedElsewhere, row.holder)
	}
	return r.checkLog(ctx, row)
}

// dropRows makes the live projection empty, at position 0, unless a process has its lease.
func (r *runner) dropRows(ctx context.Context, logID uuid.UUID) error {
	err := pgx.BeginFunc(ctx, r.db, func(tx pgx.Tx) error {
		row, _, err := r.table.claim(ctx, tx, r.holder, logID)
		if err != nil {
			return err
		}
		if external, ok := r.projector.(projections.External); ok {
			if err := external.Reset(ctx); err != nil {
				return fmt.Errorf("reset the external target: %w", err)
			}
		}
		_, err = r.table.create(ctx, tx, r.projector, row.epoch, logID)
		return err
	})
	if err != nil {
		return fmt.Errorf("drop the rows of an older copy: %w", err)
	}
	return nil
}

// takeLease takes the schema of an interrupted build or creates it, unless another process builds it.
func (b *shadowBuild) takeLease(ctx context.Context) (*lease, error) {
	var row checkpoint
	var found bool
	n, began := b.next, time.Now()
	err := pgx.BeginFunc(ctx, n.db, func(tx pgx.Tx) (err error) {
		row, found, err = n.table.find(ctx, tx, n.holder, b.logID)
		if held, ok := errors.AsType[*heldError](err); ok {
			return fmt.Errorf("%w: by process %s", ErrRebuilding, held.holder)
		}
		if err != nil {
			return err
		}
		resumes := found && b.canResume(ctx, row)
		if external, ok := b.live.projector.(projections.External); ok {
			if !resumes {
				row.target = ""
			}
			if n.projector, resumes, err = external.Shadow(ctx, row.target); err != nil {
				return fmt.Errorf("begin shadow: %w", err)
			}
			b.target, _ = n.projector.(projections.External)
		}
		if resumes {
			b.resumed = row.position
		} else if row, err = n.table.create(ctx, tx, n.projector, row.epoch, b.logID); err != nil {
			return err
		}
		row.epoch, err = n.table.takeLease(ctx, tx, n.holder, n.leaseTime)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, b.closeTarget())
	}
	return newLease(row.epoch, row.position, began), nil
}

// closeTarget closes the external target of the shadow, if there is one.
func (b *shadowBuild) closeTarget() error {
	if b.target == nil {
		return nil
	}
	return b.target.Close()
}

// canResume reports whether the rows of an interrupted build are those of a new one at the same
// position.
func (b *shadowBuild) canResume(ctx context.Context, row checkpoint) bool {
	n := b.next
	if b.options.Restart || row.position == 0 {
		return false
	}
	if row.version != n.projector.Version() || row.logID != b.logID {
		return false
	}
	for at := range n.setAside.All() {
		if at <= row.position && n.setAside.Covers(at, n.projector.Name()) {
			return false // it may have been applied before it was set aside
		}
	}
	return n.checkLog(ctx, row) == nil
}

// run builds until the switch-over.
func (b *shadowBuild) run(ctx context.Context, report func(passed int, at eventstore.Position)) error {
	if err := b.compare(report); err != nil {
		return b.wrapEnd(ctx, err)
	}
	for {
		if err := b.next.catchUp(b.lease.ctx, b.lease, logEnd{}, report); err != nil {
			return b.wrapEnd(ctx, err)
		}
		if err := b.next.doAllFollowUps(b.lease); err != nil {
			return b.wrapEnd(ctx, err)
		}
		if err := b.purge(ctx); err != nil {
			return b.wrapEnd(ctx, err)
		}
		if err := b.verify(ctx); err != nil {
			return b.wrapEnd(ctx, err)
		}
		err := b.switchOver(ctx)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, errShadowLags):
			continue // the live projection moved on by more than holdLimit allows to catch up
		default:
			return b.wrapEnd(ctx, err)
		}
	}
}

// purge removes, once, the text that was built and deleted again: its deletion may already be
// recorded as cleaned, by a round that began before the build. Later rounds wait for the end of the
// build.
func (b *shadowBuild) purge(ctx context.Context) error {
	if b.purged {
		return nil
	}
	if b.target != nil {
		if err := b.target.Purge(ctx); err != nil {
			return fmt.Errorf("purge the shadow: %w", err)
		}
	}
	for _, table := range b.next.projector.TextTables() {
		name := pgx.Identifier{b.next.table.name, table}.Sanitize()
		_, err := b.next.db.Exec(ctx, "vacuum (index_cleanup on, truncate off) "+name, pgx.QueryExecModeSimpleProtocol)
		if err != nil {
			return fmt.Errorf("vacuum %s: %w", name, err)
		}
	}
	b.purged = true
	return nil
}

// verify returns ErrTarget if the external target does not hold what the rows say. What is applied
// later, while the live projection waits for the switch-over, is not counted.
func (b *shadowBuild) verify(ctx context.Context) error {
	if b.target == nil {
		return nil
	}
	err := pgx.BeginTxFunc(ctx, b.next.db, beginIn(b.next.table.schema), func(tx pgx.Tx) error {
		return b.target.Verify(ctx, tx)
	})
	if errors.Is(err, projections.ErrTarget) {
		b.refuted = true
	}
	if err != nil {
		return fmt.Errorf("verify the shadow: %w", err)
	}
	return nil
}

func (b *shadowBuild) wrapEnd(ctx context.Context, err error) error {
	if ctx.Err() == nil && b.lease.ctx.Err() != nil {
		return fmt.Errorf("lease of the shadow was lost: %w", err)
	}
	return err
}

// close ends a build. Unless it was switched over, it keeps the shadow if a later build can continue
// it, and drops it otherwise.
func (b *shadowBuild) close(ctx context.Context, switched bool) error {
	b.lease.end()
	<-b.maintained
	defer b.next.db.Close()
	if switched {
		return nil
	}
	closed := b.closeTarget()
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), takeLimit)
	defer cancel()
	tag, err := b.next.db.Exec(limited, `update `+b.next.table.schema+`.checkpoint
		set until = clock_timestamp() where epoch = $1`, b.lease.epoch)
	if err != nil || tag.RowsAffected() == 0 {
		return errors.Join(err, closed) // another process has the lease by now
	}
	keep := resumable
	if b.refuted {
		keep = 0 // it would be refuted again
	}
	_, err = b.live.dropLeftovers(limited, keep)
	return errors.Join(err, closed)
}
