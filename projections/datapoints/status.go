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
)

// Log tells where the log ends.
type Log interface {
	// Head is the position of the newest event: none that was acknowledged before the call is above it.
	Head(ctx context.Context) (eventstore.Position, error)
}

// Waiter waits for projections.
type Waiter interface {
	// Wait returns nil once each of the named projections has applied the position, else a fault.
	Wait(ctx context.Context, position eventstore.Position, names ...string) error
}

// Queries answers from the tables of this projection. Log and Wait are needed where an answer is to be told from a projection
// that is behind: by Status and Targets.
type Queries struct {
	DB   *pgxpool.Pool
	Log  Log
	Wait Waiter
}

// The statuses that a poll of a send reads.
const (
	StatusProcessing = "processing"
	StatusCompleted  = "completed"
	StatusFailed     = "failed"
)

// Readiness counts the sends of a project that are not done. Consolidation is reserved.
type Readiness struct {
	Raw           int64 `json:"raw"`
	Comprehension int64 `json:"comprehension"`
	Consolidation int64 `json:"consolidation"`
	Failed        int64 `json:"failed"`
}

// Settled reports whether nothing is under way and nothing failed.
func (r Readiness) Settled() bool {
	return r.Raw == 0 && r.Comprehension == 0 && r.Consolidation == 0 && r.Failed == 0
}

// Blocked reports whether only failed sends remain.
func (r Readiness) Blocked() bool {
	return r.Raw == 0 && r.Comprehension == 0 && r.Consolidation == 0 && r.Failed > 0
}

// Failure is why a send stopped.
type Failure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// SendStatus is the phase of a send, and why it stopped where it did.
type SendStatus struct {
	Phase   string
	Failure *Failure
}

// Status is the ingestion status of the API: Status and Failure are the send's, the rest is the project's.
type Status struct {
	Status    string    `json:"status"`
	Settled   bool      `json:"settled"`
	Blocked   bool      `json:"blocked"`
	Readiness Readiness `json:"readiness"`
	Failure   *Failure  `json:"failure"`
}

// Send reads the phase of a send as far as the projection is. ok is false for a send that the project does not have, or that
// the projection has not come to.
func (q Queries) Send(ctx context.Context, project auth.Project, ingestionID uuid.UUID) (s SendStatus, ok bool, err error) {
	s, _, ok, err = q.snapshot(ctx, project, ingestionID)
	return s, ok, err
}

// Readiness reads the counters of a project as far as the projection is.
func (q Queries) Readiness(ctx context.Context, project auth.Project) (Readiness, error) {
	var r Readiness
	err := q.DB.QueryRow(ctx, `select raw, comprehension, failed from datapoints.readiness where project_id = $1`, project.ID).
		Scan(&r.Raw, &r.Comprehension, &r.Failed)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return Readiness{}, fmt.Errorf("read readiness: %w", err)
	}
	return r, nil
}

// Status reads the ingestion status of a send. Its fault is not-found, which is true as of the call: it is said only once the
// projection has passed the head of the log, and so are settled and blocked, which one event could make wrong. What the
// projection cannot tell in time is the fault of the Waiter.
func (q Queries) Status(ctx context.Context, project auth.Project, ingestionID uuid.UUID) (Status, error) {
	send, ready, ok, err := q.snapshot(ctx, project, ingestionID)
	if err != nil {
		return Status{}, err
	}
	if !ok || ready.Settled() || ready.Blocked() {
		if err := q.passHead(ctx); err != nil {
			return Status{}, err
		}
		if send, ready, ok, err = q.snapshot(ctx, project, ingestionID); err != nil {
			return Status{}, err
		}
	}
	if !ok {
		return Status{}, fault.New(fault.NotFound, fault.CodeNotFound, "the project has no ingestion %s", ingestionID)
	}
	s := Status{Settled: ready.Settled(), Blocked: ready.Blocked(), Readiness: ready, Failure: send.Failure, Status: StatusProcessing}
	switch send.Phase {
	case indexed, nothingChanged:
		s.Status = StatusCompleted
	case failed:
		s.Status = StatusFailed
	}
	return s, nil
}

// passHead waits until the projection has passed where the log ends now.
func (q Queries) passHead(ctx context.Context) error {
	head, err := q.Log.Head(ctx)
	if err != nil {
		return fmt.Errorf("read the head of the log: %w", err)
	}
	return q.Wait.Wait(ctx, head, Name)
}

// snapshot reads a send and the counters of its project in one statement, so that they agree.
func (q Queries) snapshot(ctx context.Context, project auth.Project, ingestionID uuid.UUID) (s SendStatus, r Readiness, ok bool, err error) {
	var phase, code, message *string
	err = q.DB.QueryRow(ctx, `select s.phase, s.failure_code, s.failure_message, coalesce(r.raw, 0), coalesce(r.comprehension, 0), coalesce(r.failed, 0)
		from (select) one
		left join datapoints.sends s on s.id = $2 and s.project_id = $1
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
