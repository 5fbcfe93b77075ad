package runner

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/internal/pg"
	"github.com/annals-project/annals/internal/pg/ownership"
	"github.com/annals-project/annals/projections"
)

// The errors of a rebuild that callers distinguish, with errors.Is.
var (
	ErrUnknownProjection = errors.New("unknown projection")
	ErrRebuilding        = errors.New("projection is being rebuilt already")
	errFedElsewhere      = errors.New("projection belongs to another process")
	ErrCounts            = errors.New("the rebuilt rows are not as many as the live ones")
)

// RebuildProgress is the progress of a rebuild.
type RebuildProgress struct {
	Projection string `json:"projection"`
	// Everything up to Position is applied. Head is the last known end of the log.
	Position eventstore.Position `json:"position"`
	Head     eventstore.Position `json:"head"`
	// Resumed is the position at which an interrupted rebuild was continued, 0 for a new one.
	Resumed eventstore.Position `json:"resumed,omitempty"`
	// Events is how many events were read since then, in Seconds.
	Events  int64   `json:"events"`
	Seconds float64 `json:"seconds"`
	// LeftSeconds is an estimate of the time until the shadow has caught up, 0 if it is not known.
	LeftSeconds float64 `json:"leftSeconds,omitempty"`
	// Compared is true once the counts of the rows were compared with the live ones.
	Compared bool `json:"compared,omitempty"`
	// Done means that the new rows are live.
	Done bool `json:"done"`
}

// Rate returns events a second.
func (p RebuildProgress) Rate() float64 { return float64(p.Events) / max(p.Seconds, 0.001) }

// Names returns the projections of this process, in the order of Config.
func (rt *Runtime) Names() []string {
	names := make([]string, len(rt.runners))
	for i, r := range rt.runners {
		names[i] = r.projector.Name()
	}
	return names
}

// RebuildOptions are the options of a rebuild.
type RebuildOptions struct {
	// Rate bounds the events a second, on average over some thousand events; 0 is no bound.
	Rate int `json:"rate,omitempty"`
	// Restart begins at position 0, although an interrupted rebuild could be continued.
	Restart bool `json:"restart,omitempty"`
	// Force switches over although the counts of the rows differ.
	Force bool `json:"force,omitempty"`
	// OlderCopy accepts a log that went back: rows that were built from what it no longer holds are dropped first. No
	// process may run the projection, so a running server is never asked for it.
	OlderCopy bool `json:"-"`
	// shared reads the log for all rebuilds of a RebuildAll.
	shared *sharedReads
}

// Rebuild is RebuildWith without options.
func (rt *Runtime) Rebuild(ctx context.Context, name string, report func(RebuildProgress)) error {
	return rt.RebuildWith(ctx, name, RebuildOptions{}, report)
}

// RebuildWith builds a projection in a shadow, and switches over once the shadow has caught up. It
// begins at position 0, or continues a rebuild that was interrupted within the last day. The live
// projection continues until then; readers notice nothing. It calls report, if not nil, after every
// page. It returns ErrCounts if the rows at the position of the live projection are not as many as the
// live ones, and projections.ErrTarget if an external target does not hold what was written to it. Run
// need not be running.
func (rt *Runtime) RebuildWith(
	ctx context.Context, name string, options RebuildOptions, report func(RebuildProgress),
) error {
	for _, r := range rt.runners {
		if r.projector.Name() == name {
			return r.rebuild(ctx, options, report)
		}
	}
	return fmt.Errorf("%w: %s", ErrUnknownProjection, name)
}

// RebuildAll rebuilds projections at the same time: they read and decode the log once. If one cannot be
// rebuilt, the others are. report is called by several goroutines.
func (rt *Runtime) RebuildAll(
	ctx context.Context, names []string, options RebuildOptions, report func(RebuildProgress),
) error {
	options.shared = newSharedReads(rt.store, rt.codec, names)
	errs := make([]error, len(names))
	var group sync.WaitGroup
	for i, name := range names {
		group.Go(func() {
			defer options.shared.leave(name)
			defer panics.Recover(ctx, rt.log, &errs[i], "rebuild panicked", "projection", name)
			errs[i] = rt.RebuildWith(ctx, name, options, report)
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

func (r *runner) rebuild(ctx context.Context, options RebuildOptions, report func(RebuildProgress)) error {
	if report == nil {
		report = func(RebuildProgress) {}
	}
	if !r.rebuilding.CompareAndSwap(false, true) {
		return ErrRebuilding
	}
	defer r.rebuilding.Store(false)
	// A check for leftovers holds the shadow for a moment.
	if err := r.shadow.lock(ctx); err != nil {
		return fmt.Errorf("rebuild %s: wait for the shadow: %w", r.projector.Name(), err)
	}
	defer r.shadow.unlock()
	p := RebuildProgress{Projection: r.projector.Name()}
	began := time.Now()
	b, err := r.startShadow(ctx, options)
	if err != nil {
		return fmt.Errorf("rebuild %s: %w", p.Projection, err)
	}
	p.Resumed = b.resumed
	err = b.run(ctx, func(passed int, at eventstore.Position) {
		p.Position, p.Events, p.Seconds = at, p.Events+int64(passed), time.Since(began).Seconds()
		if head, err := r.store.Head(ctx); err == nil {
			p.Head = head
		}
		p.LeftSeconds = p.left()
		report(p)
		if options.Rate > 0 {
			due := time.Duration(float64(p.Events) / float64(options.Rate) * float64(time.Second))
			_ = backoff.Pause(b.lease.ctx, due-time.Since(began), nil)
		}
	})
	if err = errors.Join(err, b.close(ctx, err == nil)); err != nil {
		return fmt.Errorf("rebuild %s: %w", p.Projection, err)
	}
	// A stop belongs to the rows that are gone.
	r.progress.change(func(p *progress) { p.stop, p.lastErr, p.repeat = nil, nil, nil })
	r.log.InfoContext(ctx, "projection rebuilt", "events", p.Events, "took", time.Since(began).String())
	if err := r.dropOld(ctx, b.logID); err != nil {
		r.log.WarnContext(ctx, "drop of the old schema failed, will retry", "err", err)
	}
	p.Seconds, p.LeftSeconds, p.Compared, p.Done = time.Since(began).Seconds(), 0, b.compared, true
	report(p)
	return nil
}

// left estimates the seconds until the shadow has caught up, from the positions that it passed so far.
func (p RebuildProgress) left() float64 {
	if p.Position <= p.Resumed || p.Head <= p.Position {
		return 0
	}
	return p.Seconds * float64(p.Head-p.Position) / float64(p.Position-p.Resumed)
}

// Rebuilding is a projection that is built in a shadow, or was until its rebuild was interrupted.
type Rebuilding struct {
	Projection string
	Position   eventstore.Position
	// IsRunning is false for a rebuild that was interrupted and can be continued.
	IsRunning bool
}

// Rebuilds returns the rebuilds of all processes that use a log, as their shadows show them.
func Rebuilds(
	ctx context.Context, db *pgxpool.Pool, logID func(context.Context) (uuid.UUID, error),
) ([]Rebuilding, error) {
	schemas, err := leftovers(ctx, db, logID)
	if err != nil {
		return nil, err
	}
	prefix := pg.SchemaPrefixOf(db)
	var list []Rebuilding
	for _, schema := range schemas {
		name, isShadow := strings.CutSuffix(schema, shadowSuffix)
		if !isShadow {
			continue
		}
		r := Rebuilding{Projection: strings.TrimPrefix(name, string(prefix))}
		err := db.QueryRow(ctx, `select position, until > clock_timestamp() from `+pgx.Identifier{schema}.Sanitize()+
			`.checkpoint`).Scan(&r.Position, &r.IsRunning)
		dropped, is := errors.AsType[*pgconn.PgError](err)
		if errors.Is(err, pgx.ErrNoRows) || is && dropped.Code == "42P01" {
			continue // it ended meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("read the rebuild of %s: %w", name, err)
		}
		list = append(list, r)
	}
	return list, nil
}

// DropLeftovers drops what rebuilds left that ended without a switch-over, such as those of a
// killed process: shadows whose lease is over, with their external targets, and schemas that were
// live before. It leaves running rebuilds alone.
func (rt *Runtime) DropLeftovers(ctx context.Context) error { return rt.dropLeftovers(ctx, 0) }

// dropLeftovers is DropLeftovers, but retains for a time what an interrupted rebuild can continue.
func (rt *Runtime) dropLeftovers(ctx context.Context, retain time.Duration) error {
	var errs []error
	for _, r := range rt.runners {
		if !r.shadow.tryLock() {
			continue // this process rebuilds it
		}
		_, err := r.dropLeftovers(ctx, retain)
		r.shadow.unlock()
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// watchLeftovers drops leftovers as soon as their leases are over, or they are too old to continue.
func (rt *Runtime) watchLeftovers(ctx context.Context) {
	for ctx.Err() == nil {
		_ = backoff.Pause(ctx, leftoversEvery, nil)
		names, err := leftovers(ctx, rt.db, rt.logID)
		if err == nil && len(names) > 0 {
			err = rt.dropLeftovers(ctx, resumable)
		}
		if err != nil && ctx.Err() == nil {
			rt.log.WarnContext(ctx, "drop of rebuild leftovers failed, will retry", "err", err)
		}
	}
}

// leftoversEvery is the pause between two checks for leftovers: about one lease.
const leftoversEvery = 5 * time.Second

// resumable is how long an interrupted rebuild can be continued. A round of erasure ends that earlier.
const resumable = 24 * time.Hour

// shadowLock is a lock that can be waited for as long as a context lasts. It has room for one value.
type shadowLock chan struct{}

func (l shadowLock) lock(ctx context.Context) error {
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l shadowLock) tryLock() bool {
	select {
	case l <- struct{}{}:
		return true
	default:
		return false
	}
}

func (l shadowLock) unlock() { <-l }

// leftovers returns the names in the database of the schemas of shadows and those that were live before, of one log.
func leftovers(
	ctx context.Context, db *pgxpool.Pool, logID func(context.Context) (uuid.UUID, error),
) ([]string, error) {
	found, err := ownership.Find(ctx, db, nil, "("+shadowSuffix+"|"+oldSuffix+"[0-9]+)$")
	if err != nil || len(found) == 0 {
		return nil, err
	}
	id, err := logID(ctx)
	if err != nil {
		return nil, fmt.Errorf("read id of the log: %w", err)
	}
	prefix := pg.SchemaPrefixOf(db)
	return slices.DeleteFunc(ofLog(found, id), prefix.IsOfAnother), nil
}

// ofLog returns the names of the schemas that are proved to be of a log. Others are left alone.
func ofLog(schemas []ownership.Schema, logID uuid.UUID) (names []string) {
	for _, s := range schemas {
		if s.Require(logID) == nil {
			names = append(names, s.Name)
		}
	}
	return names
}

// dropLeftovers drops what rebuilds of this projection left, but retains for a time what a rebuild
// can continue. held is true if another process may be rebuilding it. The caller holds shadow.
func (r *runner) dropLeftovers(ctx context.Context, retain time.Duration) (held bool, err error) {
	logID, err := r.logID(ctx)
	if err != nil {
		return false, fmt.Errorf("read id of the log: %w", err)
	}
	if err := r.dropOld(ctx, logID); err != nil {
		return false, err
	}
	// A lease of this process is of a rebuild that ended.
	held, retained, err := dropShadow(ctx, r.db, r.projector.Name()+shadowSuffix, logID, r.holder, retain)
	if held || retained || err != nil {
		return held, err
	}
	if external, ok := r.projector.(projections.External); ok {
		if err := external.Discard(ctx); err != nil {
			return false, fmt.Errorf("discard the shadow of the target: %w", err)
		}
	}
	return false, nil
}

// dropShadow drops the schema of a shadow, unless another holder has the lease on it, or its lease
// ended within a time: then retained is true. It leaves a schema alone that is not of the log.
func dropShadow(
	ctx context.Context, db *pgxpool.Pool, name string, logID uuid.UUID, holder string, retain time.Duration,
) (held, retained bool, err error) {
	shadow := newCheckpoints(db, name)
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		row, found, err := shadow.find(ctx, tx, holder, logID)
		if err != nil {
			return err
		}
		if found && retain > 0 && row.position > 0 {
			err := tx.QueryRow(ctx, `select until > clock_timestamp() - make_interval(secs => $1)
				from `+shadow.schema+`.checkpoint`, retain.Seconds()).Scan(&retained)
			if err != nil || retained {
				return err
			}
		}
		return dropOurs(ctx, tx, shadow.inDatabase(), logID)
	})
	if _, is := errors.AsType[*ownership.ForeignError](err); is {
		return false, false, nil
	}
	if _, is := errors.AsType[*heldError](err); is {
		return true, false, nil
	}
	if err != nil {
		return false, false, fmt.Errorf("drop schema %s: %w", shadow.inDatabase(), err)
	}
	return false, retained, nil
}

// dropOld drops the schemas of this projection that were live before.
func (r *runner) dropOld(ctx context.Context, logID uuid.UUID) error {
	found, err := ownership.Find(ctx, r.db, nil, "^"+regexp.QuoteMeta(r.table.inDatabase())+oldSuffix+"[0-9]+$")
	if err != nil {
		return fmt.Errorf("list old schemas: %w", err)
	}
	for _, name := range ofLog(found, logID) {
		if err := dropOldSchema(ctx, r.db, name, logID); err != nil {
			return err
		}
	}
	return nil
}

// dropOldSchema drops a schema that was live before. It retries while a statement still uses the
// schema, each time shorter than Postgres waits before it looks for a deadlock and might end that
// statement.
func dropOldSchema(ctx context.Context, db *pgxpool.Pool, name string, logID uuid.UUID) error {
	for p := (backoff.Backoff{First: 20 * time.Millisecond, Longest: time.Second}); ; _ = p.Wait(ctx) {
		begin := pgx.TxOptions{BeginQuery: "begin; set local lock_timeout = '100ms'"}
		err := pgx.BeginTxFunc(ctx, db, begin, func(tx pgx.Tx) error {
			return dropOurs(ctx, tx, name, logID)
		})
		if err == nil {
			return nil
		}
		if refused, ok := errors.AsType[*pgconn.PgError](err); !ok || refused.Code != lockNotAvailable || ctx.Err() != nil {
			return fmt.Errorf("drop schema %s: %w", name, err)
		}
	}
}

const lockNotAvailable = "55P03"

// isOurs reports whether a schema exists. One that is not proved to be of the log is an
// *ownership.ForeignError.
func isOurs(ctx context.Context, db ownership.Querier, name string, logID uuid.UUID) (exists bool, err error) {
	schema, exists, err := ownership.One(ctx, db, name)
	if err != nil || !exists {
		return false, err
	}
	return true, schema.Require(logID)
}

// dropOurs drops a schema if it exists, and nothing that is not proved to be of the log.
func dropOurs(ctx context.Context, tx pgx.Tx, name string, logID uuid.UUID) error {
	exists, err := isOurs(ctx, tx, name, logID)
	if err != nil || !exists {
		return err
	}
	_, err = tx.Exec(ctx, "drop schema "+pgx.Identifier{name}.Sanitize()+" cascade")
	return err
}
