package recallindex

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/unnest"
)

// point is the row of a live data point, with what the page has to do for it.
type point struct {
	project        uuid.UUID
	audience       uuid.UUID
	revision       int
	bodyAt         int64
	occurredAt     time.Time
	memoryRevision int
	memoryAt       int64
	position       eventstore.Position

	// accepted and derived are the events within the page that brought what stands, nil for none; moved says that the
	// audience changed.
	accepted *datapoint.RevisionAccepted
	derived  *memory.Derived
	moved    bool
}

// page is the rows that a page of events touches.
type page struct {
	points  map[uuid.UUID]*point
	touched map[uuid.UUID]struct{}
	gone    map[uuid.UUID]struct{}
	// stale is what may be in the index and must not stay, by project: what rows named before, and what came and was replaced
	// within the page. A page that was lost may have left that in the index.
	stale map[uuid.UUID][]Scope
}

const (
	// lockSchema keeps pages, and those who fill a part of the index again, from working at the same time: the index is
	// written before the rows of the page are committed, and nobody else is to read the rows meanwhile.
	lockSchema   = `select pg_advisory_xact_lock(hashtextextended(current_schema(), 10))`
	selectPoints = `select id, project_id, audience, revision, body_at, occurred_at, memory_revision, memory_at, position
		from data_points where id = any($1::uuid[])`
)

// load reads the rows of the data points that the facts are about.
func load(ctx context.Context, tx pgx.Tx, facts []eventstore.Fact) (*page, error) {
	p := &page{points: map[uuid.UUID]*point{}, touched: map[uuid.UUID]struct{}{}, gone: map[uuid.UUID]struct{}{}, stale: map[uuid.UUID][]Scope{}}
	wanted := map[uuid.UUID]struct{}{}
	for _, f := range facts {
		if kept, ok := f.Event.(*deletion.FactsKept); ok {
			wanted[kept.DataPoint] = struct{}{}
		} else if stream.Family(f.Stream) != stream.Deletion {
			wanted[stream.Owner(f.Stream)] = struct{}{}
		}
	}
	if len(wanted) == 0 {
		return p, nil
	}
	batch := new(pgx.Batch)
	batch.Queue(lockSchema)
	batch.Queue(selectPoints, unnest.Keys(wanted)).Query(func(rows pgx.Rows) error {
		found, err := pointsOf(rows)
		for id, row := range found {
			p.points[id] = row
		}
		return err
	})
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return nil, fmt.Errorf("load the rows of the page: %w", err)
	}
	return p, nil
}

// pointsOf reads rows of data points.
func pointsOf(rows pgx.Rows) (map[uuid.UUID]*point, error) {
	found := map[uuid.UUID]*point{}
	for rows.Next() {
		var id uuid.UUID
		row := new(point)
		var position int64
		if err := rows.Scan(&id, &row.project, &row.audience, &row.revision, &row.bodyAt, &row.occurredAt,
			&row.memoryRevision, &row.memoryAt, &position); err != nil {
			return nil, err
		}
		row.position = eventstore.Position(position)
		found[id] = row
	}
	return found, rows.Err()
}

// apply folds one event.
func (p *page) apply(f eventstore.Fact) error {
	id := stream.Owner(f.Stream)
	switch e := f.Event.(type) {
	case *datapoint.RevisionAccepted:
		p.accepted(f, id, e)
	case *datapoint.Moved:
		p.moved(f, id, e)
	case *datapoint.Deleted:
		p.forget(id)
	case *memory.Derived:
		p.derived(f, id, e)
	case *deletion.FactsKept:
		p.forget(e.DataPoint)
	case *datapoint.Resent, *memory.DerivationStarted, *memory.Failed, *memory.Embedded, *deletion.Accepted, *deletion.FannedOut, *deletion.Cleaned:
	default:
		return fmt.Errorf("no rule for %s", f.Type)
	}
	return nil
}

// accepted puts a revision in the place of the one before. History, and what is older than what stands, is not indexed.
func (p *page) accepted(f eventstore.Fact, id uuid.UUID, e *datapoint.RevisionAccepted) {
	row := p.points[id]
	if e.Historic() || row != nil && e.Effect.Revision < row.revision {
		return
	}
	if row == nil {
		row = &point{project: e.ProjectID}
		p.points[id] = row
	}
	p.replaceSource(id, row)
	// The memories stay until those of the new revision are derived, and follow it to its audience.
	row.moved = row.moved || row.audience != e.Effect.Audience
	row.audience, row.revision, row.occurredAt = e.Effect.Audience, e.Effect.Revision, unnest.Instant(e.Effect.OccurredAt)
	row.bodyAt, row.accepted = int64(f.Revision), e
	p.touch(id, row, f)
}

// moved gives every document of a data point another audience.
func (p *page) moved(f eventstore.Fact, id uuid.UUID, e *datapoint.Moved) {
	row := p.points[id]
	if row == nil || e.Historic() || row.audience == e.Effect.Audience {
		return
	}
	row.audience, row.moved = e.Effect.Audience, true
	p.touch(id, row, f)
}

// derived puts the memories of a revision in the place of those before, unless they are of an older one.
func (p *page) derived(f eventstore.Fact, id uuid.UUID, e *memory.Derived) {
	row := p.points[id]
	if row == nil || e.Revision < row.memoryRevision {
		return
	}
	p.replaceMemories(id, row)
	row.memoryRevision, row.memoryAt, row.derived = e.Revision, int64(f.Revision), e
	p.touch(id, row, f)
}

// forget removes a data point with all its documents.
func (p *page) forget(id uuid.UUID) {
	row := p.points[id]
	if row == nil {
		return
	}
	p.replaceSource(id, row)
	p.replaceMemories(id, row)
	delete(p.points, id)
	delete(p.touched, id)
	p.gone[id] = struct{}{}
}

func (p *page) touch(id uuid.UUID, row *point, f eventstore.Fact) {
	row.position = f.Position
	p.touched[id] = struct{}{}
	delete(p.gone, id)
}

// replaceSource marks the passages of a data point as stale.
func (p *page) replaceSource(id uuid.UUID, row *point) {
	if row.revision > 0 {
		p.stale[row.project] = append(p.stale[row.project], Scope{DataPoint: id, Part: Sources, Revision: row.revision})
	}
}

// replaceMemories marks the memories of a data point as stale.
func (p *page) replaceMemories(id uuid.UUID, row *point) {
	if row.memoryRevision > 0 {
		p.stale[row.project] = append(p.stale[row.project], Scope{DataPoint: id, Part: Memories, Revision: row.memoryRevision})
	}
}
