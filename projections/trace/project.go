// Package trace is the projection of the trace: the ids of all nodes that ever were, and where their events are. It has
// no text. Package why folds the answers from the events of these streams. The ids of nodes outlive the deletion of
// their data point, so that a trace can report by which request it was deleted.
package trace

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/reads"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/table"
)

// Name names the projection: its schema, its topic, and what callers wait for.
const Name = projection.Trace

//go:embed schema.sql
var schema string

// Projector keeps schema trace.
type Projector struct {
	projections.Base
	blobs eventstore.BlobReader
}

// NewProjector makes the projector. blobs reads the memories that did not fit into their event, for their ids.
func NewProjector(blobs eventstore.BlobReader) Projector {
	return Projector{blobs: blobs, Base: projections.NewBase(projections.Description{
		Name: Name, Version: 3, Schema: schema,
		Categories: []string{stream.Registry, stream.DataPoint, stream.Memory, stream.Deletion},
		Counted:    []string{"revisions", "memories", "deleted"},
		Pace:       projections.Pace{Min: 200 * time.Millisecond, Max: 500 * time.Millisecond},
	})}
}

const (
	selectOwners  = `select id, organization_id from projects where id = any($1::uuid[])`
	selectDeleted = `select data_point from deleted where data_point = any($1::uuid[])`
	// setDerived changes the rows of earlier pages too, of which the page knows nothing else.
	setDerived = `update revisions r set derived = d.derived, derived_leaf = d.leaf
		from unnest($1::uuid[], $2::bigint[], $3::bytea[]) d (node_id, derived, leaf)
		where r.node_id = d.node_id and r.accepted is not null`
)

// revisionRow is a row of table revisions. Its memories are set later (setDerived), and stay unless it is erased.
type revisionRow struct {
	Node      uuid.UUID `db:"node_id"`
	Project   uuid.UUID `db:"project_id,once"`
	DataPoint uuid.UUID `db:"data_point,once"`
	Number    int       `db:"number,once"`
	Accepted  *int64    `db:"accepted"`
	Effect    *int64    `db:"effect"`
	Derived   *int64    `db:"derived"`
	Leaf      []byte    `db:"leaf"`
	// DerivedLeaf is set with Derived.
	DerivedLeaf []byte `db:"derived_leaf"`
}

// projectRow is a row of table projects.
type projectRow struct {
	ID           uuid.UUID `db:"id"`
	Organization uuid.UUID `db:"organization_id"`
}

// derived is where the newest memories of a revision are.
type derived struct {
	at   int64
	leaf []byte
}

// memoryRow is a row of table memories.
type memoryRow struct {
	ID   uuid.UUID `db:"id"`
	Node uuid.UUID `db:"node_id"`
}

// deletedRow is a row of table deleted.
type deletedRow struct {
	DataPoint uuid.UUID `db:"data_point"`
	Project   uuid.UUID `db:"project_id,once"`
	Request   uuid.UUID `db:"request_id"`
	At        time.Time `db:"deleted_at,once"`
}

var (
	revisionRows = table.New[revisionRow](Name, schema, "revisions",
		table.Change{Column: "derived", Value: "case when excluded.accepted is not null then revisions.derived end"},
		table.Change{
			Column: "derived_leaf", Value: "case when excluded.accepted is not null then revisions.derived_leaf end",
		})
	projectRows = table.New[projectRow](Name, schema, "projects")
	memoryRows  = table.New[memoryRow](Name, schema, "memories")
	deletedRows = table.New[deletedRow](Name, schema, "deleted")
)

// fold holds the rows that a page of events writes.
type fold struct {
	revisions map[uuid.UUID]*revisionRow
	derived   map[uuid.UUID]derived
	memories  map[uuid.UUID]*memoryRow
	deleted   map[uuid.UUID]*deletedRow
	// gone are the data points whose deletion an earlier page applied.
	gone map[uuid.UUID]struct{}
	// owners are the organizations of the projects of the page, created those that it creates.
	owners  map[uuid.UUID]uuid.UUID
	created []*projectRow
}

// Apply folds a page of events, then writes one statement per table. The memories of a blob that is
// missing or damaged have no ids, as in projection memories.
func (p Projector) Apply(ctx context.Context, tx pgx.Tx, events []eventstore.DecodedEvent) error {
	f := &fold{
		revisions: map[uuid.UUID]*revisionRow{}, derived: map[uuid.UUID]derived{}, memories: map[uuid.UUID]*memoryRow{},
		deleted: map[uuid.UUID]*deletedRow{}, gone: map[uuid.UUID]struct{}{}, owners: map[uuid.UUID]uuid.UUID{},
	}
	if err := f.load(ctx, tx, events); err != nil {
		return err
	}
	err := projections.Each(events, func(decoded eventstore.DecodedEvent) error { return p.apply(ctx, f, decoded) })
	if err != nil {
		return err
	}
	return f.save(ctx, tx)
}

// pageNodes is about the most ids that the retained facts of a page of several events name.
const pageNodes = 50_000

// Fit implements projections.Bounded.
func (Projector) Fit(events []eventstore.DecodedEvent) int {
	nodes := 0
	for n, decoded := range events {
		if e, is := decoded.Event.(*deletion.FactsKept); is {
			nodes += len(e.Facts)
			for _, derived := range e.Memories {
				nodes += derived.Count
			}
		}
		if nodes > pageNodes && n > 0 {
			return n
		}
	}
	return len(events)
}

// load reads which data points of the page are deleted, since what a worker derives too late has no ids, and to which
// organizations their projects belong.
func (f *fold) load(ctx context.Context, tx pgx.Tx, events []eventstore.DecodedEvent) error {
	touched, of := map[uuid.UUID]struct{}{}, map[uuid.UUID]struct{}{}
	for _, decoded := range events {
		switch e := decoded.Event.(type) {
		case *memory.Derived:
			touched[stream.Owner(decoded.Stream)], of[e.ProjectID] = struct{}{}, struct{}{}
		case *datapoint.RevisionAccepted:
			touched[stream.Owner(decoded.Stream)], of[e.ProjectID] = struct{}{}, struct{}{}
		}
	}
	if len(touched) == 0 {
		return nil
	}
	var id, organization uuid.UUID
	b := &pgx.Batch{}
	b.Queue(selectDeleted, pgarray.Keys(touched)).Query(func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&id}, func() error {
			f.gone[id] = struct{}{}
			return nil
		})
		return err
	})
	b.Queue(selectOwners, pgarray.Keys(of)).Query(func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&id, &organization}, func() error {
			f.owners[id] = organization
			return nil
		})
		return err
	})
	if err := pgarray.Flush(ctx, tx, b); err != nil {
		return fmt.Errorf("load the rows of the page: %w", err)
	}
	return nil
}

// leafOf returns the record of an event of a project, nil for one of a project that the log does not have.
func (f *fold) leafOf(decoded eventstore.DecodedEvent, project uuid.UUID) ([]byte, error) {
	organization, known := f.owners[project]
	if !known {
		return nil, nil
	}
	kept, err := decoded.Kept(organization)
	return kept.Record[:], err
}

func (p Projector) apply(ctx context.Context, f *fold, decoded eventstore.DecodedEvent) error {
	owner := stream.Owner(decoded.Stream)
	switch e := decoded.Event.(type) {
	case *registry.ProjectCreated:
		f.owners[e.ProjectID] = e.OrganizationID
		f.created = append(f.created, &projectRow{e.ProjectID, e.OrganizationID})
	case *datapoint.RevisionAccepted:
		return f.revisionAccepted(decoded, owner, e)
	case *memory.Derived:
		if _, gone := f.gone[owner]; gone {
			return nil
		}
		return p.memoriesDerived(ctx, f, decoded, owner, e)
	case *datapoint.Deleted:
		f.markDeleted(owner, e.ProjectID, e.RequestID, e.DeletedAt)
	case *deletion.FactsKept:
		f.factsKept(e)
	}
	return nil
}

func (f *fold) revisionAccepted(
	decoded eventstore.DecodedEvent, dataPoint uuid.UUID, e *datapoint.RevisionAccepted,
) error {
	if _, gone := f.gone[dataPoint]; gone {
		return nil // applied before: its row is older than the deletion
	}
	leaf, err := f.leafOf(decoded, e.ProjectID)
	if err != nil {
		return err
	}
	accepted, effect := int64(decoded.Revision), int64(decoded.Position)
	if e.Commit != 0 {
		effect = int64(e.Commit)
	}
	node := datapoint.NodeID(dataPoint, e.Effect.Revision)
	f.revisions[node] = &revisionRow{
		Node: node, Project: e.ProjectID, DataPoint: dataPoint, Number: e.Effect.Revision,
		Accepted: &accepted, Effect: &effect, Leaf: leaf,
	}
	return nil
}

func (p Projector) memoriesDerived(
	ctx context.Context, f *fold, decoded eventstore.DecodedEvent, dataPoint uuid.UUID, e *memory.Derived,
) error {
	list, err := MemoriesOf(ctx, p.blobs, e)
	if err != nil && !IsLost(err) {
		return fmt.Errorf("read the memories of data point %s, revision %d: %w", dataPoint, e.Revision, err)
	}
	leaf, err := f.leafOf(decoded, e.ProjectID)
	if err != nil {
		return err
	}
	node := datapoint.NodeID(dataPoint, e.Revision)
	f.derived[node] = derived{int64(decoded.Revision), leaf}
	for _, m := range list {
		f.memories[m.ID] = &memoryRow{m.ID, node}
	}
	return nil
}

// factsKept writes the ids of an erased data point from its retained facts alone, whether or not this
// replay read its streams: this is the erasure law.
func (f *fold) factsKept(e *deletion.FactsKept) {
	for _, fact := range e.Facts {
		if fact.CreatedRevision() {
			f.erase(e, fact.Revision)
		}
	}
	for _, derived := range e.Memories {
		node := datapoint.NodeID(e.DataPoint, derived.Revision)
		for n := range derived.Count {
			id := memory.ID(e.DataPoint, derived.Revision, n)
			f.memories[id] = &memoryRow{id, node}
		}
	}
	f.markDeleted(e.DataPoint, e.ProjectID, e.RequestID, e.DeletedAt)
}

func (f *fold) erase(e *deletion.FactsKept, number int) {
	node := datapoint.NodeID(e.DataPoint, number)
	f.revisions[node] = &revisionRow{Node: node, Project: e.ProjectID, DataPoint: e.DataPoint, Number: number}
}

func (f *fold) markDeleted(dataPoint, project, request uuid.UUID, at time.Time) {
	f.deleted[dataPoint] = &deletedRow{DataPoint: dataPoint, Project: project, Request: request, At: pgarray.Instant(at)}
	f.gone[dataPoint] = struct{}{}
}

// save writes the rows in one round trip.
func (f *fold) save(ctx context.Context, tx pgx.Tx) error {
	b := new(pgx.Batch)
	projectRows.Insert(b, f.created)
	revisionRows.Save(b, slices.Collect(maps.Values(f.revisions)))
	if len(f.derived) > 0 {
		nodes := pgarray.Keys(f.derived)
		b.Queue(setDerived, nodes, pgarray.Column(nodes, func(id uuid.UUID) int64 { return f.derived[id].at }),
			pgarray.Column(nodes, func(id uuid.UUID) []byte { return f.derived[id].leaf }))
	}
	memoryRows.Insert(b, slices.Collect(maps.Values(f.memories)))
	deletedRows.Save(b, slices.Collect(maps.Values(f.deleted)))
	if err := pgarray.Flush(ctx, tx, b); err != nil {
		return fmt.Errorf("write the rows of the page: %w", err)
	}
	return nil
}

// Leaves finds what read records say of nodes.
type Leaves struct{ DB *pgxpool.Pool }

// selectLeaves finds revisions, and memories with the part of the text that they rest on.
const selectLeaves = `select r.node_id, r.data_point, r.number, r.leaf, null::int, null::int
	from trace.revisions r where r.node_id = any($1::uuid[]) and r.accepted is not null
	union all select m.id, r.data_point, r.number, r.derived_leaf, t.span_start, t.span_end
	from trace.memories m join trace.revisions r on r.node_id = m.node_id
	left join memories.memories t on t.id = m.id
	where m.id = any($1::uuid[]) and r.derived is not null`

// Leaves returns what is known of nodes that are not erased, by their ids.
func (q Leaves) Leaves(ctx context.Context, nodes []uuid.UUID) (map[uuid.UUID]reads.Shown, error) {
	rows, err := q.DB.Query(ctx, selectLeaves, nodes)
	if err != nil {
		return nil, fmt.Errorf("find the leaves of nodes: %w", err)
	}
	found := make(map[uuid.UUID]reads.Shown, len(nodes))
	var s reads.Shown
	var from, to *int
	_, err = pgx.ForEachRow(rows, []any{&s.Node, &s.DataPoint, &s.Revision, &s.Leaf, &from, &to}, func() error {
		if s.Spans = nil; from != nil {
			s.Spans = []reads.Span{{*from, *to}}
		}
		found[s.Node] = s
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("find the leaves of nodes: %w", err)
	}
	return found, nil
}

// memoryBytes is the most bytes of the memories of one revision that are read.
const memoryBytes = 32 << 20

// MemoriesOf reads the memories of an event, inline or from its blob.
func MemoriesOf(ctx context.Context, blobs eventstore.BlobReader, e *memory.Derived) ([]memory.Memory, error) {
	if e.Blob == nil {
		return e.Memories, nil
	}
	if e.Blob.Size > memoryBytes {
		return nil, &eventstore.BlobError{Stream: e.Blob.Stream, Detail: "more memories than are read"}
	}
	data, err := blobs.ReadBlob(ctx, *e.Blob)
	if err != nil {
		return nil, err
	}
	list, err := memory.Decode(data)
	if err != nil {
		return nil, &eventstore.BlobError{Stream: e.Blob.Stream, Detail: err.Error()}
	}
	return list, nil
}

// IsLost reports whether a blob is gone or damaged.
func IsLost(err error) bool {
	_, lost := errors.AsType[*eventstore.BlobError](err)
	return lost
}
