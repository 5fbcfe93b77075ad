package directory

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
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
}

// NewQueries makes the queries of a process, which cache the rules of projects. db must be the
// primary, since their results decide what may be read.
func NewQueries(db *pgxpool.Pool, store headReader, wait waiter, scopes scopes, pending pending) *Queries {
	return &Queries{db: db, store: store, wait: wait, scopes: scopes, pending: pending, rules: newRuleCache()}
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

// passHead waits until the projection has applied the head of the log.
func (q *Queries) passHead(ctx context.Context) error {
	head, err := q.store.Head(ctx)
	if err != nil {
		return fmt.Errorf("read head of the log: %w", err)
	}
	return q.wait.Wait(ctx, head, Name)
}
