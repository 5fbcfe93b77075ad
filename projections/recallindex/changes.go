package recallindex

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/internal/pgarray"
)

// changes returns what the page changes in the index, by project.
func (p *Projector) changes(ctx context.Context, a *recall.Analyzer, pg *fold) ([]Change, error) {
	changes := make(map[uuid.UUID]*Change)
	of := func(project uuid.UUID) *Change {
		if changes[project] == nil {
			changes[project] = &Change{Project: project}
		}
		return changes[project]
	}
	for project, scopes := range pg.stale {
		of(project).Deletes = scopes
	}
	for id := range pg.touched {
		row := pg.dataPoints[id]
		c := of(row.project)
		if row.accepted != nil {
			documents, err := p.sourceDocuments(ctx, a, id, row, row.accepted)
			if err != nil {
				return nil, err
			}
			row.passages = len(documents)
			c.Upserts = append(c.Upserts, documents...)
		}
		if row.derived != nil {
			documents, err := p.memoryDocuments(ctx, a, id, row, row.derived)
			if err != nil {
				return nil, err
			}
			row.memories = len(documents)
			c.Upserts = append(c.Upserts, documents...)
		}
		// Documents that the page indexes have the new audience already.
		if row.moved && (row.accepted == nil || row.memoryRevision > 0 && row.derived == nil) {
			c.Moves = append(c.Moves, Move{DataPoint: id, Audience: row.audience})
		}
	}
	list := make([]Change, 0, len(changes))
	for _, c := range changes {
		list = append(list, *c)
	}
	return list, nil
}

// sourceDocuments returns the documents of the newest revision of a data point; none if its text
// was erased.
func (p *Projector) sourceDocuments(
	ctx context.Context, a *recall.Analyzer, id uuid.UUID, row *dataPointRow, accepted *datapoint.RevisionAccepted,
) ([]Document, error) {
	content, ok, err := p.content(ctx, id, accepted)
	if err != nil || !ok {
		return nil, err
	}
	source := recall.Document{Content: content, Author: accepted.Author}
	if accepted.Effect.Label != nil {
		source.Label = *accepted.Effect.Label
	}
	var documents []Document
	for n, terms := range a.Passages(source) {
		documents = append(documents, Document{
			Key:      Key{DataPoint: id, Revision: row.revision, N: n},
			Audience: row.audience, OccurredAt: row.occurredAt, Terms: terms,
			Tie: TieOf(accepted.Effect.SourceID, strconv.Itoa(n)),
		})
	}
	return documents, nil
}

// memoryDocuments returns the documents of the memories of a data point.
func (p *Projector) memoryDocuments(
	ctx context.Context, a *recall.Analyzer, id uuid.UUID, row *dataPointRow, derived *memory.Derived,
) ([]Document, error) {
	memories, err := p.memories(ctx, id, derived)
	if err != nil {
		return nil, err
	}
	var documents []Document
	seen := make(map[uuid.UUID]struct{}, len(memories))
	for _, m := range memories {
		if _, twice := seen[m.ID]; twice {
			continue
		}
		seen[m.ID] = struct{}{}
		documents = append(documents, Document{
			Key:      Key{DataPoint: id, Revision: row.memoryRevision, Memory: m.ID},
			Audience: row.audience, OccurredAt: derived.OccurredAt, Tie: TieOf(m.Content),
			Terms: recall.Terms{Text: a.Terms(m.Content)},
		})
	}
	return documents, nil
}

const (
	deleteDataPoints = `delete from data_points d where d.id = any($1::uuid[])`
	upsertDataPoints = `insert into data_points (` + columns + `)
		select ` + columns + `
		from unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::int[], $5::bigint[], $6::timestamptz[], $7::int[], $8::bigint[],
			$9::int[], $10::int[], $11::bigint[]) as row (` + columns + `)
		on conflict (id) do update set audience = excluded.audience, revision = excluded.revision, body_at = excluded.body_at,
			occurred_at = excluded.occurred_at, memory_revision = excluded.memory_revision,
			memory_at = excluded.memory_at, passages = excluded.passages, memories = excluded.memories,
			position = excluded.position`
)

// save writes the rows of the page.
func (p *fold) save(ctx context.Context, tx pgx.Tx) error {
	batch := new(pgx.Batch)
	if len(p.deleted) > 0 {
		batch.Queue(deleteDataPoints, pgarray.Keys(p.deleted))
	}
	if len(p.touched) > 0 {
		type entry struct {
			id uuid.UUID
			*dataPointRow
		}
		rows := make([]entry, 0, len(p.touched))
		for id := range p.touched {
			rows = append(rows, entry{id, p.dataPoints[id]})
		}
		batch.Queue(upsertDataPoints,
			pgarray.IDs(rows, func(r entry) uuid.UUID { return r.id }),
			pgarray.IDs(rows, func(r entry) uuid.UUID { return r.project }),
			pgarray.IDs(rows, func(r entry) uuid.UUID { return r.audience }),
			pgarray.Column(rows, func(r entry) int32 { return int32(r.revision) }),
			pgarray.Column(rows, func(r entry) int64 { return r.bodyAt }),
			pgarray.Column(rows, func(r entry) time.Time { return r.occurredAt }),
			pgarray.Column(rows, func(r entry) int32 { return int32(r.memoryRevision) }),
			pgarray.Column(rows, func(r entry) int64 { return r.memoryAt }),
			pgarray.Column(rows, func(r entry) int32 { return int32(r.passages) }),
			pgarray.Column(rows, func(r entry) int32 { return int32(r.memories) }),
			pgarray.Column(rows, func(r entry) int64 { return int64(r.position) }),
		)
	}
	if err := pgarray.Flush(ctx, tx, batch); err != nil {
		return fmt.Errorf("save the rows of the page: %w", err)
	}
	return nil
}
