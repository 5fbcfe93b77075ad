package runner

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
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
		set `+endLease+` where epoch = $1`, b.lease.epoch)
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
