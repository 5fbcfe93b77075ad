package recallindex

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/internal/unnest"
)

// changes is what the page means for the index of each project.
func (p *Projector) changes(ctx context.Context, pg *page) (map[uuid.UUID]*Change, error) {
	changes := make(map[uuid.UUID]*Change)
	of := func(project uuid.UUID) *Change {
		if changes[project] == nil {
			changes[project] = new(Change)
		}
		return changes[project]
	}
	for id := range pg.touched {
		row := pg.points[id]
		if row.source {
			documents, err := p.passages(ctx, id, row)
			if err != nil {
				return nil, err
			}
			// Documents that a move finds no text for any more lose their place too.
			for n := len(documents); n < row.passages; n++ {
				pg.stale[row.project] = append(pg.stale[row.project], Key{DataPoint: id, Revision: row.revision, N: n})
			}
			row.passages = len(documents)
			of(row.project).Upserts = append(of(row.project).Upserts, documents...)
		}
		if row.memory {
			documents, err := p.lines(ctx, id, row)
			if err != nil {
				return nil, err
			}
			if row.derived == nil && len(documents) == 0 {
				pg.replaceMemories(id, row)
			}
			row.memories = unnest.Column(documents, func(d Document) uuid.UUID { return d.Memory })
			of(row.project).Upserts = append(of(row.project).Upserts, documents...)
		}
	}
	for _, past := range pg.passing {
		keys, err := p.keys(ctx, past)
		if err != nil {
			return nil, err
		}
		of(past.project).Deletes = append(of(past.project).Deletes, keys...)
	}
	for project, keys := range pg.stale {
		of(project).Deletes = append(of(project).Deletes, keys...)
	}
	return changes, nil
}

// passages are the documents of the newest revision of a data point; none where its text was erased.
func (p *Projector) passages(ctx context.Context, id uuid.UUID, row *point) ([]Document, error) {
	accepted, err := p.revision(ctx, id, row)
	if err != nil || accepted == nil {
		return nil, err
	}
	content, ok, err := p.content(ctx, id, accepted)
	if err != nil || !ok {
		return nil, err
	}
	source := recall.Document{Content: content, Author: accepted.Author}
	if accepted.Effect.Label != nil {
		source.Label = *accepted.Effect.Label
	}
	var documents []Document
	for n, terms := range p.analyzer.Passages(source) {
		documents = append(documents, Document{
			Key:      Key{DataPoint: id, Revision: row.revision, N: n},
			Audience: row.audience, OccurredAt: row.occurredAt, Terms: terms,
		})
	}
	return documents, nil
}

// lines are the documents of the memories of a data point.
func (p *Projector) lines(ctx context.Context, id uuid.UUID, row *point) ([]Document, error) {
	derived, err := p.derived(ctx, id, row)
	if err != nil || derived == nil {
		return nil, err
	}
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
			Audience: row.audience, OccurredAt: derived.OccurredAt, Terms: recall.Terms{Text: p.analyzer.Terms(m.Content)},
		})
	}
	return documents, nil
}

// keys are the documents that a revision had, or its memories, had the page ended with it.
func (p *Projector) keys(ctx context.Context, past passing) ([]Key, error) {
	var keys []Key
	if past.derived != nil {
		memories, err := p.memories(ctx, past.id, past.derived)
		for _, m := range memories {
			keys = append(keys, Key{DataPoint: past.id, Revision: past.derived.Revision, Memory: m.ID})
		}
		return keys, err
	}
	row := &point{accepted: past.accepted, revision: past.accepted.Effect.Revision}
	documents, err := p.passages(ctx, past.id, row)
	for _, d := range documents {
		keys = append(keys, d.Key)
	}
	return keys, err
}

const (
	deletePoints = `delete from data_points d where d.id = any($1::uuid[])`
	upsertPoints = `insert into data_points
			(id, project_id, audience, revision, body_at, passages, occurred_at, memory_revision, memory_at, memories, position)
		select id, project_id, audience, revision, body_at, passages, occurred_at, memory_revision, memory_at,
			string_to_array(memories, ',')::uuid[], position
		from unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::int[], $5::bigint[], $6::int[], $7::timestamptz[], $8::int[], $9::bigint[], $10::text[], $11::bigint[])
			as row (id, project_id, audience, revision, body_at, passages, occurred_at, memory_revision, memory_at, memories, position)
		on conflict (id) do update set audience = excluded.audience, revision = excluded.revision, body_at = excluded.body_at,
			passages = excluded.passages, occurred_at = excluded.occurred_at, memory_revision = excluded.memory_revision,
			memory_at = excluded.memory_at, memories = excluded.memories, position = excluded.position`
)

// save writes the rows as the page leaves them.
func (p *page) save(ctx context.Context, tx pgx.Tx) error {
	batch := new(pgx.Batch)
	if len(p.gone) > 0 {
		batch.Queue(deletePoints, unnest.Keys(p.gone))
	}
	if len(p.touched) > 0 {
		type entry struct {
			id uuid.UUID
			*point
		}
		rows := make([]entry, 0, len(p.touched))
		for id := range p.touched {
			rows = append(rows, entry{id, p.points[id]})
		}
		batch.Queue(upsertPoints,
			unnest.IDs(rows, func(r entry) uuid.UUID { return r.id }),
			unnest.IDs(rows, func(r entry) uuid.UUID { return r.project }),
			unnest.IDs(rows, func(r entry) uuid.UUID { return r.audience }),
			unnest.Column(rows, func(r entry) int32 { return int32(r.revision) }),
			unnest.Column(rows, func(r entry) int64 { return r.bodyAt }),
			unnest.Column(rows, func(r entry) int32 { return int32(r.passages) }),
			unnest.Column(rows, func(r entry) time.Time { return r.occurredAt }),
			unnest.Column(rows, func(r entry) int32 { return int32(r.memoryRevision) }),
			unnest.Column(rows, func(r entry) int64 { return r.memoryAt }),
			unnest.Column(rows, func(r entry) string { return strings.Join(unnest.Column(r.memories, uuid.UUID.String), ",") }),
			unnest.Column(rows, func(r entry) int64 { return int64(r.position) }),
		)
	}
	if err := unnest.Flush(ctx, tx, batch); err != nil {
		return fmt.Errorf("save the rows of the page: %w", err)
	}
	return nil
}
