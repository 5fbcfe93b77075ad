package directory

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/pg/replica"
	"github.com/annals-project/annals/internal/pg/switchover"
)

// headReader reads the head of the log.
type headReader interface {
	// Head returns the position of the newest event. No event acknowledged before the call is above
	// it.
	Head(ctx context.Context) (eventstore.Position, error)
}

// waiter waits for projections.
type waiter interface {
	// Wait returns nil once each of the named projections has applied the position, else a fault.
	Wait(ctx context.Context, position eventstore.Position, names ...string) error
	// Stopped returns the reason why a projection is stopped, nil if it runs.
	Stopped(ctx context.Context, name string) error
}

// scopes counts what recall could return of a project, by audience; uuid.Nil counts what is
// project-visible.
type scopes interface {
	Scopes(ctx context.Context, project auth.Project) (map[uuid.UUID]int64, error)
}

// pending reads when identities last recalled, for recalls that are not in the log yet. Identities
// without any are absent.
type pending interface {
	PendingSeen(ctx context.Context, project auth.Project, ids []uuid.UUID) (map[uuid.UUID]time.Time, error)
}

// Queries reads the tables of this projection, always for one project.
type Queries struct {
	db      *pgxpool.Pool
	store   headReader
	wait    waiter
	scopes  scopes
	pending pending
	rules   *ruleCache
	// replica may answer what Identities, Identity and Audiences read; nil for none.
	replica *replica.Reader
	// searched and searchedByTrait are how many identities a search by prefix looks at.
	searched, searchedByTrait int
	// matched and previewed are how many identities a list of members and a preview look at.
	matched, previewed int
	// previews are the turns of previews of rules.
	previews *turns
}

// NewQueries makes the queries of a process, which cache the rules of projects. db must be the
// primary, since their results decide what may be read.
func NewQueries(db *pgxpool.Pool, store headReader, wait waiter, scopes scopes, pending pending) *Queries {
	return &Queries{
		db: db, store: store, wait: wait, scopes: scopes, pending: pending, rules: newRuleCache(),
		searched: maxSearched, searchedByTrait: maxSearchedByTrait,
		matched: maxMatched, previewed: maxPreviewed, previews: new(newTurns()),
	}
}

// WithReplica returns queries that read identities and audiences at a replica where that has applied
// the head of the log. They share their cache with q, which only reads at the primary fill: its rules
// decide what may be read.
func (q *Queries) WithReplica(r *replica.Reader) *Queries {
	at := *q
	at.replica = r
	return &at
}

// requireRunning returns the fault service-unavailable while the projection is stopped: its rows
// may lack a removal.
func (q *Queries) requireRunning(ctx context.Context) error {
	if err := q.wait.Stopped(ctx, Name); err != nil {
		return fault.New(fault.Unavailable, fault.CodeServiceUnavailable,
			"the directory of identities and audiences is unavailable; /readyz shows the reason")
	}
	return nil
}

// readAtHead reads as of the head of the log at a call.
type readAtHead struct {
	q    *Queries
	kind string
	head eventstore.Position
	// primary is true once the projection has passed the head at the primary, where all is read then.
	primary bool
}

// atHead begins a read as of the head of the log. Kind names it in the metrics of the replica.
func (q *Queries) atHead(ctx context.Context, kind string) (*readAtHead, error) {
	head, err := q.store.Head(ctx)
	if err != nil {
		return nil, fmt.Errorf("read head of the log: %w", err)
	}
	r := &readAtHead{q: q, kind: kind, head: head}
	if q.replica == nil {
		return r, r.atPrimary(ctx)
	}
	return r, nil
}

// atPrimary makes the reads that follow those of the primary, once the projection has applied the head.
func (r *readAtHead) atPrimary(ctx context.Context) error {
	if r.primary {
		return nil
	}
	r.primary = true
	return r.q.wait.Wait(ctx, r.head, Name)
}

// do calls read with the replica if that has applied the head, else with the primary. It may call read
// twice.
func (r *readAtHead) do(ctx context.Context, read func(ctx context.Context, db replica.Snapshot) error) error {
	if served, err := r.try(ctx, read); served || err != nil {
		return err
	}
	return read(ctx, r.q.db)
}

// snapshot is do for several statements, which read one snapshot.
func (r *readAtHead) snapshot(
	ctx context.Context, read func(ctx context.Context, db replica.Snapshot) error,
) error {
	if served, err := r.try(ctx, read); served || err != nil {
		return err
	}
	return switchover.Snapshot(ctx, r.q.db, []string{Name}, func(ctx context.Context, tx pgx.Tx) error {
		return read(ctx, tx)
	})
}

// try reads at the replica. Unless it is served, the projection has applied the head at the primary.
func (r *readAtHead) try(
	ctx context.Context, read func(ctx context.Context, db replica.Snapshot) error,
) (served bool, err error) {
	if !r.primary {
		need := replica.Need{Kind: r.kind, Position: r.head, Projections: []string{Name}}
		if served, err := r.q.replica.Read(ctx, need, read); served || err != nil {
			return served, err
		}
	}
	return false, r.atPrimary(ctx)
}
