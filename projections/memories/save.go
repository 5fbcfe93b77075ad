package memories

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/projections"
)

const (
	selectCaptured = `select data_point, project_id, revision, position from captured
		where data_point = any($1::uuid[])`
	selectTombstones = `select data_point, project_id, deletion_id from gone where data_point = any($1::uuid[])`

	// deleteMemories deletes some memories of each data point. followRest queues those that have more.
	deleteMemories = `with slice as (
			select m.id from unnest($1::uuid[]) k (id)
			cross join lateral (select id from memories where data_point = k.id order by revision limit $2) m
		), deleted as (
			delete from memories where id = any(array(select id from slice))
		) delete from edges where derived_id = any(array(select id from slice))`
	followRest = `insert into follow_ups (kind, key, project_id, position, data, cursor)
		select '` + deleteRest + `', id, project_id, $3, '', '' from unnest($1::uuid[], $2::uuid[]) g (id, project_id)
		where exists (select from memories where data_point = g.id)
		on conflict (kind, key) do nothing`
	deleteSlice = `with slice as (
			select id, revision from memories where data_point = $1 and revision >= $2 order by revision limit $3
		), deleted as (
			delete from memories where id = any(array(select id from slice))
		), cut as (
			delete from edges where derived_id = any(array(select id from slice))
		) select count(*), coalesce(max(revision), 0) from slice`
	deleteAllCaptured = `delete from captured where data_point = any($1::uuid[])`
	deleteReplaced    = `with replaced as (
			delete from memories m using unnest($1::uuid[], $2::int[]) as r (data_point, revision)
			where m.data_point = r.data_point and m.revision = r.revision returning m.id
		) delete from edges e using replaced r where e.derived_id = r.id`
	insertMemories = `insert into memories (id, project_id, data_point, revision, ordinal, kind, content, excerpt,
		span_start, span_end,
			subject, attribute, occurred_at, resolved_from, resolved_to, derived_at, position)
		select * from unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::int[], $5::int[], $6::text[], $7::bytea[],
			$8::bytea[], $9::int[], $10::int[],
			$11::uuid[], $12::uuid[], $13::timestamptz[], $14::timestamptz[], $15::timestamptz[], $16::timestamptz[],
				$17::bigint[])
		on conflict (id) do nothing`
	insertEdges = `insert into edges (input_id, derived_id, project_id, data_point)
		select * from unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[]) on conflict (derived_id, input_id) do nothing`
	upsertCaptured = `insert into captured (data_point, project_id, revision, position)
		select * from unnest($1::uuid[], $2::uuid[], $3::int[], $4::bigint[])
		on conflict (data_point) do update set revision = excluded.revision, position = excluded.position`
	insertTombstones = `insert into gone (data_point, project_id, deletion_id)
		select * from unnest($1::uuid[], $2::uuid[], $3::uuid[]) on conflict (data_point) do nothing`
	deleteTombstones = `delete from gone where deletion_id = any($1::uuid[])`
)

// load reads the rows that the events touch.
func load(ctx context.Context, tx pgx.Tx, events []eventstore.DecodedEvent) (*fold, error) {
	f := &fold{
		derived: map[revisionKey]*derivation{}, replaced: map[revisionKey]struct{}{}, captured: map[uuid.UUID]*capturedRow{},
		tombstones: map[uuid.UUID]*tombstoneRow{}, cleaned: map[uuid.UUID]struct{}{},
	}
	touched := map[uuid.UUID]struct{}{}
	for _, decoded := range events {
		switch e := decoded.Event.(type) {
		case *memory.Derived, *datapoint.Deleted:
			touched[stream.Owner(decoded.Stream)] = struct{}{}
		case *deletion.FactsKept:
			touched[e.DataPoint] = struct{}{}
		}
	}
	if len(touched) == 0 {
		return f, nil
	}
	ids, b := pgarray.Keys(touched), &pgx.Batch{}
	b.Queue(selectCaptured, ids).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			id, row := uuid.UUID{}, &capturedRow{}
			if err := rows.Scan(&id, &row.project, &row.revision, (*uint64)(&row.position)); err != nil {
				return err
			}
			f.captured[id] = row
		}
		return rows.Err()
	})
	b.Queue(selectTombstones, ids).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			id, row := uuid.UUID{}, &tombstoneRow{}
			if err := rows.Scan(&id, &row.project, &row.deletion); err != nil {
				return err
			}
			f.tombstones[id] = row
		}
		return rows.Err()
	})
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return nil, fmt.Errorf("load the rows of the page: %w", err)
	}
	return f, nil
}

// line is a row of table memories.
type memoryRow struct {
	revisionKey
	*derivation
	memory.Memory
	ordinal int
}

// edge is a row of table edges.
type edge struct {
	input, derived, project, dataPoint uuid.UUID
}

// rows expands the derivations into rows in the order of the log. Of memories with the same id it
// keeps the first.
func (f *fold) rows() (rows []memoryRow, edges []edge) {
	keys := slices.SortedFunc(maps.Keys(f.derived), func(a, b revisionKey) int {
		return cmp.Compare(f.derived[a].position, f.derived[b].position)
	})
	seen := map[uuid.UUID]bool{}
	for _, key := range keys {
		d := f.derived[key]
		for n, m := range d.memories {
			if seen[m.ID] {
				continue
			}
			seen[m.ID] = true
			rows = append(rows, memoryRow{revisionKey: key, derivation: d, Memory: m, ordinal: n})
			for _, input := range m.Inputs {
				edges = append(edges, edge{input: input, derived: m.ID, project: d.event.ProjectID, dataPoint: key.dataPoint})
			}
		}
	}
	return rows, edges
}

// save writes the changed rows in one round trip.
func (f *fold) save(ctx context.Context, tx pgx.Tx) error {
	b := &pgx.Batch{}
	f.saveTombstones(b)
	if len(f.replaced) > 0 {
		keys := make([]revisionKey, 0, len(f.replaced))
		for key := range f.replaced {
			keys = append(keys, key)
		}
		b.Queue(deleteReplaced, pgarray.IDs(keys, func(k revisionKey) uuid.UUID { return k.dataPoint }),
			pgarray.Column(keys, func(k revisionKey) int32 { return int32(k.revision) }))
	}
	rows, edges := f.rows()
	if len(rows) > 0 {
		b.Queue(insertMemories,
			pgarray.IDs(rows, func(l memoryRow) uuid.UUID { return l.ID }),
			pgarray.IDs(rows, func(l memoryRow) uuid.UUID { return l.event.ProjectID }),
			pgarray.IDs(rows, func(l memoryRow) uuid.UUID { return l.dataPoint }),
			pgarray.Column(rows, func(l memoryRow) int32 { return int32(l.revision) }),
			pgarray.Column(rows, func(l memoryRow) int32 { return int32(l.ordinal) }),
			pgarray.Column(rows, func(l memoryRow) string { return l.Kind }),
			pgarray.Column(rows, func(l memoryRow) []byte { return []byte(l.Content) }),
			pgarray.Column(rows, func(l memoryRow) []byte { return []byte(l.Excerpt) }),
			pgarray.Column(rows, func(l memoryRow) int32 { return int32(l.Start) }),
			pgarray.Column(rows, func(l memoryRow) int32 { return int32(l.End) }),
			pgarray.Column(rows, func(l memoryRow) *uuid.UUID {
				return pgarray.Optional(TextKey(l.event.ProjectID, l.Subject))
			}),
			pgarray.IDs(rows, func(l memoryRow) uuid.UUID { return TextKey(l.event.ProjectID, l.Attribute) }),
			pgarray.Column(rows, func(l memoryRow) time.Time { return pgarray.Instant(l.event.OccurredAt) }),
			pgarray.Column(rows, func(l memoryRow) *time.Time { return pgarray.Optional(l.ResolvedFrom) }),
			pgarray.Column(rows, func(l memoryRow) *time.Time { return pgarray.Optional(l.ResolvedTo) }),
			pgarray.Column(rows, func(l memoryRow) time.Time { return pgarray.Instant(l.event.DerivedAt) }),
			pgarray.Column(rows, func(l memoryRow) int64 { return int64(l.position) }))
	}
	if len(edges) > 0 {
		b.Queue(insertEdges,
			pgarray.IDs(edges, func(e edge) uuid.UUID { return e.input }),
			pgarray.IDs(edges, func(e edge) uuid.UUID { return e.derived }),
			pgarray.IDs(edges, func(e edge) uuid.UUID { return e.project }),
			pgarray.IDs(edges, func(e edge) uuid.UUID { return e.dataPoint }))
	}
	f.saveCaptured(b)
	if err := pgarray.Flush(ctx, tx, b); err != nil {
		return fmt.Errorf("write the rows of the page: %w", err)
	}
	return nil
}

const (
	// deleteRest is the kind of the follow-up that deletes the memories of a deleted data point. Readers find
	// none of them: a memory is read with the row of table captured, which the page deletes.
	deleteRest = "delete"
	// pageFactor times the rows of a slice is about the most memories that the deletions of a page delete, and
	// leastMemories the least of one data point.
	pageFactor    = 4
	leastMemories = 8
)

// Slice implements projections.Following.
func (p *Projector) Slice(
	ctx context.Context, tx pgx.Tx, work projections.FollowUp,
) (cursor string, done bool, err error) {
	if work.Kind != deleteRest {
		return "", false, fmt.Errorf("no rule for follow-up %s", work.Kind)
	}
	from := 0
	if work.Cursor != "" {
		if from, err = strconv.Atoi(work.Cursor); err != nil {
			return "", false, fmt.Errorf("decode the cursor of a follow-up: %w", err)
		}
	}
	var n, last int
	if err := tx.QueryRow(ctx, deleteSlice, work.Key, from, p.rows).Scan(&n, &last); err != nil {
		return "", false, fmt.Errorf("delete the memories of a slice: %w", err)
	}
	return strconv.Itoa(last), n < p.rows, nil
}

// saveTombstones deletes what was derived from deleted data points, and the tombstones of cleaned
// ones.
func (f *fold) saveTombstones(b *pgx.Batch) {
	fresh := map[uuid.UUID]*tombstoneRow{}
	for id, row := range f.tombstones {
		if row.dirty {
			fresh[id] = row
		}
	}
	if len(fresh) > 0 {
		ids := pgarray.Keys(fresh)
		projects := pgarray.IDs(ids, func(id uuid.UUID) uuid.UUID { return fresh[id].project })
		b.Queue(deleteMemories, ids, min(f.most, max(pageFactor*f.most/len(ids), leastMemories)))
		b.Queue(followRest, ids, projects, int64(f.last))
		b.Queue(deleteAllCaptured, ids)
		b.Queue(insertTombstones, ids, projects,
			pgarray.IDs(ids, func(id uuid.UUID) uuid.UUID { return fresh[id].deletion }))
	}
	if len(f.cleaned) > 0 {
		b.Queue(deleteTombstones, pgarray.Keys(f.cleaned))
	}
}

func (f *fold) saveCaptured(b *pgx.Batch) {
	var ids []uuid.UUID
	for id, row := range f.captured {
		if row.dirty {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return
	}
	b.Queue(upsertCaptured,
		pgarray.IDs(ids, func(id uuid.UUID) uuid.UUID { return id }),
		pgarray.IDs(ids, func(id uuid.UUID) uuid.UUID { return f.captured[id].project }),
		pgarray.Column(ids, func(id uuid.UUID) int32 { return int32(f.captured[id].revision) }),
		pgarray.Column(ids, func(id uuid.UUID) int64 { return int64(f.captured[id].position) }))
}

// TextKey is the hash of a subject or an attribute in a project, as the columns contain it: inner pages of an index
// keep keys of deleted rows. It is the zero id for the empty text.
func TextKey(project uuid.UUID, text string) uuid.UUID {
	if text == "" {
		return uuid.Nil
	}
	return uuid.NewHash(sha256.New(), project, []byte(text), 8)
}
