// Package memories projects the memories of every captured revision, with edges from each memory to
// its inputs.
package memories

import (
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/table"
)

// Name names the projection: its schema, its topic, and what callers wait for.
const Name = projection.Memories

//go:embed schema.sql
var schema string

// Projector keeps schema memories.
type Projector struct {
	projections.Base
	blobs  eventstore.BlobReader
	logger *slog.Logger
	rows   int // the most memories of a slice, and of a data point that a page deletes
}

// New makes the projector. No caller waits for memories, but their rows must exist by the time the
// search index finds them: so the longest pace is below that of the index.
func New(blobs eventstore.BlobReader, logger *slog.Logger) *Projector {
	p := &Projector{blobs: blobs, logger: logger, rows: projections.SliceRows}
	p.Base = projections.NewBase(projections.Description{
		Name: Name, Version: 1, Categories: []string{stream.Memory, stream.DataPoint, stream.Deletion},
		Schema:     schema + projections.FollowUpTable,
		TextTables: []string{"memories"},
		Counted:    []string{"memories", "captured"},
		Pace:       projections.Pace{Min: 60 * time.Millisecond, Max: 180 * time.Millisecond},
	})
	return p
}

// Apply folds a page of events over the rows that they touch, then writes one statement per table. If
// the blob of a revision's memories is missing or damaged, the revision has none: this is logged and
// does not stop the projector. A blob that cannot be read now is an error.
func (p *Projector) Apply(ctx context.Context, tx pgx.Tx, events []eventstore.DecodedEvent) error {
	// Report an event that cannot be decoded before rows are read for the page.
	if err := projections.Each(events, func(eventstore.DecodedEvent) error { return nil }); err != nil {
		return err
	}
	f, err := load(ctx, tx, events)
	if err != nil {
		return err
	}
	if len(events) > 0 {
		f.most, f.last = p.rows, events[len(events)-1].Position
	}
	if err := projections.Each(events, f.apply); err != nil {
		return err
	}
	if err := p.readMemories(ctx, f.derived); err != nil {
		return err
	}
	return f.save(ctx, tx)
}

// blobReaders is how many blobs are read concurrently.
const blobReaders = 4

// readMemories fills in the memories of the derivations to write: from the event, or from its blob.
func (p *Projector) readMemories(ctx context.Context, derived map[revisionKey]*derivation) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(blobReaders)
	for key, d := range derived {
		if d.event.Blob == nil {
			d.memories = d.event.Memories
			continue
		}
		group.Go(func() error {
			var err error
			d.memories, err = p.readBlob(ctx, key.dataPoint, d.event)
			return err
		})
	}
	return group.Wait()
}

// readBlob reads the memories of a revision. It returns none if the blob is missing or damaged.
func (p *Projector) readBlob(ctx context.Context, dataPoint uuid.UUID, e *memory.Derived) ([]memory.Memory, error) {
	data, err := p.blobs.ReadBlob(ctx, *e.Blob)
	var lost *eventstore.BlobError
	switch {
	case errors.As(err, &lost):
	case err != nil:
		return nil, fmt.Errorf("read the memories of data point %s, revision %d: %w", dataPoint, e.Revision, err)
	default:
		memories, decodeErr := memory.Decode(data)
		if decodeErr == nil {
			return memories, nil
		}
		err = decodeErr
	}
	p.logger.WarnContext(ctx, "memories of a revision are lost",
		"data_point", dataPoint, "revision", e.Revision, "blob", e.Blob.Stream, "err", err)
	return nil, nil
}

type revisionKey struct {
	dataPoint uuid.UUID
	revision  int
}

// derivation is the memories of one revision that the page writes. They replace earlier ones.
type derivation struct {
	event    *memory.Derived
	memories []memory.Memory
	position eventstore.Position
}

// capturedRow is a row of table captured.
type capturedRow struct {
	DataPoint uuid.UUID           `db:"data_point"`
	Project   uuid.UUID           `db:"project_id,once"`
	Revision  int                 `db:"revision"`
	Position  eventstore.Position `db:"position"`
	dirty     bool
}

// tombstoneRow is a row of table gone: a deleted data point whose streams may still be written.
type tombstoneRow struct {
	DataPoint uuid.UUID `db:"data_point"`
	Project   uuid.UUID `db:"project_id"`
	Deletion  uuid.UUID `db:"deletion_id"`
	dirty     bool
}

// memoryRow is a row of table memories.
type memoryRow struct {
	ID           uuid.UUID           `db:"id"`
	Project      uuid.UUID           `db:"project_id"`
	DataPoint    uuid.UUID           `db:"data_point"`
	Revision     int                 `db:"revision"`
	Ordinal      int                 `db:"ordinal"`
	Kind         string              `db:"kind"`
	Content      []byte              `db:"content"`
	Excerpt      []byte              `db:"excerpt"`
	Start        int                 `db:"span_start"`
	End          int                 `db:"span_end"`
	Subject      uuid.UUID           `db:"subject,null"`
	Attribute    uuid.UUID           `db:"attribute"`
	OccurredAt   time.Time           `db:"occurred_at"`
	ResolvedFrom *time.Time          `db:"resolved_from"`
	ResolvedTo   *time.Time          `db:"resolved_to"`
	DerivedAt    time.Time           `db:"derived_at"`
	Position     eventstore.Position `db:"position"`
}

// edgeRow is a row of table edges.
type edgeRow struct {
	Input     uuid.UUID `db:"input_id"`
	Derived   uuid.UUID `db:"derived_id"`
	Project   uuid.UUID `db:"project_id"`
	DataPoint uuid.UUID `db:"data_point"`
}

var (
	captured   = table.New[capturedRow](Name, schema, "captured")
	tombstones = table.New[tombstoneRow](Name, schema, "gone")
	memories   = table.New[memoryRow](Name, schema, "memories")
	edges      = table.New[edgeRow](Name, schema, "edges")
)

// fold holds the rows that a page of events touches: first as loaded, then as changed by the
// events.
type fold struct {
	derived    map[revisionKey]*derivation
	replaced   map[revisionKey]struct{} // revisions that may already have memories
	captured   map[uuid.UUID]*capturedRow
	tombstones map[uuid.UUID]*tombstoneRow
	cleaned    map[uuid.UUID]struct{} // deletions whose data points can no longer be written

	most int                 // memories of a data point that the page deletes; more are left to a follow-up
	last eventstore.Position // of the page
}

// apply folds one event.
func (f *fold) apply(decoded eventstore.DecodedEvent) error {
	owner := stream.Owner(decoded.Stream)
	switch e := decoded.Event.(type) {
	case *memory.Derived:
		f.replaceMemories(decoded.Position, owner, e)
	case *datapoint.Deleted:
		f.remove(owner, e.ProjectID, e.DeletionID)
	case *deletion.FactsKept:
		f.remove(e.DataPoint, e.ProjectID, owner)
	case *deletion.Cleaned:
		f.cleaned[owner] = struct{}{}
	}
	return nil
}

// replaceMemories sets the memories of a revision. Historic revisions are never derived, so a
// higher number means a newer revision.
func (f *fold) replaceMemories(at eventstore.Position, dataPoint uuid.UUID, e *memory.Derived) {
	if f.tombstones[dataPoint] != nil {
		return
	}
	key := revisionKey{dataPoint: dataPoint, revision: e.Revision}
	row := f.captured[dataPoint]
	if row == nil {
		row = &capturedRow{DataPoint: dataPoint, Project: e.ProjectID}
		f.captured[dataPoint] = row
	}
	if row.Revision >= e.Revision {
		f.replaced[key] = struct{}{}
	} else {
		row.Revision, row.Position, row.dirty = e.Revision, at, true
	}
	f.derived[key] = &derivation{event: e, position: at}
}

// remove deletes everything derived from a data point, and makes the fold ignore what is derived
// later.
func (f *fold) remove(dataPoint, project, deletion uuid.UUID) {
	if f.tombstones[dataPoint] == nil {
		f.tombstones[dataPoint] = &tombstoneRow{
			DataPoint: dataPoint, Project: project, Deletion: deletion, dirty: true,
		}
	}
	delete(f.captured, dataPoint)
	for key := range f.derived {
		if key.dataPoint == dataPoint {
			delete(f.derived, key)
			delete(f.replaced, key)
		}
	}
}

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
