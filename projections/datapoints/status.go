package datapoints

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/pg/replica"
	"github.com/annals-project/annals/internal/pgarray"
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

// FailedSendIDs is a query of the ids of the failed sends of project $1 whose failure still counts.
const FailedSendIDs = `select id from datapoints.sends where failure_open and project_id = $1`

// SendPhase is the phase of a send, as the request log shows it.
type SendPhase struct {
	Phase string
	// Failed is true if the send failed, and neither a newer revision nor a deletion overtook that.
	Failed bool
}

// Phases reads the phases of sends at the position of the projection. A send that the project does
// not have up to there is not in the map.
func (q Queries) Phases(
	ctx context.Context, project auth.Project, sends []uuid.UUID,
) (map[uuid.UUID]SendPhase, error) {
	phases := make(map[uuid.UUID]SendPhase, len(sends))
	if len(sends) == 0 {
		return phases, nil
	}
	rows, err := q.DB.Query(ctx, `select s.id,
			case when `+endedByDeletion+` then 'indexed' else s.phase end, s.failure_open and not `+endedByDeletion+`
		from datapoints.sends s`+waitingItems+`where s.id = any($2::uuid[]) and s.project_id = $1`, project.ID, sends)
	if err != nil {
		return nil, fmt.Errorf("read phases of sends: %w", err)
	}
	var id uuid.UUID
	var p SendPhase
	_, err = pgx.ForEachRow(rows, []any{&id, &p.Phase, &p.Failed}, func() error { phases[id] = p; return nil })
	if err != nil {
		return nil, fmt.Errorf("read phases of sends: %w", err)
	}
	return phases, nil
}

// Deleted returns which of some data points of the project are deleted, at the position of the projection.
func (q Queries) Deleted(
	ctx context.Context, project auth.Project, dataPoints []uuid.UUID,
) (map[uuid.UUID]bool, error) {
	if len(dataPoints) == 0 {
		return map[uuid.UUID]bool{}, nil
	}
	rows, err := q.DB.Query(ctx, `select distinct data_point from datapoints.items
		where data_point = any($2::uuid[]) and outcome not in ('unchanged', 'moved') and project_id = $1
			and deleted_at is not null`, project.ID, dataPoints)
	if err != nil {
		return nil, fmt.Errorf("look for deleted data points: %w", err)
	}
	deleted := map[uuid.UUID]bool{}
	var id uuid.UUID
	if _, err := pgx.ForEachRow(rows, []any{&id}, func() error { deleted[id] = true; return nil }); err != nil {
		return nil, fmt.Errorf("look for deleted data points: %w", err)
	}
	return deleted, nil
}

// SourceIDs returns the source ids of those of some data points of the project that are live, at the position of the
// projection.
func (q Queries) SourceIDs(
	ctx context.Context, project auth.Project, dataPoints []uuid.UUID,
) (map[uuid.UUID]string, error) {
	ids := map[uuid.UUID]string{}
	if len(dataPoints) == 0 {
		return ids, nil
	}
	rows, err := q.DB.Query(ctx, `select id, source_id from datapoints.data_points
		where id = any($2::uuid[]) and project_id = $1`, project.ID, dataPoints)
	if err != nil {
		return nil, fmt.Errorf("read source ids: %w", err)
	}
	var id uuid.UUID
	var source string
	if _, err := pgx.ForEachRow(rows, []any{&id, &source}, func() error { ids[id] = source; return nil }); err != nil {
		return nil, fmt.Errorf("read source ids: %w", err)
	}
	return ids, nil
}

// AnyDeleted reports whether one of some data points of the project is deleted, at the position of the
// projection.
func (q Queries) AnyDeleted(
	ctx context.Context, project auth.Project, dataPoints []uuid.UUID,
) (deleted bool, err error) {
	if len(dataPoints) == 0 {
		return false, nil
	}
	err = q.DB.QueryRow(ctx, `select exists (select from datapoints.items
		where data_point = any($2::uuid[]) and outcome not in ('unchanged', 'moved') and project_id = $1
			and deleted_at is not null)
		or exists (select from datapoints.follow_ups where kind in ('delete', 'text') and key = any($2::uuid[])
			and project_id = $1)`, project.ID, dataPoints).Scan(&deleted)
	if err != nil {
		return false, fmt.Errorf("look for deleted data points: %w", err)
	}
	return deleted, nil
}

// FailedSend is a failed send whose failure still counts.
type FailedSend struct {
	ProjectID   uuid.UUID
	IngestionID uuid.UUID
	Failure     Failure
	// Items counts the items of the send, Failed those that failed; Sources are the source ids of
	// the first FailedSources failed ones.
	Items, Failed int
	Sources       []string
	AcceptedAt    time.Time
	FailedAt      time.Time
}

// FailedSources is the most source ids of a FailedSend.
const FailedSources = 10

// FailedSends lists at most limit failed sends whose failure still counts, by acceptance, after the
// send of id after; uuid.Nil begins. project limits the list to one project; uuid.Nil is all.
func (q Queries) FailedSends(ctx context.Context, project uuid.UUID, limit int, after uuid.UUID) ([]FailedSend, error) {
	rows, err := q.DB.Query(ctx, `select s.project_id, s.id, s.failure_code, s.failure_message, s.item_count,
		s.open_failures, s.accepted_at, s.settled_at,
			coalesce((select array_agg(d.source_id order by i.ordinal) from (
				select * from datapoints.items i where i.ingestion_id = s.id and i.phase in ('failed', 'unindexed') and not i.overtaken
				order by i.ordinal limit $4
			) i join datapoints.data_points d on d.id = i.data_point), '{}')
		from datapoints.sends s`+waitingItems+`
		where s.failure_open and not `+endedByDeletion+` and ($1::uuid is null or s.project_id = $1)
			and ($3::uuid is null or (s.accepted_at, s.id) > (select a.accepted_at, a.id from datapoints.sends a
				where a.id = $3))
		order by s.accepted_at, s.id limit $2`, pgarray.Optional(project), limit, pgarray.Optional(after), FailedSources)
	if err != nil {
		return nil, fmt.Errorf("list failed sends: %w", err)
	}
	sends, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s FailedSend, err error) {
		err = row.Scan(&s.ProjectID, &s.IngestionID, &s.Failure.Code, &s.Failure.Message, &s.Items, &s.Failed,
			&s.AcceptedAt, &s.FailedAt, &s.Sources)
		return s, err
	})
	if err != nil {
		return nil, fmt.Errorf("list failed sends: %w", err)
	}
	return sends, nil
}

// RecentFailures are the sends that failed after a time and whose failure still counts.
type RecentFailures struct {
	// Sends is their number. More is true if only some of them were counted.
	Sends  int
	More   bool
	Newest Failure
}

// maxRecent is how many failed sends RecentFailures reads, those that were accepted last.
const maxRecent = 1000

// RecentFailures counts the sends that failed after a time and whose failure still counts, among the last maxRecent
// failed ones by their acceptance.
func (q Queries) RecentFailures(ctx context.Context, after time.Time) (r RecentFailures, err error) {
	var code, message *string
	var read int
	err = q.DB.QueryRow(ctx, `with newest as materialized (
			select failure_code, failure_message, settled_at from datapoints.sends
			where failure_open order by accepted_at desc, id desc limit $2
		), recent as (select * from newest where settled_at > $1)
		select (select count(*) from newest), (select count(*) from recent),
			(select failure_code from recent order by settled_at desc limit 1),
			(select failure_message from recent order by settled_at desc limit 1)`, after, maxRecent).
		Scan(&read, &r.Sends, &code, &message)
	if err != nil {
		return RecentFailures{}, fmt.Errorf("count failed sends: %w", err)
	}
	r.More = read == maxRecent && r.Sends == read
	if code != nil && message != nil {
		r.Newest = Failure{Code: *code, Message: *message}
	}
	return r, nil
}

// OldestErasure returns when the oldest deletion that is not cleaned was accepted, zero if there is none.
func (q Queries) OldestErasure(ctx context.Context) (time.Time, error) {
	var at *time.Time
	err := q.DB.QueryRow(ctx, `select (select accepted_at from datapoints.deletions where not cleaned
		order by position limit 1)`).Scan(&at)
	if err != nil || at == nil {
		return time.Time{}, err
	}
	return at.UTC(), nil
}

// StoppedSend is a failed send whose failure still counts, for the person who may retry it.
type StoppedSend struct {
	IngestionID uuid.UUID `json:"ingestionId"`
	// Project is the slug of its project.
	Project string `json:"project"`
	// Code and Message are the failure of the send as its status shows them.
	Code       string    `json:"code"`
	Message    string    `json:"message"`
	Items      int       `json:"items"`
	AcceptedAt time.Time `json:"acceptedAt"`
	FailedAt   time.Time `json:"failedAt"`
	// Retryable is false if a retry would stop the same way.
	Retryable bool `json:"retryable"`
}

// StoppedList is some stopped sends, oldest first.
type StoppedList struct {
	Failed []StoppedSend `json:"failed"`
	// After requests those that follow, "" if there are none.
	After string `json:"after,omitempty"`
}

// MaxStopped is the most sends of a StoppedList.
const MaxStopped = 500

// StoppedSends lists stopped sends.
type StoppedSends struct {
	Queries  Queries
	Projects interface {
		// SlugOf returns the slug of a project, "" if there is none.
		SlugOf(ctx context.Context, project uuid.UUID) (string, error)
	}
	// AtOnce is how many sends Each reads at once, MaxStopped by default.
	AtOnce int
}

// List lists at most limit stopped sends of a project, or of all if that is uuid.Nil, after a send; uuid.Nil begins.
func (s StoppedSends) List(ctx context.Context, project uuid.UUID, limit int, after uuid.UUID) (StoppedList, error) {
	limit = min(limit, MaxStopped)
	found, err := s.Queries.FailedSends(ctx, project, limit, after)
	list, slugs := StoppedList{Failed: make([]StoppedSend, len(found))}, make(map[uuid.UUID]string)
	for i, f := range found {
		slug, known := slugs[f.ProjectID]
		if !known {
			if slug, err = s.Projects.SlugOf(ctx, f.ProjectID); err != nil {
				return StoppedList{}, err
			}
			slugs[f.ProjectID] = slug
		}
		list.Failed[i] = StoppedSend{
			IngestionID: f.IngestionID, Project: slug, Code: f.Failure.Code, Message: f.Failure.Message, Items: f.Items,
			AcceptedAt: f.AcceptedAt, FailedAt: f.FailedAt, Retryable: f.Failure.Code != ingestion.ContentRejected,
		}
	}
	if len(found) > 0 && len(found) == limit {
		list.After = found[len(found)-1].IngestionID.String()
	}
	return list, err
}

// Each passes on the stopped sends of a project, or of all if that is uuid.Nil, oldest first. It holds at most
// AtOnce of them.
func (s StoppedSends) Each(ctx context.Context, project uuid.UUID, emit func(StoppedSend) error) error {
	for after := uuid.Nil; ; {
		page, err := s.List(ctx, project, cmp.Or(s.AtOnce, MaxStopped), after)
		if err != nil {
			return err
		}
		for _, f := range page.Failed {
			if err := emit(f); err != nil {
				return err
			}
		}
		if page.After == "" {
			return nil
		}
		after = page.Failed[len(page.Failed)-1].IngestionID
	}
}
