// Package datapoints projects data points with their revisions, sends with their items, phases and
// counters, and the work lists of the worker, the confirmer and the finisher.
//
// Start with schema.sql, then fold.go: a page of events is folded over the rows that it touches
// (project.go), and the changed rows are written at once (save.go). The other files are queries.
//
// The rows obey the erasure law: a rebuild after a data point was erased yields the same sends and
// items as before, from the retained facts of the deletion alone (deletion.go).
package datapoints

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/pipeline"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/table"
)

// Name names the projection: its schema, its topic, and what callers wait for.
const Name = projection.DataPoints

//go:embed schema.sql
var schema string

// Projector keeps schema datapoints.
type Projector struct {
	projections.Base
	blobs eventstore.BlobReader
	// rows is the most rows of a slice, and the most of a data point that a page deletes.
	rows int
}

// New makes the projector. blobs reads the memories that did not fit into their event, to count them;
// it may be nil if there are none. The pace lets a page gather the several phases that an item passes
// within a moment, so that its row is written once.
func New(blobs eventstore.BlobReader) Projector {
	return Projector{blobs: blobs, rows: projections.SliceRows, Base: projections.NewBase(projections.Description{
		Name: Name, Version: 7, Schema: schema + projections.FollowUpTable,
		Categories: []string{
			stream.DataPoint, stream.Memory, stream.Ingestion, stream.Pipeline, stream.Deletion, stream.Blob,
			eventstore.SystemStream,
			stream.Identity, stream.Bulk, stream.Audiences, // for the blobs that they refer to
		},
		TextTables: []string{"data_points", "revisions"},
		Counted:    []string{"data_points", "revisions", "sends"},
		Pace:       projections.Pace{Min: 50 * time.Millisecond},
	})}
}

// pageRows is about the most rows that the events of a page of several name.
const pageRows = 32_768

// Fit implements projections.Bounded: a page of events that are each about all items of a send, or about many
// facts, ends before they are too many.
func (Projector) Fit(events []eventstore.DecodedEvent) int {
	rows := 0
	for n, decoded := range events {
		if rows += rowsOf(decoded.Event); rows > pageRows && n > 0 {
			return n
		}
	}
	return len(events)
}

// rowsOf is the most rows that an event names.
func rowsOf(e event.Event) int {
	switch e := e.(type) {
	case *ingestion.Accepted:
		return len(e.Items)
	case *ingestion.FannedOut:
		return len(e.Outcomes)
	case *ingestion.Failed, *ingestion.Retried:
		return limit.BatchItems
	case *deletion.FactsKept:
		return len(e.Facts)
	default:
		return 1
	}
}

// Apply folds a page of events over the rows that they touch, then writes one statement per table.
// An event that was applied before changes nothing. Apply fails on an event that contradicts an earlier
// one, and if a blob cannot be read now.
func (p Projector) Apply(ctx context.Context, tx pgx.Tx, events []eventstore.DecodedEvent) error {
	if len(events) == 0 {
		return nil
	}
	touched := newKeys()
	note := func(decoded eventstore.DecodedEvent) error { touched.add(decoded); return nil }
	if err := projections.Each(events, note); err != nil {
		return err
	}
	f, err := load(ctx, tx, touched, p.rows)
	if err != nil {
		return err
	}
	if err := projections.Each(events, f.apply); err != nil {
		return err
	}
	if err := p.countMemories(ctx, f.dataPoints); err != nil {
		return err
	}
	return f.save(ctx, tx)
}

type ids map[uuid.UUID]struct{}

func (s ids) add(id uuid.UUID) { s[id] = struct{}{} }

func (s ids) has(id uuid.UUID) bool { _, has := s[id]; return has }

// keys are the rows that the events of a page touch. load also finds rows that are only reachable
// from these.
type keys struct {
	items      map[itemKey]struct{}
	itemsOf    ids // data points whose items with a revision are touched
	failedOf   ids // data points whose failed items a newer revision overtakes
	allItems   ids // sends whose items are all touched
	endedItems ids // sends whose captured and failed items are touched
	unsure     ids // sends that a retained fact makes unsearchable again
	sends      ids
	dataPoints ids
	deletions  ids
	erasures   ids
	batches    ids
	// searchable is the highest position of the watermarks of the page, 0 if it has none. The
	// captured sends up to it are loaded.
	searchable eventstore.Position
}

func newKeys() *keys {
	return &keys{
		items: map[itemKey]struct{}{}, itemsOf: ids{}, failedOf: ids{}, allItems: ids{}, endedItems: ids{}, unsure: ids{},
		sends: ids{}, dataPoints: ids{}, deletions: ids{}, erasures: ids{}, batches: ids{},
	}
}

func (k *keys) item(send uuid.UUID, ordinal int) {
	k.items[itemKey{Send: send, Ordinal: ordinal}] = struct{}{}
	k.sends.add(send)
}

// add collects the rows that an event touches.
func (k *keys) add(decoded eventstore.DecodedEvent) {
	owner := stream.Owner(decoded.Stream)
	if send, _, ok := datapoint.SendOf(decoded.Event); ok {
		k.item(send.IngestionID, send.Ordinal)
		k.dataPoints.add(owner)
		return
	}
	switch e := decoded.Event.(type) {
	case *datapoint.Deleted:
		k.itemsOf.add(owner)
		k.dataPoints.add(owner)
		k.erasures.add(owner)
		k.deletions.add(e.DeletionID)
	case *memory.DerivationStarted:
		k.item(e.IngestionID, e.Ordinal)
	case *memory.Derived:
		k.item(e.IngestionID, e.Ordinal)
		k.dataPoints.add(owner)
		k.failedOf.add(owner)
	case *memory.Embedded:
		k.dataPoints.add(owner)
	case *memory.Failed:
		k.item(e.IngestionID, e.Ordinal)
		k.dataPoints.add(owner)
	case *ingestion.Accepted:
		k.sends.add(owner)
	case *ingestion.FannedOut:
		k.sends.add(owner)
		k.allItems.add(owner)
		k.batches.add(owner)
	case *ingestion.Indexed:
		k.sends.add(owner)
	case *pipeline.Searchable:
		k.searchable = max(k.searchable, eventstore.Position(e.Position))
	case *ingestion.Failed:
		k.sends.add(owner)
		if e.Code == ingestion.IndexUnavailable {
			k.endedItems.add(owner)
		}
	case *ingestion.Retried:
		k.sends.add(owner)
		k.endedItems.add(owner)
	case *deletion.Accepted:
		k.deletions.add(owner)
		if e.IngestionID != uuid.Nil {
			k.sends.add(e.IngestionID) // its fan-out may end within the page
		}
	case *deletion.FannedOut, *deletion.Cleaned:
		k.deletions.add(owner)
	case *eventstore.Tombstoned:
		if isOfDataPoint(e.Stream) {
			k.dataPoints.add(stream.Owner(e.Stream))
		}
	case *eventstore.MetadataWritten:
		if isOfDataPoint(e.Stream) {
			k.dataPoints.add(stream.Owner(e.Stream))
		}
	case *deletion.FactsKept:
		k.deletions.add(owner)
		k.erasures.add(e.DataPoint)
		k.dataPoints.add(e.DataPoint)
		for _, fact := range e.Facts {
			k.item(fact.IngestionID, fact.Ordinal)
			if fact.CreatedRevision() && fact.SearchableAt.IsZero() {
				k.unsure.add(fact.IngestionID)
			}
		}
	}
}

// The conditions of the indexes items_stopped and items_by_data_point.
const (
	stopped      = `phase in ('failed', 'unindexed') and not overtaken`
	withRevision = `outcome not in ('unchanged', 'moved')`
)

var (
	itemsByKey = items.Select(`items join unnest($1::uuid[], $2::int[]) k (ingestion_id, ordinal) using (ingestion_id,
		ordinal)`)
	// itemsOf reads some items with a revision of each data point, first those that a send waits for.
	itemsOf = items.Select(`unnest($1::uuid[]) k (id) cross join lateral (
			(select * from items where data_point = k.id and phase in ('queued', 'processing')
				order by batch, revision limit $2)
			union all (select * from items where data_point = k.id and ` + stopped + ` order by revision limit $2)
			union all (select * from items where data_point = k.id and ` + withRevision + ` order by revision limit $2)
		) i`)
	failedOf = items.Select(`unnest($1::uuid[]) k (id) cross join lateral (
			select * from items where data_point = k.id and ` + stopped + ` order by revision limit $2
		) i`)
	// itemsFollowed reads the items of sends whose data points have follow-ups.
	itemsFollowed = items.Select(`items where ingestion_id = any($1::uuid[])
		and (data_point = any($2::uuid[]) or data_point in (select key from follow_ups))`)
	itemsAll   = items.Select(`items where ingestion_id = any($1::uuid[])`)
	itemsEnded = items.Select(`items where ingestion_id = any($1::uuid[]) and phase in ('captured', 'failed', 'unindexed')`)

	// sendsSearchable reads the sends that a watermark may end (send.endedBy).
	sendsSearchable = sends.Select(`sends where phase = 'captured' and failed = 0 and deleted = 0 and position <= $1`)
)

// selectBatches reads arrays, of which each element is an item.
const selectBatches = `select id, data_points, bytes from batches where id = any($1::uuid[])`

// load reads the rows that a page touches in two round trips: those that the events name, then
// those that these lead to.
//
// Of a data point with many items it reads about as many as rows; follow-ups do the rest (deletion.go).
func load(ctx context.Context, tx pgx.Tx, k *keys, rows int) (*fold, error) {
	f, first := newFold(), &pgx.Batch{}
	readItems := items.Read(f.itemLoaded)
	f.most = min(rows, max(rows*4/max(len(k.itemsOf)+len(k.failedOf), 1), leastItems))
	if len(k.items) > 0 {
		sends, ordinals := make([]uuid.UUID, 0, len(k.items)), make([]int32, 0, len(k.items))
		for key := range k.items {
			sends, ordinals = append(sends, key.Send), append(ordinals, int32(key.Ordinal))
		}
		first.Queue(itemsByKey, sends, ordinals).Query(readItems)
	}
	for sql, of := range map[string]ids{itemsOf: k.itemsOf, failedOf: k.failedOf} {
		if len(of) > 0 {
			first.Queue(sql, pgarray.Keys(of), f.most+1).Query(readItems)
		}
	}
	first.Queue(`select exists (select from follow_ups)`).QueryRow(func(row pgx.Row) error { return row.Scan(&f.followed) })
	pgarray.Queue(first, itemsAll, k.allItems, readItems)
	pgarray.Queue(first, itemsEnded, k.endedItems, readItems)
	if k.searchable > 0 {
		first.Queue(sendsSearchable, int64(k.searchable)).Query(sends.Read(f.sendLoaded))
	}
	table.Load(first, dataPoints, k.dataPoints, f.dataPointLoaded)
	table.Load(first, deletions, k.deletions, func(d *deletionRow) { f.deletions[d.ID] = d })
	table.Load(first, erasures, k.erasures, func(e *erasure) { f.erasures[e.DataPoint] = e })
	pgarray.Queue(first, selectBatches, k.batches, f.readBatches)
	if err := pgarray.Flush(ctx, tx, first); err != nil {
		return nil, fmt.Errorf("load the rows of the page: %w", err)
	}

	second, followed := &pgx.Batch{}, ids{}
	for key, i := range f.items {
		k.sends.add(key.Send)
		if _, ended := k.endedItems[key.Send]; ended && f.dataPoints[i.DataPoint] == nil {
			followed.add(i.DataPoint)
		}
	}
	for _, d := range f.deletions {
		if d.Send != uuid.Nil {
			k.sends.add(d.Send)
		}
	}
	table.Load(second, dataPoints, followed, f.dataPointLoaded)
	for id, s := range f.sends {
		if s.stored == inSends { // loaded for a watermark
			delete(k.sends, id)
		}
	}
	f.loadSends(second, k.sends)
	if err := pgarray.Flush(ctx, tx, second); err != nil {
		return nil, fmt.Errorf("load the sends of the page: %w", err)
	}
	return f, f.loadFollowed(ctx, tx, k)
}

// loadSends reads sends from the table that has them.
func (f *fold) loadSends(b *pgx.Batch, of ids) {
	table.Load(b, sends, of, f.sendLoaded)
	table.Load(b, sendsWithoutItems, of, func(s *sendWithoutItems) {
		f.sends[s.ID] = &send{sendWithoutItems: *s, stored: inSendsWithoutItems}
	})
}

func (f *fold) itemLoaded(i *item) {
	i.wasOpen, i.counted = i.isOpen(), i.share()
	if f.items[i.itemKey] == nil {
		f.addItem(i)
	}
}

func (f *fold) dataPointLoaded(d *dataPointRow) {
	d.counted = d.share()
	f.dataPoints[d.ID] = d
}

func (f *fold) sendLoaded(s *send) {
	s.known, s.stored = true, inSends
	s.before, s.charged = s.readiness(), s.charges
	f.sends[s.ID] = s
}

func (f *fold) readBatches(rows pgx.Rows) error {
	for rows.Next() {
		var (
			id         uuid.UUID
			dataPoints []uuid.UUID
			bytes      []int64
		)
		err := rows.Scan(&id, &dataPoints, &bytes)
		if err != nil {
			return err
		}
		items := make([]batchItem, len(dataPoints))
		for n, dataPoint := range dataPoints {
			items[n] = batchItem{dataPoint: dataPoint, bytes: bytes[n]}
		}
		f.batches[id] = items
	}
	return rows.Err()
}
