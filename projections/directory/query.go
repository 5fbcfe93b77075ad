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
	"github.com/annals-project/annals/internal/unnest"
)

// Log tells where the log ends.
type Log interface {
	// Head is the position of the newest event: none that was acknowledged before the call is above it.
	Head(ctx context.Context) (eventstore.Position, error)
}

// Waiter knows how far projections are.
type Waiter interface {
	// Wait returns nil once each of the named projections has applied the position, else a fault.
	Wait(ctx context.Context, position eventstore.Position, names ...string) error
	// Stopped is nil for a projection that runs.
	Stopped(ctx context.Context, name string) error
}

// Scopes counts what recall could return of a project, by the audience that it is scoped to; uuid.Nil is what is project-visible.
type Scopes interface {
	Scopes(ctx context.Context, project auth.Project) (map[uuid.UUID]int64, error)
}

// Pending tells when identities recalled, as far as the log does not say it yet; who did not is not in the answer.
type Pending interface {
	PendingSeen(ctx context.Context, project auth.Project, ids []uuid.UUID) (map[uuid.UUID]time.Time, error)
}

// Queries answers from the tables of this projection, always for one project.
type Queries struct {
	db      *pgxpool.Pool
	log     Log
	wait    Waiter
	scopes  Scopes
	pending Pending
	rules   *ruleCache
}

// NewQueries makes the queries of a process, which remember the rules of projects. db is the primary: what they answer decides.
func NewQueries(db *pgxpool.Pool, log Log, wait Waiter, scopes Scopes, pending Pending) *Queries {
	return &Queries{db: db, log: log, wait: wait, scopes: scopes, pending: pending, rules: newRuleCache()}
}

// running is the fault service-unavailable while the projection is stopped: what it says could have been taken back.
func (q *Queries) running(ctx context.Context) error {
	if err := q.wait.Stopped(ctx, Name); err != nil {
		return fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "the directory of identities and audiences cannot be read; /readyz says why")
	}
	return nil
}

// passHead waits until the projection has passed where the log ends now.
func (q *Queries) passHead(ctx context.Context) error {
	head, err := q.log.Head(ctx)
	if err != nil {
		return fmt.Errorf("read the head of the log: %w", err)
	}
	return q.wait.Wait(ctx, head, Name)
}

func idsOf(list []uuid.UUID) [][16]byte {
	return unnest.IDs(list, same)
}
