package memories

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
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

const (
	selectCaptured = `select data_point, project_id, revision, position from captured where data_point = any($1::uuid[])`
	selectGone     = `select data_point, project_id, deletion_id from gone where data_point = any($1::uuid[])`

	deleteGoneMemories = `delete from memories where data_point = any($1::uuid[])`
	deleteGoneEdges    = `delete from edges where data_point = any($1::uuid[])`
	deleteGoneCaptured = `delete from captured where data_point = any($1::uuid[])`
	deleteReplaced     = `with replaced as (
			delete from memories m using unnest($1::uuid[], $2::int[]) as r (data_point, revision)
			where m.data_point = r.data_point and m.revision = r.revision returning m.id
		) delete from edges e using replaced r where e.derived_id = r.id`
	insertMemories = `insert into memories (id, project_id, data_point, revision, ordinal, kind, content, excerpt, span_start, span_end,
			subject, attribute, occurred_at, resolved_from, resolved_to, derived_at, position)
		select * from unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::int[], $5::int[], $6::text[], $7::bytea[], $8::bytea[], $9::int[], $10::int[],
			$11::text[], $12::text[], $13::timestamptz[], $14::timestamptz[], $15::timestamptz[], $16::timestamptz[], $17::bigint[])
		on conflict (id) do nothing`
	insertEdges = `insert into edges (input_id, derived_id, project_id, data_point)
		select * from unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[]) on conflict (derived_id, input_id) do nothing`
	upsertCaptured = `insert into captured (data_point, project_id, revision, position)
		select * from unnest($1::uuid[], $2::uuid[], $3::int[], $4::bigint[])
		on conflict (data_point) do update set revision = excluded.revision, position = excluded.position`
	insertGone = `insert into gone (data_point, project_id, deletion_id)
		select * from unnest($1::uuid[], $2::uuid[], $3::uuid[]) on conflict (data_point) do nothing`
	deleteCleaned = `delete from gone where deletion_id = any($1::uuid[])`
)

// load reads the rows that the events lead to.
func load(ctx context.Context, tx pgx.Tx, facts []eventstore.Fact) (*page, error) {
	p := &page{
		derived: map[revisionKey]*derivation{}, replaced: map[revisionKey]struct{}{}, captured: map[uuid.UUID]*capturedRow{},
		gone: map[uuid.UUID]*goneRow{}, cleaned: map[uuid.UUID]struct{}{},
	}
	touched := map[uuid.UUID]struct{}{}
	for _, f := range facts {
		switch e := f.Event.(type) {
		case *memory.Derived, *datapoint.Deleted:
			touched[stream.Owner(f.Stream)] = struct{}{}
		case *deletion.FactsKept:
			touched[e.DataPoint] = struct{}{}
		}
	}
	if len(touched) == 0 {
		return p, nil
	}
	ids, b := unnest.Keys(touched), &pgx.Batch{}
	b.Queue(selectCaptured, ids).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			id, row := uuid.UUID{}, &capturedRow{}
			if err := rows.Scan((*[16]byte)(&id), (*[16]byte)(&row.project), &row.revision, (*uint64)(&row.position)); err != nil {
				return err
			}
			p.captured[id] = row
		}
		return rows.Err()
	})
	b.Queue(selectGone, ids).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			id, row := uuid.UUID{}, &goneRow{}
			if err := rows.Scan((*[16]byte)(&id), (*[16]byte)(&row.project), (*[16]byte)(&row.deletion)); err != nil {
				return err
			}
			p.gone[id] = row
		}
		return rows.Err()
	})
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return nil, fmt.Errorf("load the rows of the page: %w", err)
	}
	return p, nil
}

// line is a row of table memories.
type line struct {
	revisionKey
	*derivation
	memory.Memory
	ordinal int
}

// edge is a row of table edges.
type edge struct {
	input, derived, project, dataPoint uuid.UUID
}

// lines spreads the derivations into rows. An id that stands twice is the first.
func (p *page) lines() (lines []line, edges []edge) {
	keys := slices.SortedFunc(maps.Keys(p.derived), func(a, b revisionKey) int {
		return cmp.Compare(p.derived[a].position, p.derived[b].position)
	})
	seen := map[uuid.UUID]bool{}
	for _, key := range keys {
		d := p.derived[key]
		for n, m := range d.memories {
			if seen[m.ID] {
				continue
			}
			seen[m.ID] = true
			lines = append(lines, line{revisionKey: key, derivation: d, Memory: m, ordinal: n})
			for _, input := range m.Inputs {
				edges = append(edges, edge{input: input, derived: m.ID, project: d.event.ProjectID, dataPoint: key.dataPoint})
			}
		}
	}
	return lines, edges
}

// save writes the rows that the page changed, in one round trip.
func (p *page) save(ctx context.Context, tx pgx.Tx) error {
	b := &pgx.Batch{}
	p.saveGone(b)
	if len(p.replaced) > 0 {
		keys := make([]revisionKey, 0, len(p.replaced))
		for key := range p.replaced {
			keys = append(keys, key)
		}
		b.Queue(deleteReplaced,
			unnest.IDs(keys, func(k revisionKey) uuid.UUID { return k.dataPoint }),
			unnest.Column(keys, func(k revisionKey) int32 { return int32(k.revision) }))
	}
	lines, edges := p.lines()
	if len(lines) > 0 {
		b.Queue(insertMemories,
			unnest.IDs(lines, func(l line) uuid.UUID { return l.ID }),
			unnest.IDs(lines, func(l line) uuid.UUID { return l.event.ProjectID }),
			unnest.IDs(lines, func(l line) uuid.UUID { return l.dataPoint }),
			unnest.Column(lines, func(l line) int32 { return int32(l.revision) }),
			unnest.Column(lines, func(l line) int32 { return int32(l.ordinal) }),
			unnest.Column(lines, func(l line) string { return l.Kind }),
			unnest.Column(lines, func(l line) []byte { return []byte(l.Content) }),
			unnest.Column(lines, func(l line) []byte { return []byte(l.Excerpt) }),
			unnest.Column(lines, func(l line) int32 { return int32(l.Start) }),
			unnest.Column(lines, func(l line) int32 { return int32(l.End) }),
			unnest.Column(lines, func(l line) string { return key(l.Subject) }),
			unnest.Column(lines, func(l line) string { return key(l.Attribute) }),
			unnest.Column(lines, func(l line) time.Time { return unnest.Instant(l.event.OccurredAt) }),
			unnest.Column(lines, func(l line) *time.Time { return unnest.Optional(l.ResolvedFrom) }),
			unnest.Column(lines, func(l line) *time.Time { return unnest.Optional(l.ResolvedTo) }),
			unnest.Column(lines, func(l line) time.Time { return unnest.Instant(l.event.DerivedAt) }),
			unnest.Column(lines, func(l line) int64 { return int64(l.position) }))
	}
	if len(edges) > 0 {
		b.Queue(insertEdges,
			unnest.IDs(edges, func(e edge) uuid.UUID { return e.input }),
			unnest.IDs(edges, func(e edge) uuid.UUID { return e.derived }),
			unnest.IDs(edges, func(e edge) uuid.UUID { return e.project }),
			unnest.IDs(edges, func(e edge) uuid.UUID { return e.dataPoint }))
	}
	p.saveCaptured(b)
	if err := unnest.Flush(ctx, tx, b); err != nil {
		return fmt.Errorf("write the rows of the page: %w", err)
	}
	return nil
}

// saveGone drops what was derived from deleted data points, and what is remembered of those that are cleaned.
func (p *page) saveGone(b *pgx.Batch) {
	fresh := map[uuid.UUID]*goneRow{}
	for id, row := range p.gone {
		if row.dirty {
			fresh[id] = row
		}
	}
	if len(fresh) > 0 {
		ids := unnest.Keys(fresh)
		b.Queue(deleteGoneMemories, ids)
		b.Queue(deleteGoneEdges, ids)
		b.Queue(deleteGoneCaptured, ids)
		b.Queue(insertGone, ids,
			unnest.IDs(ids, func(id [16]byte) uuid.UUID { return fresh[id].project }),
			unnest.IDs(ids, func(id [16]byte) uuid.UUID { return fresh[id].deletion }))
	}
	if len(p.cleaned) > 0 {
		b.Queue(deleteCleaned, unnest.Keys(p.cleaned))
	}
}

func (p *page) saveCaptured(b *pgx.Batch) {
	var ids []uuid.UUID
	for id, row := range p.captured {
		if row.dirty {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return
	}
	b.Queue(upsertCaptured,
		unnest.IDs(ids, func(id uuid.UUID) uuid.UUID { return id }),
		unnest.IDs(ids, func(id uuid.UUID) uuid.UUID { return p.captured[id].project }),
		unnest.Column(ids, func(id uuid.UUID) int32 { return int32(p.captured[id].revision) }),
		unnest.Column(ids, func(id uuid.UUID) int64 { return int64(p.captured[id].position) }))
}
