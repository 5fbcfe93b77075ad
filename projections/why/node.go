package why

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/reads"
	"github.com/annals-project/annals/internal/auth"
)

// phaseDeleted is the phase of a node whose data point was deleted. The other phases are those of its
// send.
const phaseDeleted = "deleted"

// phaseIndexed is the phase of a send that is searchable.
const phaseIndexed = "indexed"

// Node is a node with everything that is known of it.
type Node struct {
	Brief
	// SourceID is the id that was sent.
	SourceID  string
	Revision  int
	Ingestion uuid.UUID
	Request   uuid.UUID
	Phase     string
	// OccurredAt is the event's time, CreatedAt when the revision was accepted or the memory derived,
	// ReadyAt since when its whole send was searchable, nil if it is not.
	OccurredAt, CreatedAt time.Time
	ReadyAt               *time.Time
	// A source, or a passage of it, is valid from its acceptance until that of the revision after it. Another memory is
	// valid from when it occurred until a later claim supersedes it, or a newer revision with memories is accepted.
	ValidFrom time.Time
	ValidTo   *time.Time
	Current   bool
	// Replaced is what the node replaced, ReplacedBy what replaced it.
	Replaced, ReplacedBy *uuid.UUID
	Inputs, Outputs      int
	// Content is that of a source, its first characters; More reports that there are more.
	Content string
	More    bool
	// Deleted is set if the data point was deleted. Only ID, Kind, Revision and Phase are set then.
	Deleted *Deleted
}

// Node returns a node of a project, current or not. Its fault is not-found.
func (s *Trace) Node(ctx context.Context, project auth.Project, id uuid.UUID) (Node, error) {
	g, at, err := s.find(ctx, project, id)
	if err != nil {
		return Node{}, err
	}
	if g == nil {
		return Node{Brief: at.brief(id), Revision: at.number, Phase: phaseDeleted, Deleted: at.deleted}, nil
	}
	n := g.byID[id]
	var near neighbours
	if _, err = s.again(ctx, func() (complete bool, err error) {
		near, err = s.neighbours(ctx, project, at)
		return !near.lags(at), err
	}); err != nil {
		return Node{}, err
	}
	node := g.node(n)
	send := near.sends[node.Ingestion]
	node.Phase, node.ReadyAt = send.phase, send.readyAt()
	switch n {
	case 0:
		err = s.replaceSource(ctx, &node, near)
	case g.passage:
		err = s.replacePassage(ctx, &node, near)
	default:
		err = s.replaceMemory(ctx, project, &node, near)
	}
	if err == nil {
		err = showOne(ctx, reads.Node, g.nodeOf(id))
	}
	return node, err
}

// node describes node n of the graph by the events of its revision alone.
func (g *Graph) node(n int) Node {
	node := Node{
		Brief: g.brief(n), SourceID: g.Accepted.Effect.SourceID, Revision: g.Accepted.Effect.Revision,
		Ingestion: g.Accepted.IngestionID, Request: g.Accepted.RequestID,
		OccurredAt: g.occurredAt(n), CreatedAt: g.createdAt(n),
		Inputs: len(g.inputs[n]), Outputs: len(g.outputs[n]),
	}
	if node.ValidFrom = node.OccurredAt; n == 0 || n == g.passage {
		node.ValidFrom = node.CreatedAt
	}
	if n == 0 {
		node.Content, node.More = cut(g.Content, limit.TraceContent)
		node.More = node.More || !g.Whole
	}
	return node
}

// replaceSource sets what replaced a revision, and what it replaced.
func (s *Trace) replaceSource(ctx context.Context, node *Node, near neighbours) error {
	if near.before != nil {
		node.Replaced = &near.before.node
	}
	if near.after == nil {
		node.Current = true
		return nil
	}
	return s.replace(ctx, node, *near.after)
}

// replace ends the validity of a node by a newer revision.
func (s *Trace) replace(ctx context.Context, node *Node, by location) error {
	newer, err := replaySource(ctx, s.Journal, by)
	if errors.Is(err, errErased) {
		return nil // deleted since: the next call reports it
	}
	if err != nil {
		return err
	}
	at := newer.Accepted.AcceptedAt.UTC()
	node.ReplacedBy, node.ValidTo = &by.node, &at
	return nil
}

// replaceMemory sets what superseded a claim, and what it superseded, or the newer revision.
func (s *Trace) replaceMemory(ctx context.Context, project auth.Project, node *Node, near neighbours) error {
	if near.captured != nil {
		return s.replace(ctx, node, *near.captured)
	}
	claims, err := s.claims(ctx, project, []uuid.UUID{node.ID})
	if err != nil {
		return err
	}
	c := claims[node.ID]
	node.Replaced, node.ReplacedBy, node.ValidTo = c.earlier, c.later, c.at
	node.Current = c.later == nil
	return nil
}

// neighbours are the revisions of a data point next to one, in effect order, and its send.
type neighbours struct {
	before, after *location
	// captured is the next one with memories.
	captured *location
	// newest is the newest revision with memories that recall knows, 0 for none.
	newest int
	sends  map[uuid.UUID]send
}

// lags reports whether a revision was replaced, and the projection has not applied by what.
func (near neighbours) lags(at location) bool {
	return near.after == nil && at.head != at.number || near.captured == nil && near.newest > at.number
}

const (
	locationColumns = `select node_id, data_point, number, accepted, effect, derived, null::timestamptz, null::uuid
		from trace.revisions where data_point = $1 and effect `
	selectBefore   = locationColumns + `< $2 order by effect desc limit 1`
	selectAfter    = locationColumns + `> $2 order by effect limit 1`
	selectCaptured = locationColumns + `> $2 and derived is not null order by effect limit 1`
)

func (s *Trace) neighbours(ctx context.Context, project auth.Project, at location) (near neighbours, err error) {
	b := new(pgx.Batch)
	read := func(into **location) func(pgx.Row) error {
		return func(row pgx.Row) error {
			found, err := scanLocation(row)
			if errors.Is(err, pgx.ErrNoRows) {
				return nil
			}
			*into = &found
			return err
		}
	}
	b.Queue(selectBefore, at.dataPoint, *at.effect).QueryRow(read(&near.before))
	b.Queue(selectAfter, at.dataPoint, *at.effect).QueryRow(read(&near.after))
	b.Queue(selectCaptured, at.dataPoint, *at.effect).QueryRow(read(&near.captured))
	b.Queue(`select revision from memories.captured where data_point = $1`, at.dataPoint).QueryRow(func(row pgx.Row) error {
		if err := row.Scan(&near.newest); !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		return nil
	})
	b.Queue(selectSendOf, project.ID, at.dataPoint, at.number).Query(func(rows pgx.Rows) (err error) {
		near.sends, err = scanSends(rows)
		return err
	})
	if err := s.DB.SendBatch(ctx, b).Close(); err != nil {
		return near, fmt.Errorf("read what is next to a revision: %w", err)
	}
	return near, nil
}

// send is a send as the projection of sends shows it.
type send struct {
	id, request uuid.UUID
	acceptedAt  time.Time
	settledAt   *time.Time
	phase       string
	items       int
}

// readyAt is since when all of the send was searchable, nil if it is not.
func (s send) readyAt() *time.Time {
	if s.phase != phaseIndexed {
		return nil
	}
	return s.settledAt
}

const (
	sendColumns  = `select s.id, s.request_id, s.accepted_at, s.settled_at, s.phase, s.item_count from datapoints.sends s `
	selectSends  = sendColumns + `where s.project_id = $1 and s.id = any($2::uuid[])`
	selectSendOf = sendColumns + `join datapoints.revisions r on r.ingestion_id = s.id
		join datapoints.data_points d on d.id = r.data_point
		where s.project_id = $1 and r.data_point = $2 and r.number = $3`
)

func scanSends(rows pgx.Rows) (map[uuid.UUID]send, error) {
	found := map[uuid.UUID]send{}
	for rows.Next() {
		var s send
		if err := rows.Scan(&s.id, &s.request, &s.acceptedAt, &s.settledAt, &s.phase, &s.items); err != nil {
			return nil, err
		}
		s.acceptedAt = s.acceptedAt.UTC()
		if s.settledAt != nil {
			*s.settledAt = s.settledAt.UTC()
		}
		found[s.id] = s
	}
	return found, rows.Err()
}

// claim is what comes before and after a claim on the same subject and attribute: what it superseded,
// and what supersedes it since when.
type claim struct {
	earlier, later *uuid.UUID
	at             *time.Time
}

// otherClaims is SQL for the live claims of a project on the subject and attribute of claim m. It is
// the rule by which recall supersedes, for a viewer that may read everything.
const otherClaims = `select n.id, n.occurred_at from memories.memories n
		cross join lateral (select from memories.captured where data_point = n.data_point and revision = n.revision offset 0) nk
		cross join lateral (select from datapoints.data_points where id = n.data_point and project_id = $1 offset 0) nd
		where n.project_id = $1 and n.subject = m.subject and n.attribute = m.attribute and n.kind = 'claim' and n.subject is not null
			and n.occurred_at <= (select at from perspective) `

const selectClaims = `with perspective as materialized (
		select greatest($3::timestamptz, (select max(accepted_at) from datapoints.data_points where project_id = $1)) as at
	)
	select m.id, earlier.id, later.id, later.occurred_at
	from unnest($2::uuid[]) c (id)
	cross join lateral (select * from memories.memories where id = c.id offset 0) m
	cross join lateral (select from memories.captured where data_point = m.data_point and revision = m.revision offset 0) k
	left join lateral (` + otherClaims + `and (n.occurred_at, n.id) < (m.occurred_at, m.id)
		order by n.occurred_at desc, n.id desc limit 1) earlier on true
	left join lateral (` + otherClaims + `and (n.occurred_at, n.id) > (m.occurred_at, m.id)
		order by n.occurred_at, n.id limit 1) later on true
	where m.project_id = $1 and m.kind = 'claim' and m.subject is not null`

// claims reads what is before and after the claims among memories.
func (s *Trace) claims(ctx context.Context, project auth.Project, ids []uuid.UUID) (map[uuid.UUID]claim, error) {
	rows, err := s.DB.Query(ctx, selectClaims, project.ID, ids, s.Now())
	if err != nil {
		return nil, fmt.Errorf("read claims: %w", err)
	}
	defer rows.Close()
	found := map[uuid.UUID]claim{}
	for rows.Next() {
		var id uuid.UUID
		var c claim
		if err := rows.Scan(&id, &c.earlier, &c.later, &c.at); err != nil {
			return nil, fmt.Errorf("read claims: %w", err)
		}
		if c.at != nil {
			*c.at = c.at.UTC()
		}
		found[id] = c
	}
	return found, rows.Err()
}
