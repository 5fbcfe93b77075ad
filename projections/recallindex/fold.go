package recallindex

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pgarray"
)

// dataPointRow is the row of a live data point, and what the page has to index of it.
type dataPointRow struct {
	project        uuid.UUID
	audience       uuid.UUID
	revision       int
	bodyAt         int64
	occurredAt     time.Time
	memoryRevision int
	memoryAt       int64
	// passages and memories are how many documents the index holds of revision and memoryRevision.
	passages, memories int
	position           eventstore.Position

	// accepted and derived are the events of the page that set the current state, nil if there are
	// none; moved reports that the audience changed.
	accepted *datapoint.RevisionAccepted
	derived  *memory.Derived
	moved    bool
}

// fold holds the rows that a page of events touches.
type fold struct {
	dataPoints map[uuid.UUID]*dataPointRow
	touched    map[uuid.UUID]struct{}
	deleted    map[uuid.UUID]struct{}
	// stale is what may be in the index and must be removed, by project: what rows named before, and
	// what the page brought and replaced. A page that was rolled back may have indexed that.
	stale map[uuid.UUID][]Scope
}

const (
	// lockSchema keeps pages and refills apart. The index is written before the rows of a page are
	// committed, so a refill must not read the rows in between.
	lockSchema       = `select pg_advisory_xact_lock(hashtextextended(current_schema(), 10))`
	selectDataPoints = `select ` + columns + ` from data_points where id = any($1::uuid[])`
	columns          = `id, project_id, audience, revision, body_at, occurred_at, memory_revision, memory_at,
		passages, memories, position`
)

// load reads the rows of the data points that the events are about.
func load(ctx context.Context, tx pgx.Tx, events []eventstore.DecodedEvent) (*fold, error) {
	p := &fold{
		dataPoints: map[uuid.UUID]*dataPointRow{}, touched: map[uuid.UUID]struct{}{},
		deleted: map[uuid.UUID]struct{}{}, stale: map[uuid.UUID][]Scope{},
	}
	wanted := map[uuid.UUID]struct{}{}
	for _, f := range events {
		if kept, ok := f.Event.(*deletion.FactsKept); ok {
			wanted[kept.DataPoint] = struct{}{}
		} else if stream.Category(f.Stream) != stream.Deletion {
			wanted[stream.Owner(f.Stream)] = struct{}{}
		}
	}
	if len(wanted) == 0 {
		return p, nil
	}
	batch := new(pgx.Batch)
	batch.Queue(lockSchema)
	batch.Queue(selectDataPoints, pgarray.Keys(wanted)).Query(func(rows pgx.Rows) error {
		found, err := dataPointRows(rows)
		maps.Copy(p.dataPoints, found)
		return err
	})
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return nil, fmt.Errorf("load the rows of the page: %w", err)
	}
	return p, nil
}

// dataPointRows reads rows of data points.
func dataPointRows(rows pgx.Rows) (map[uuid.UUID]*dataPointRow, error) {
	found := map[uuid.UUID]*dataPointRow{}
	for rows.Next() {
		var id uuid.UUID
		row := new(dataPointRow)
		var position int64
		if err := rows.Scan(&id, &row.project, &row.audience, &row.revision, &row.bodyAt, &row.occurredAt,
			&row.memoryRevision, &row.memoryAt, &row.passages, &row.memories, &position); err != nil {
			return nil, err
		}
		row.position = eventstore.Position(position)
		found[id] = row
	}
	return found, rows.Err()
}

// apply folds one event.
func (p *fold) apply(f eventstore.DecodedEvent) error {
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
	}
	return nil
}

// accepted replaces a revision. A historic or older revision is not indexed.
func (p *fold) accepted(f eventstore.DecodedEvent, id uuid.UUID, e *datapoint.RevisionAccepted) {
	row := p.dataPoints[id]
	if e.Historic() || row != nil && e.Effect.Revision < row.revision {
		return
	}
	if row == nil {
		row = &dataPointRow{project: e.ProjectID}
		p.dataPoints[id] = row
	}
	p.replaceSource(id, row)
	// The old memories stay, under the new audience, until those of the new revision are derived.
	row.moved = row.moved || row.audience != e.Effect.Audience
	row.audience, row.revision, row.occurredAt = e.Effect.Audience, e.Effect.Revision, pgarray.Instant(e.Effect.OccurredAt)
	row.bodyAt, row.accepted = int64(f.Revision), e
	p.touch(id, row, f)
}

// moved gives every document of a data point another audience.
func (p *fold) moved(f eventstore.DecodedEvent, id uuid.UUID, e *datapoint.Moved) {
	row := p.dataPoints[id]
	if row == nil || e.Historic() || row.audience == e.Effect.Audience {
		return
	}
	row.audience, row.moved = e.Effect.Audience, true
	p.touch(id, row, f)
}

// derived replaces the memories, unless they are of an older revision.
func (p *fold) derived(f eventstore.DecodedEvent, id uuid.UUID, e *memory.Derived) {
	row := p.dataPoints[id]
	if row == nil || e.Revision < row.memoryRevision {
		return
	}
	p.replaceMemories(id, row)
	row.memoryRevision, row.memoryAt, row.derived = e.Revision, int64(f.Revision), e
	p.touch(id, row, f)
}

// forget removes a data point with all its documents.
func (p *fold) forget(id uuid.UUID) {
	row := p.dataPoints[id]
	if row == nil {
		return
	}
	p.replaceSource(id, row)
	p.replaceMemories(id, row)
	delete(p.dataPoints, id)
	delete(p.touched, id)
	p.deleted[id] = struct{}{}
}

func (p *fold) touch(id uuid.UUID, row *dataPointRow, f eventstore.DecodedEvent) {
	row.position = f.Position
	p.touched[id] = struct{}{}
	delete(p.deleted, id)
}

// replaceSource marks the passages of a data point as stale.
func (p *fold) replaceSource(id uuid.UUID, row *dataPointRow) {
	if row.revision > 0 {
		p.stale[row.project] = append(p.stale[row.project], Scope{DataPoint: id, Part: Sources, Revision: row.revision})
	}
}

// replaceMemories marks the memories of a data point as stale.
func (p *fold) replaceMemories(id uuid.UUID, row *dataPointRow) {
	if row.memoryRevision > 0 {
		p.stale[row.project] = append(p.stale[row.project],
			Scope{DataPoint: id, Part: Memories, Revision: row.memoryRevision})
	}
}
