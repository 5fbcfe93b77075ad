package directory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/pg/replica"
	"github.com/annals-project/annals/internal/pg/switchover"
	"github.com/annals-project/annals/internal/work"
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

// RecordHeads returns, for records of a project, the stream revision up to which they are applied,
// and the current record; also for removed ones. Records without events are absent. A record with
// an open bulk write is as that write leaves it. The fault is service-unavailable while the
// projection is stopped.
func (q *Queries) RecordHeads(
	ctx context.Context, project auth.Project, ids []uuid.UUID,
) (map[uuid.UUID]work.RecordHead, error) {
	if err := q.requireRunning(ctx); err != nil {
		return nil, err
	}
	rows, err := q.db.Query(ctx, `select h.id, h.revision, i.id is not null, i.identity, i.origin, i.created_at,
		i.updated_at
		from directory.heads h left join directory.identities i on i.id = h.id
		where h.id = any($2::uuid[]) and h.project_id = $1 and h.revision >= 0`, project.ID, ids)
	if err != nil {
		return nil, fmt.Errorf("read heads of identity records: %w", err)
	}
	heads := make(map[uuid.UUID]work.RecordHead, len(ids))
	var (
		id                   uuid.UUID
		revision             int64
		there                bool
		name, origin         *string
		createdAt, updatedAt *time.Time
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &revision, &there, &name, &origin, &createdAt, &updatedAt}, func() error {
		s := work.RecordHead{Revision: eventstore.Revision(revision), Hidden: there && name == nil}
		if name != nil {
			s.Record = &identity.Record{
				Identity: *name, Origin: identity.Origin(*origin), CreatedAt: createdAt.UTC(), UpdatedAt: updatedAt.UTC(),
			}
		}
		heads[id] = s
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read heads of identity records: %w", err)
	}
	return heads, nil
}

// Known returns which of the ids have a record in a project, at the position of the projection. A
// removal waits for the projection before it is acknowledged, so a removed record is absent. The
// fault is service-unavailable while the projection is stopped.
func (q *Queries) Known(ctx context.Context, project auth.Project, ids []uuid.UUID) (map[uuid.UUID]struct{}, error) {
	records := make([]Record, len(ids))
	for n, id := range ids {
		records[n] = Record{project.ID, id}
	}
	found, err := q.KnownRecords(ctx, records)
	if err != nil {
		return nil, err
	}
	known := make(map[uuid.UUID]struct{}, len(found))
	for record := range found {
		known[record.ID] = struct{}{}
	}
	return known, nil
}

// Record names the record of an identity.
type Record struct{ ProjectID, ID uuid.UUID }

// KnownRecords returns which of some records of any projects exist, as Known does.
func (q *Queries) KnownRecords(ctx context.Context, records []Record) (map[Record]struct{}, error) {
	if err := q.requireRunning(ctx); err != nil {
		return nil, err
	}
	projects, ids := make([]uuid.UUID, len(records)), make([]uuid.UUID, len(records))
	for n, record := range records {
		projects[n], ids[n] = record.ProjectID, record.ID
	}
	rows, err := q.db.Query(ctx, `select i.project_id, i.id from directory.identities i
		join unnest($1::uuid[], $2::uuid[]) as asked (project_id, id) on i.id = asked.id and i.project_id = asked.project_id`,
		projects, ids)
	if err != nil {
		return nil, fmt.Errorf("find identity records: %w", err)
	}
	known := make(map[Record]struct{}, len(records))
	var record Record
	_, err = pgx.ForEachRow(rows, []any{&record.ProjectID, &record.ID}, func() error {
		known[record] = struct{}{}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("find identity records: %w", err)
	}
	return known, nil
}

// Unknown counts which of some names have no record, as Known finds them.
func (q *Queries) Unknown(ctx context.Context, project auth.Project, names []string) (int, error) {
	ids := make([]uuid.UUID, len(names))
	for n, name := range names {
		ids[n] = stream.IdentityID(project.Namespace, name)
	}
	known, err := q.Known(ctx, project, ids)
	return len(names) - len(known), err
}

// KnownAudiences returns which of some slugs are audiences of a project, at the position of the projection.
func (q *Queries) KnownAudiences(ctx context.Context, project auth.Project, slugs []string) (map[string]bool, error) {
	rows, err := q.db.Query(ctx, `select slug from directory.audiences where project_id = $1 and slug = any($2::text[])`,
		project.ID, slugs)
	if err != nil {
		return nil, fmt.Errorf("find audiences: %w", err)
	}
	known := make(map[string]bool, len(slugs))
	var slug string
	if _, err := pgx.ForEachRow(rows, []any{&slug}, func() error { known[slug] = true; return nil }); err != nil {
		return nil, fmt.Errorf("find audiences: %w", err)
	}
	return known, nil
}

// LastSeen returns when the identity of a record created at a time last wrote a data point or
// recalled since, nil if never.
func (q *Queries) LastSeen(
	ctx context.Context, project auth.Project, id uuid.UUID, createdAt time.Time,
) (*time.Time, error) {
	one := Identity{id: id, CreatedAt: createdAt}
	err := q.lastSeen(ctx, project, []*Identity{&one})
	return one.LastSeenAt, err
}

// lastSeen sets when identities were last seen, from the log and from recalls that are not in the
// log yet. A time before the creation of the record belongs to an earlier record of the same name.
//
// It reads pending recalls first: they are dropped only once the tables hold them, so that one of
// the two reads finds each.
func (q *Queries) lastSeen(ctx context.Context, project auth.Project, list []*Identity) error {
	if len(list) == 0 {
		return nil
	}
	ids := make([]uuid.UUID, len(list))
	for n, i := range list {
		ids[n] = i.id
	}
	seen, err := q.pending.PendingSeen(ctx, project, ids)
	if err != nil {
		return err
	}
	rows, err := q.db.Query(ctx, `select id, at from directory.seen where id = any($2::uuid[])
		and project_id = $1`, project.ID, ids)
	if err != nil {
		return fmt.Errorf("read when identities were seen: %w", err)
	}
	logged := make(map[uuid.UUID]time.Time, len(list))
	var (
		id uuid.UUID
		at time.Time
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &at}, func() error {
		logged[id] = at
		return nil
	})
	if err != nil {
		return fmt.Errorf("read when identities were seen: %w", err)
	}
	for _, i := range list {
		if at := later(seen[i.id], logged[i.id]).UTC(); !at.IsZero() && !at.Before(i.CreatedAt) {
			i.LastSeenAt = &at
		}
	}
	return nil
}

// Belongs reports whether an identity belongs to the audience of a slug now. It is false for a slug without an
// audience. The fault is service-unavailable while the projection is stopped.
func (q *Queries) Belongs(ctx context.Context, project auth.Project, identity, slug string) (bool, error) {
	reach, err := q.Reach(ctx, project, identity)
	if err != nil {
		return false, err
	}
	var id uuid.UUID
	err = q.db.QueryRow(ctx, `select id from directory.audiences where project_id = $1 and slug = $2`, project.ID, slug).
		Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("find an audience: %w", err)
	}
	return slices.Contains(reach.Audiences, id), nil
}

// Readers names who reads what is in an audience: its slug or, of the private audience of an identity, the identity.
// Both are "" for an audience that was removed. The fault is service-unavailable while the projection is stopped.
func (q *Queries) Readers(
	ctx context.Context, project auth.Project, of uuid.UUID,
) (slug, identity string, err error) {
	if err := q.requireRunning(ctx); err != nil {
		return "", "", err
	}
	return readReaders(ctx, q.db, project.ID, of)
}

const selectReaders = `select slug, '' from directory.audiences where project_id = $1 and id = $2
	union all select '', identity from directory.identities
		where project_id = $1 and private = $2 and identity is not null`

func readReaders(ctx context.Context, db rowQuerier, project, of uuid.UUID) (slug, identity string, err error) {
	err = db.QueryRow(ctx, selectReaders, project, of).Scan(&slug, &identity)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return "", "", fmt.Errorf("find who reads an audience: %w", err)
	}
	return slug, identity, nil
}

// OpenBulks lists the committed bulk writes of a project with an open row for one of the
// identities, in the order of their commits. The fault is service-unavailable while the projection
// is stopped.
func (q *Queries) OpenBulks(ctx context.Context, project auth.Project, ids []uuid.UUID) ([]uuid.UUID, error) {
	if err := q.requireRunning(ctx); err != nil {
		return nil, err
	}
	rows, err := q.db.Query(ctx, `select bulk_id from directory.bulk_rows where identity_id = any($2::uuid[])
		and project_id = $1
		group by bulk_id, position order by position`, project.ID, ids)
	if err != nil {
		return nil, fmt.Errorf("list open bulk writes of identities: %w", err)
	}
	open, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, fmt.Errorf("list open bulk writes of identities: %w", err)
	}
	return open, nil
}

// Open counts the bulk writes that are not fanned out, and the removals that are not cleared.
func (q *Queries) Open(ctx context.Context) (bulks, removals int, err error) {
	err = q.db.QueryRow(ctx, `select (select count(*) from directory.bulks), (select count(*) from directory.removals)`).
		Scan(&bulks, &removals)
	if err != nil {
		return 0, 0, fmt.Errorf("count open work on identities: %w", err)
	}
	return bulks, removals, nil
}

// AbandonedBulks counts the bulk writes that were abandoned since their rows could not be read.
func AbandonedBulks(ctx context.Context, db *pgxpool.Pool) (n int, err error) {
	if err := db.QueryRow(ctx, `select count(*) from directory.lost_bulks`).Scan(&n); err != nil {
		return 0, fmt.Errorf("count abandoned bulk writes: %w", err)
	}
	return n, nil
}

// FindRecord reports whether a project has an identity record, and whether a removal of it is not cleared.
func (q *Queries) FindRecord(ctx context.Context, project, id uuid.UUID) (has, removing bool, err error) {
	err = q.db.QueryRow(ctx, `select exists (select from directory.identities where project_id = $1 and id = $2),
		exists (select from directory.removals where project_id = $1 and id = $2)`, project, id).Scan(&has, &removing)
	if err != nil {
		return false, false, fmt.Errorf("find an identity record: %w", err)
	}
	return has, removing, nil
}

// OpenRemovals lists at most limit removals of records that are not cleared, oldest first, after a
// removal (nil begins).
func (q *Queries) OpenRemovals(ctx context.Context, after *work.Removal, limit int) ([]work.Removal, error) {
	position := int64(0)
	if after != nil {
		position = int64(after.Position)
	}
	rows, err := q.db.Query(ctx, `select project_id, id, revision, removed_at, position from directory.removals
		where position > $1 order by position limit $2`, position, limit)
	if err != nil {
		return nil, fmt.Errorf("list open removals: %w", err)
	}
	removals, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r work.Removal, err error) {
		err = row.Scan(&r.ProjectID, &r.IdentityID, (*int64)(&r.Revision), &r.RemovedAt, (*uint64)(&r.Position))
		return r, err
	})
	if err != nil {
		return nil, fmt.Errorf("list open removals: %w", err)
	}
	return removals, nil
}

// PendingBulks lists at most limit committed bulk writes that are not fanned out, oldest first.
func (q *Queries) PendingBulks(ctx context.Context, limit int) ([]work.Bulk, error) {
	rows, err := q.db.Query(ctx, `select project_id, id, accepted_at, position from directory.bulks
		order by position limit $1`, limit)
	if err != nil {
		return nil, fmt.Errorf("list open bulk writes: %w", err)
	}
	bulks, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (b work.Bulk, err error) {
		err = row.Scan(&b.ProjectID, &b.ID, &b.AcceptedAt, (*uint64)(&b.Position))
		return b, err
	})
	if err != nil {
		return nil, fmt.Errorf("list open bulk writes: %w", err)
	}
	return bulks, nil
}
