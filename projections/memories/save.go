package memories

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/table"
)

const (
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
	b := &pgx.Batch{}
	table.Load(b, captured, touched, func(r *capturedRow) { f.captured[r.DataPoint] = r })
	table.Load(b, tombstones, touched, func(r *tombstoneRow) { f.tombstones[r.DataPoint] = r })
	if err := pgarray.Flush(ctx, tx, b); err != nil {
		return nil, fmt.Errorf("load the rows of the page: %w", err)
	}
	return f, nil
}

// rows expands the derivations into rows in the order of the log. Of memories with the same id it
// keeps the first.
func (f *fold) rows() (rows []*memoryRow, inputs []*edgeRow) {
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
			rows = append(rows, d.row(key, n, m))
			for _, input := range m.Inputs {
				inputs = append(inputs, &edgeRow{input, m.ID, d.event.ProjectID, key.dataPoint})
			}
		}
	}
	return rows, inputs
}

func (d *derivation) row(of revisionKey, ordinal int, m memory.Memory) *memoryRow {
	project := d.event.ProjectID
	return &memoryRow{
		ID: m.ID, Project: project, DataPoint: of.dataPoint, Revision: of.revision, Ordinal: ordinal, Kind: m.Kind,
		Content: []byte(m.Content), Excerpt: []byte(m.Excerpt), Start: m.Start, End: m.End,
		Subject: TextKey(project, m.Subject), Attribute: TextKey(project, m.Attribute),
		OccurredAt: pgarray.Instant(d.event.OccurredAt), ResolvedFrom: pgarray.Optional(m.ResolvedFrom),
		ResolvedTo: pgarray.Optional(m.ResolvedTo), DerivedAt: pgarray.Instant(d.event.DerivedAt), Position: d.position,
	}
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
	rows, inputs := f.rows()
	memories.Insert(b, rows)
	edges.Insert(b, inputs)
	captured.Save(b, table.Filter(f.captured, func(r *capturedRow) bool { return r.dirty }))
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
	if fresh := table.Filter(f.tombstones, func(r *tombstoneRow) bool { return r.dirty }); len(fresh) > 0 {
		ids := pgarray.IDs(fresh, func(r *tombstoneRow) uuid.UUID { return r.DataPoint })
		b.Queue(deleteMemories, ids, min(f.most, max(pageFactor*f.most/len(ids), leastMemories)))
		b.Queue(followRest, ids, pgarray.IDs(fresh, func(r *tombstoneRow) uuid.UUID { return r.Project }), int64(f.last))
		b.Queue(deleteAllCaptured, ids)
		tombstones.Insert(b, fresh)
	}
	if len(f.cleaned) > 0 {
		b.Queue(deleteTombstones, pgarray.Keys(f.cleaned))
	}
}

// TextKey is the hash of a subject or an attribute in a project, as the columns contain it: inner pages of an index
// keep keys of deleted rows. It is the zero id for the empty text.
func TextKey(project uuid.UUID, text string) uuid.UUID {
	if text == "" {
		return uuid.Nil
	}
	return uuid.NewHash(sha256.New(), project, []byte(text), 8)
}
