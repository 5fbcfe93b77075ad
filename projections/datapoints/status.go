package datapoints

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/pg/replica"
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
}

// Queries reads the tables of this projection. Status, Targets, Pending and CatchUp use Store and
// Wait to catch up with the log; other queries do not need them.
type Queries struct {
	DB    *pgxpool.Pool
	Store headReader
	Wait  waiter
	// Replica may answer Status; nil for none.
	Replica *replica.Reader
	// Searched is how many data points a search of List looks at, maxSearched by default.
	Searched int
}

// The statuses of a polled send.
const (
	StatusProcessing = "processing"
	StatusCompleted  = "completed"
	StatusFailed     = "failed"
)

// Readiness counts the unfinished sends of a project. Consolidation is reserved.
type Readiness struct {
	Raw           int64
	Comprehension int64
	Consolidation int64
	Failed        int64
}

// Settled reports whether no send is open or failed.
func (r Readiness) Settled() bool {
	return r.Raw == 0 && r.Comprehension == 0 && r.Consolidation == 0 && r.Failed == 0
}

// Blocked reports whether only failed sends remain.
func (r Readiness) Blocked() bool {
	return r.Raw == 0 && r.Comprehension == 0 && r.Consolidation == 0 && r.Failed > 0
}

// Failure is why a send failed.
type Failure struct {
	Code    string
	Message string
}

// SendStatus is the phase of a send, and its failure if it has one.
type SendStatus struct {
	Phase   string
	Failure *Failure
}

// Status is the status of a polled send. Status and Failure are the send's, the other fields its
// project's.
type Status struct {
	Status    string
	Settled   bool
	Blocked   bool
	Readiness Readiness
	Failure   *Failure
}

// Send reads the phase of a send at the position of the projection. ok is false if the project has
// no such send up to there.
func (q Queries) Send(
	ctx context.Context, project auth.Project, ingestionID uuid.UUID,
) (s SendStatus, ok bool, err error) {
	s, _, ok, err = snapshot(ctx, q.DB, project, ingestionID)
	return s, ok, err
}

// Readiness reads the counters of a project at the position of the projection.
func (q Queries) Readiness(ctx context.Context, project auth.Project) (Readiness, error) {
	var r Readiness
	err := q.DB.QueryRow(ctx, `select raw, comprehension, failed from datapoints.readiness
		where project_id = $1`, project.ID).
		Scan(&r.Raw, &r.Comprehension, &r.Failed)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return Readiness{}, fmt.Errorf("read readiness: %w", err)
	}
	return r, nil
}

// ReadinessOf reads the counters of some projects at the position of the projection. Those without any are absent.
func (q Queries) ReadinessOf(ctx context.Context, projects []uuid.UUID) (map[uuid.UUID]Readiness, error) {
	rows, err := q.DB.Query(ctx, `select project_id, raw, comprehension, failed from datapoints.readiness
		where project_id = any($1::uuid[])`, projects)
	if err != nil {
		return nil, fmt.Errorf("read readiness of projects: %w", err)
	}
	found := make(map[uuid.UUID]Readiness, len(projects))
	var id uuid.UUID
	var r Readiness
	_, err = pgx.ForEachRow(rows, []any{&id, &r.Raw, &r.Comprehension, &r.Failed}, func() error {
		found[id] = r
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read readiness of projects: %w", err)
	}
	return found, nil
}

// Status reads the status of a send. Its fault is not-found if the project has no such send.
// Not-found, settled and blocked hold for the head of the log at the call: one later event could
// change each of them, so Status first waits until the projection has applied the head. If that
// takes too long, the fault is the waiter's.
func (q Queries) Status(ctx context.Context, project auth.Project, ingestionID uuid.UUID) (Status, error) {
	send, ready, ok, served, err := q.atReplica(ctx, project, ingestionID)
	if err != nil {
		return Status{}, err
	}
	if !served {
		if send, ready, ok, err = q.atPrimary(ctx, project, ingestionID); err != nil {
			return Status{}, err
		}
	}
	if !ok {
		return Status{}, fault.New(fault.NotFound, fault.CodeNotFound, "the project has no ingestion %s", ingestionID)
	}
	s := Status{
		Status: StatusProcessing, Failure: send.Failure,
		Settled: ready.Settled(), Blocked: ready.Blocked(), Readiness: ready,
	}
	switch send.Phase {
	case indexed, nothingChanged:
		s.Status = StatusCompleted
	case failed:
		s.Status = StatusFailed
	}
	return s, nil
}

// atReplica reads a send and the counters of its project as of the head of the log. If served is false,
// the primary must answer.
func (q Queries) atReplica(
	ctx context.Context, project auth.Project, ingestionID uuid.UUID,
) (s SendStatus, r Readiness, ok, served bool, err error) {
	need := replica.Need{Kind: "status", Projections: []string{Name}}
	read := func(ctx context.Context, db replica.Snapshot) (err error) {
		s, r, ok, err = snapshot(ctx, db, project, ingestionID)
		return err
	}
	served, err = q.Replica.ReadAtHead(ctx, need, q.Store.Head, read)
	return s, r, ok, served, err
}

// atPrimary reads the same at the primary: as of the head where a later event could change the answer.
func (q Queries) atPrimary(
	ctx context.Context, project auth.Project, ingestionID uuid.UUID,
) (s SendStatus, r Readiness, ok bool, err error) {
	s, r, ok, err = snapshot(ctx, q.DB, project, ingestionID)
	if err != nil || ok && !r.Settled() && !r.Blocked() {
		return s, r, ok, err
	}
	if err := q.CatchUp(ctx); err != nil {
		return s, r, false, err
	}
	return snapshot(ctx, q.DB, project, ingestionID)
}

// CatchUp waits until the projection has applied the head of the log. If that takes too long, its
// fault is the waiter's.
func (q Queries) CatchUp(ctx context.Context) error {
	head, err := q.Store.Head(ctx)
	if err != nil {
		return fmt.Errorf("read head of the log: %w", err)
	}
	return q.Wait.Wait(ctx, head, Name)
}

// snapshot reads a send and the counters of its project in one statement, so that they are
// consistent.
func snapshot(
	ctx context.Context, db replica.Snapshot, project auth.Project, ingestionID uuid.UUID,
) (s SendStatus, r Readiness, ok bool, err error) {
	var phase, code, message *string
	err = db.QueryRow(ctx, `select s.phase, s.failure_code, s.failure_message, coalesce(r.raw, 0),
		coalesce(r.comprehension, 0), coalesce(r.failed, 0)
		from (select) one
		left join (
			select case when `+endedByDeletion+` then 'indexed' else s.phase end as phase,
				case when not `+endedByDeletion+` then s.failure_code end as failure_code, s.failure_message
			from datapoints.sends s`+waitingItems+`where s.id = $2 and s.project_id = $1
		) s on true
		left join datapoints.readiness r on r.project_id = $1`, project.ID, ingestionID).
		Scan(&phase, &code, &message, &r.Raw, &r.Comprehension, &r.Failed)
	if err != nil {
		return SendStatus{}, Readiness{}, false, fmt.Errorf("read status: %w", err)
	}
	if phase == nil {
		return SendStatus{}, r, false, nil
	}
	s.Phase = *phase
	if code != nil {
		s.Failure = &Failure{Code: *code}
		if message != nil {
			s.Failure.Message = *message
		}
	}
	return s, r, true, nil
}
