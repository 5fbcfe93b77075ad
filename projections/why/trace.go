package why

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/reads"
	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/recallindex"
)

// recalls knows which recalls returned a node.
type recalls interface {
	// Hits returns at most limit recalls of a project that returned one of the nodes in a window,
	// newest first.
	Hits(ctx context.Context, project uuid.UUID, nodes []uuid.UUID, from, to time.Time, limit int) ([]Recall, error)
	// Of returns at most limit recalls of a project that returned a data point or a memory of it in a window, newest
	// first, without node and rank.
	Of(ctx context.Context, project, dataPoint uuid.UUID, from, to time.Time, limit int) ([]Recall, error)
}

// searcher searches the recall index.
type searcher interface {
	Search(ctx context.Context, q recallindex.Query) (recallindex.Found, error)
	Analysis() int
}

// TraceConfig is what a Service needs.
type TraceConfig struct {
	DB      *pgxpool.Pool
	Journal eventstore.Journal
	Head    projections.Head
	// Index and Analyzers find the roots of a search.
	Index     searcher
	Analyzers recall.Analyzers
	// Recalls is nil if no request log exists: no recall is known then.
	Recalls recalls
	Logger  *slog.Logger
	// Now is the clock, time.Now if nil.
	Now func() time.Time
}

// Trace answers the trace reads. It is safe for concurrent use.
type Trace struct{ TraceConfig }

// NewTrace makes a service.
func NewTrace(c TraceConfig) *Trace {
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Trace{TraceConfig: c}
}

// location is where the events of a revision are.
type location struct {
	node, dataPoint uuid.UUID
	number          int
	// accepted, effect and derived are nil if erased; derived also if there are no memories.
	accepted, effect, derived *int64
	deleted                   *Deleted
	// head is the newest revision of the data point according to its stream.
	head int
	// passage is the number of a passage of the source, nil if the node is none.
	passage *int
}

// Deleted records when a data point was deleted. Request is nil if a version of the program that
// did not record it retained the facts.
type Deleted struct {
	At      time.Time
	Request *uuid.UUID
}

// undefinedTable is the code of Postgres for a table, or a schema of one, that is not there.
const undefinedTable = "42P01"

const selectLocation = `select r.node_id, r.data_point, r.number, r.accepted, r.effect, r.derived, d.deleted_at, d.request_id
	from (select $1::uuid as node_id union all select node_id from trace.memories where id = $1) c
	cross join lateral (select * from trace.revisions where node_id = c.node_id offset 0) r
	left join trace.deleted d on d.data_point = r.data_point
	where r.project_id = $2`

// selectPassage finds the revision that a passage belongs to by the bounds of the ids of its node.
const selectPassage = `select r.node_id, r.data_point, r.number, r.accepted, r.effect, r.derived, d.deleted_at, d.request_id
	from trace.revisions r
	left join trace.deleted d on d.data_point = r.data_point
	where r.node_id between $1 and $2 and r.project_id = $3
	order by r.node_id limit 1`

func scanLocation(row pgx.Row) (at location, err error) {
	var when *time.Time
	var request *uuid.UUID
	err = row.Scan(&at.node, &at.dataPoint, &at.number, &at.accepted, &at.effect, &at.derived, &when, &request)
	if when != nil {
		at.deleted = &Deleted{At: when.UTC(), Request: request}
	}
	return at, err
}

// locate finds the revision of a node, as the projection is now. ok is false if the project has no
// such node up to there.
func (s *Trace) locate(ctx context.Context, project auth.Project, node uuid.UUID) (at location, ok bool, err error) {
	low, high, isPassage := datapoint.NodesOfPassage(node)
	if isPassage {
		at, err = scanLocation(s.DB.QueryRow(ctx, selectPassage, low, high, project.ID))
		number := datapoint.PassageNumber(node, at.node)
		at.passage = &number
	} else {
		at, err = scanLocation(s.DB.QueryRow(ctx, selectLocation, node, project.ID))
	}
	// After an upgrade a service may be ready before the first build of this projection has created its tables.
	refused, is := errors.AsType[*pgconn.PgError](err)
	notBuilt := is && refused.Code == undefinedTable
	if errors.Is(err, pgx.ErrNoRows) || notBuilt {
		return location{}, false, nil
	}
	if err != nil {
		return location{}, false, fmt.Errorf("find a node: %w", err)
	}
	return at, true, nil
}

// find replays the revision of a node. If its data point was deleted, the graph is nil and the
// location records when. The fault is not-found if the project has no such node at the head of the
// log.
func (s *Trace) find(ctx context.Context, project auth.Project, node uuid.UUID) (g *Graph, at location, err error) {
	var erased error
	known, err := s.again(ctx, func() (known bool, err error) {
		erased = nil
		if at, known, err = s.locate(ctx, project, node); err != nil || !known {
			return false, err
		}
		g, err = s.graph(ctx, &at)
		if errors.Is(err, errErased) {
			erased = err
			return false, nil
		}
		if g != nil { // else the data point is deleted
			_, known = g.byID[node]
		}
		return known, err
	})
	switch {
	case err != nil || known:
		return g, at, err
	case erased != nil:
		return nil, at, erased
	default:
		return nil, at, fault.New(fault.NotFound, fault.CodeNotFound, "the project has no node %s", node)
	}
}

// graph replays a revision. If the data point was deleted, it returns nil and sets at.deleted. The
// error is errErased if its streams are gone and the projection does not know the deletion yet.
func (s *Trace) graph(ctx context.Context, at *location) (*Graph, error) {
	if at.deleted != nil {
		return nil, nil //nolint:nilnil // at.deleted is the answer
	}
	last, ok, err := s.Journal.Last(ctx, stream.Name(stream.DataPoint, at.dataPoint))
	if err != nil || !ok {
		return nil, erasedOr(err)
	}
	if e, is := last.Event.(*datapoint.Deleted); is {
		at.deleted = &Deleted{At: e.DeletedAt.UTC(), Request: &e.RequestID}
		return nil, nil //nolint:nilnil // at.deleted is the answer
	}
	_, states, _ := datapoint.SendOf(last.Event)
	at.head = states.Head().Revision
	if at.derived == nil {
		if err := s.findDerived(ctx, at); err != nil {
			return nil, err
		}
	}
	r, err := replay(ctx, s.Journal, *at)
	if err != nil {
		return nil, err
	}
	if at.passage == nil {
		return NewGraph(r), nil
	}
	return withPassage(ctx, s.Journal, r, *at.passage)
}

// tail is how many of the last events of a stream of memories are read for memories that the
// projection has not applied yet.
const tail = 32

// findDerived looks for the memories of a revision at the end of their stream.
func (s *Trace) findDerived(ctx context.Context, at *location) error {
	name := stream.Name(stream.Memory, at.dataPoint)
	events, err := s.Journal.Read(ctx, name, eventstore.EndOfStream, eventstore.Backwards, tail)
	if err != nil {
		return erasedOr(err)
	}
	for _, e := range events {
		if derived, is := e.Event.(*memory.Derived); is && derived.Revision == at.number {
			revision := int64(e.Revision)
			at.derived = &revision
			return nil
		}
	}
	return nil
}

// again is again for the projections of a trace.
func (s *Trace) again(ctx context.Context, read func() (complete bool, err error)) (complete bool, err error) {
	return again(ctx, s.Head, read, projection.Trace, projection.DataPoints, projection.Memories)
}

// Lineage walks from a root. Its fault is not-found.
func (s *Trace) Lineage(
	ctx context.Context, project auth.Project, root uuid.UUID, all bool, reveal []Side, limit int,
) (Lineage, error) {
	g, at, err := s.find(ctx, project, root)
	if err != nil {
		return Lineage{}, err
	}
	if g == nil {
		return Lineage{Root: at.brief(root), Nodes: []Brief{}, Edges: []Edge{}, Deleted: at.deleted}, nil
	}
	found := g.Lineage(root, all, reveal, limit)
	return found, show(ctx, reads.Lineage, found.Nodes, func(b Brief) uuid.UUID { return g.nodeOf(b.ID) })
}

// brief describes a node of a deleted data point.
func (p location) brief(node uuid.UUID) Brief {
	if node == p.node {
		return Brief{ID: node, Kind: KindSource}
	}
	return Brief{ID: node, Kind: KindMemory}
}
